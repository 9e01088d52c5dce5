"""Causality-aware entropy, and network resets by the share of dormant neurons."""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Float

from thespis.core.records import Citation
from thespis.envs.compiled.reacher import NUM_JOINTS
from thespis.evaluation.run import Run
from thespis.evidence.claims import MinimumScore, Superiority
from thespis.evidence.continuous_control import LARGE_SAC, LARGE_STEPS, MUJOCO_ENVS, SMALL_SAC, SMALL_STEPS
from thespis.evidence.measures import Measure, final_return, learning_curve_auc
from thespis.evidence.paper import Arm, Fidelity, Paper, Trial
from thespis.learners.off_policy.causal_entropy import CausalEntropy, CausalEntropyState
from thespis.learners.off_policy.dormant_reset import DormantReset
from thespis.methods.online.sac import SAC


def _causal_weight_difference() -> Measure:
    def of(run: Run) -> Float[np.ndarray, " seed"]:
        entropy_state = run.states.entropy_state
        if not isinstance(entropy_state, CausalEntropyState):
            return np.zeros(len(run.config["seeds"]))  # all weights are equal
        weights = np.asarray(entropy_state.action_weights, np.float64)
        return weights[:, :NUM_JOINTS].mean(axis=1) - weights[:, NUM_JOINTS:].mean(axis=1)

    return Measure("weight of the actions that count less that of the others", of)


def _arms(sac: SAC, entropy: CausalEntropy, network_reset: DormantReset) -> tuple[Arm, ...]:
    return (
        Arm("ACE", dataclasses.replace(sac, entropy=entropy, network_reset=network_reset)),
        Arm("causal entropy", dataclasses.replace(sac, entropy=entropy)),
        Arm("resets", dataclasses.replace(sac, network_reset=network_reset)),
        Arm("SAC", sac),
    )


PAPER = Paper(
    id="ace",
    name="ACE",
    citation=Citation(
        "ACE: Off-Policy Actor-Critic with Causality-Aware Entropy Regularization",
        "Ji et al.",
        2024,
        "arXiv:2402.14528",
    ),
    family="exploration",
    summary="Soft actor-critic whose entropy bonus weights each action dimension by its causal effect on reward, and "
    "whose networks are blended with freshly initialized ones, the more so the more neurons are dormant (get almost no "
    "gradient).",
    claim="ACE reaches higher returns than model-free baselines, SAC among them, in 29 continuous-control tasks.",
    parts=(
        "thespis.learners.off_policy.causal_entropy:CausalEntropy",
        "thespis.learners.off_policy.causal_entropy:causal_effects_on_last",
        "thespis.learners.off_policy.dormant_reset:DormantReset",
        "thespis.methods.online.sac:SAC",
    ),
    command="thespis train sac --env Pendulum-v1 --set entropy=CausalEntropy network_reset=DormantReset",
    miniature=Trial(
        arms=_arms(
            SMALL_SAC, CausalEntropy(update_interval=1_000, num_samples=2_000), DormantReset(reset_interval=5_000)
        ),
        envs=("thespis.evidence.continuous_control:PADDED_REACHER",),
        steps=SMALL_STEPS,
        claims=(
            Superiority("ACE", "SAC", final_return()),
            Superiority("ACE", "SAC", learning_curve_auc()),
            Superiority("ACE", "causal entropy", final_return()),
            Superiority("ACE", "resets", final_return()),
            MinimumScore("causal entropy", _causal_weight_difference(), 0.0),
        ),
    ),
    remarks="Instead of 29 tasks, the miniature uses a reacher with two joints and eight further action dimensions "
    "that have no effect: where all dimensions matter equally, there would be nothing to weight. Causal effects are "
    "estimated, and networks reset, ten to twenty times as often as in the paper, which suits a run that is fifty "
    "times shorter. Actor and targets are updated at every update, in the authors' code at every second; the networks "
    "are small, theirs have three layers of 1024 units. Not shown: with ten seeds ACE ends above SAC, but so do both "
    "of its components, and the three cannot be distinguished. The estimated weights differ by at most 0.05: the "
    "direction in which a torque changes the distance to the target depends on the arm's pose, so on average no action "
    "dimension has a linear effect on reward, and only linear effects are estimated. In locomotion, reward is a "
    "velocity that torques push in one direction. With equal weights, causal entropy is plain entropy, so the gain of "
    "its arm over SAC is likely chance.",
    fidelity=(
        Fidelity(
            "causal effects", "DirectLiNGAM on observation, action and reward; the action's direct effects on reward"
        ),
        Fidelity(
            "weights", "softmax of the effects times the number of dimensions, on log-densities in target and actor"
        ),
        Fidelity(
            "regression of effects", "adaptive lasso", "least squares on what precedes reward in the causal order"
        ),
        Fidelity(
            "samples of effects", "10,000 that were last collected, every 10,000 steps", "2,000 of batches, every 1,000"
        ),
        Fidelity(
            "dormant neurons", "gradient norm below 5% of the layer's mean, at the last batch", "Adam's mean gradient"
        ),
        Fidelity("blending", "by the share of dormant neurons, between 0.1 and 0.8; actor, critics and targets"),
        Fidelity(
            "fresh networks", "orthogonal, others for critics and their targets", "initial ones, permuted; the same"
        ),
        Fidelity("reset interval", "100,000 updates of a million", "5,000 of 14,000"),
        Fidelity("delay", "actor, temperature and targets at every second update", "at every update"),
        Fidelity("networks", "three layers of 1,024 units, batches of 512", "two layers of 64 units, batches of 64"),
    ),
    full=Trial(
        arms=_arms(LARGE_SAC, CausalEntropy(), DormantReset()),
        envs=MUJOCO_ENVS,
        steps=LARGE_STEPS,
        claims=(Superiority("ACE", "SAC", final_return()),),
        max_looks=1,
    ),
)
