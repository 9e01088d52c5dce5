"""Mixtures of experts as actors of soft actor-critic."""

from __future__ import annotations

import dataclasses

from thespis.actors.mixture_of_experts import MixtureOfExperts
from thespis.core.records import Citation
from thespis.evidence.benches.multi_goal import BASELINE, BENCH
from thespis.evidence.claims import Superiority
from thespis.evidence.comparisons import Comparison
from thespis.evidence.continuous_control import LARGE_SAC, LARGE_STEPS, MUJOCO_ENVS
from thespis.evidence.measures import final_return, learning_curve_auc
from thespis.evidence.multi_goal import num_neglected_patches
from thespis.evidence.paper import Arm, Fidelity, Paper, Trial
from thespis.methods.online.sac import SAC

_PMOE, _SAC, _ALL_EXPERTS, _EXACT = "PMOE", "SAC", "all experts trained", "mixture by its own gradient"


def _arm(name: str, sac: SAC, head: MixtureOfExperts) -> Arm:
    return Arm(name, dataclasses.replace(sac, policy_head=head))


def _main_arms(sac: SAC) -> tuple[Arm, Arm]:
    return _arm(_PMOE, sac, MixtureOfExperts(routing="winner")), Arm(_SAC, sac)


PAPER = Paper(
    id="pmoe",
    name="PMOE",
    citation=Citation(
        "Probabilistic Mixture-of-Experts for Efficient Deep Reinforcement Learning",
        "Ren et al.",
        2021,
        "arXiv:2104.09122",
    ),
    family="architecture",
    summary="The actor is a mixture of squashed normals. The expert whose sample has the highest action value is "
    "trained, and each expert's weight follows how often its sample is the best.",
    claim="Higher return than unimodal actors and than other ways to train a mixture, on six MuJoCo tasks, with "
    "experts that are distinguishable.",
    parts=(
        "thespis.actors.mixture_of_experts:MixtureOfExperts",
        "thespis.actors.mixture_of_experts:SquashedNormalMixture",
        "thespis.methods.online.sac:SAC",
        "thespis.envs.compiled.foraging:ForagingEnv",
    ),
    command="thespis train sac --env Pendulum-v1 --set policy_head=MixtureOfExperts policy_head.routing=winner",
    miniature=BENCH.trial(
        arms=(
            *_main_arms(BASELINE),
            _arm(_ALL_EXPERTS, BASELINE, MixtureOfExperts()),
            _arm(_EXACT, BASELINE, MixtureOfExperts(routing="exact")),
        ),
        headline=Comparison(_PMOE, _SAC, final_return()),
        mechanisms=(Comparison(_PMOE, _SAC, num_neglected_patches()),),
        context=(
            Comparison(_PMOE, _SAC, learning_curve_auc()),
            Comparison(_PMOE, _EXACT, final_return()),
            Comparison(_ALL_EXPERTS, _SAC, final_return()),
        ),
    ),
    remarks="The abstract, the introduction and a co-author's code for SAC and for PPO were available. Instead of six "
    "MuJoCo tasks the miniature is foraging among four patches, where the action's value has a maximum at every patch "
    "and the best one changes at every step. SAC was tuned in four trials on the bench; PMOE has its settings, and in "
    "a trial of its own a temperature of 0.01 was as good. The old trial trained all experts, as the code for PPO "
    "does, and one expert became the only one. As in the code for SAC, only the expert with the highest value is "
    "trained now, so that experts come to differ; the arm in which all are trained is beside it. The paper compares "
    "with Gumbel-softmax and score-ratio gradients; here the comparison is the exact gradient of the expectation over "
    "experts. Mixtures in PPO, options and other mixtures are not tested. Shown: the higher return, and fewer "
    "neglected patches. Training all experts is ahead of SAC, too. An advantage over other ways to train a mixture is "
    "not seen: with the exact gradient final returns are alike, and returns during training are larger.",
    fidelity=(
        Fidelity("policy", "mixture of normals, squashed by tanh; deviations of exp(-20) to exp(2)"),
        Fidelity("best expert", "the one whose sample has the largest minimum of both critics"),
        Fidelity(
            "actor loss", "value and entropy of the best expert's sample only; its own density, not the mixture's"
        ),
        Fidelity("router loss", "mean squared difference of the weights from the best expert's indicator"),
        Fidelity(
            "target", "one expert drawn by the weights, with its own density", "the mean over experts by the weights"
        ),
        Fidelity(
            "temperature",
            "tuned to an entropy of minus the number of dimensions, of the best expert",
            "fixed for all arms, tuned on the bench",
        ),
        Fidelity("router", "linear in the state, besides the network", "an output of the actor's network"),
        Fidelity("greedy play", "still draws the expert, then takes its mean", "the mean of the most probable expert"),
        Fidelity("rewards", "normalized in each batch and multiplied by 10", "as they are"),
        Fidelity("exploration", "no random steps", "1,000 random steps of 8,000, as in SAC"),
        Fidelity("experts", "2 in the code's default", "4"),
        Fidelity(
            "networks",
            "four layers of 512 units (critics: three), batches of 300, learning rate 3e-4, Polyak rate 0.01",
            "two layers of 32 units, batches of 64, Polyak rate 0.005, and the bench's learning rate",
        ),
    ),
    full=Trial(
        arms=_main_arms(LARGE_SAC),
        envs=MUJOCO_ENVS,
        steps=LARGE_STEPS,
        claims=(Superiority(_PMOE, _SAC, final_return()),),
        max_looks=1,
    ),
)
