"""Causality-aware entropy, and resets by dormancy of gradients."""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Float

from thespis.core.records import Citation
from thespis.envs.compiled.reacher import JOINTS
from thespis.evidence.claims import AtLeast, Better
from thespis.evidence.control import LARGE_SAC, LONG, ROBOTS, SMALL_SAC, STEPS
from thespis.evidence.measures import Measure, final_return, learning_area
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.learners.entropies import CausalEntropy, Causes
from thespis.learners.resets import Dormancy
from thespis.methods.online.sac import SAC
from thespis.trained import Run


def _more_weight() -> Measure:
    def of(run: Run) -> Float[np.ndarray, " seed"]:
        found = run.states.entropy
        if not isinstance(found, Causes):
            return np.zeros(len(run.config["seeds"]))  # all count alike
        weights = np.asarray(found.weights, np.float64)
        return weights[:, :JOINTS].mean(axis=1) - weights[:, JOINTS:].mean(axis=1)

    return Measure("weight of the actions that count less that of the others", of)


def _arms(sac: SAC, entropy: CausalEntropy, reset: Dormancy) -> tuple[Arm, ...]:
    return (
        Arm("ACE", dataclasses.replace(sac, entropy=entropy, reset=reset)),
        Arm("causal entropy", dataclasses.replace(sac, entropy=entropy)),
        Arm("resets", dataclasses.replace(sac, reset=reset)),
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
    does="Soft actor-critic that is paid for the randomness of each of its action's numbers by how much this number "
    "causes reward, and whose nets are blended with fresh ones the more neurons get no gradient.",
    claim="More return than model-free rivals, SAC among them, in 29 tasks of continuous control.",
    parts=(
        "thespis.learners.entropies:CausalEntropy",
        "thespis.objectives.causes:effects_on_last",
        "thespis.learners.resets:Dormancy",
        "thespis.methods.online.sac:SAC",
    ),
    use="thespis train sac --env Pendulum-v1 --set entropy=CausalEntropy reset=Dormancy",
    miniature=Trial(
        arms=_arms(SMALL_SAC, CausalEntropy(every=1_000, samples=2_000), Dormancy(every=5_000)),
        envs=("thespis.evidence.control:PADDED",),
        steps=STEPS,
        claims=(
            Better("ACE", "SAC", final_return()),
            Better("ACE", "SAC", learning_area()),
            Better("ACE", "causal entropy", final_return()),
            Better("ACE", "resets", final_return()),
            AtLeast("causal entropy", _more_weight(), 0.0),
        ),
    ),
    remarks="A reacher of two joints with eight more numbers in its action that do nothing stands for 29 tasks: where"
    " all numbers count alike the weights would have nothing to say. Looks for causes and resets are ten to "
    "twenty times as frequent as in the paper, as is fit for a run that is fifty times as short. Steps of "
    "actor and targets are made at every update, in the authors' code at every second; the nets are small, "
    "theirs have three layers of 1024. In ten seeds ACE ends above SAC, but so do both of its halves, and "
    "none is told from another. The weights it finds differ by five hundredths at most: a torque changes the "
    "distance to the target in a direction that depends on where the arm is, so that on average there is no "
    "linear effect of one number of the action on reward, which is all that is looked for, whereas in "
    "locomotion reward is a velocity that torques push one way. Without weights, causal entropy is a plain "
    "one; what its arm gains over SAC's is then likely luck.",
    full=Trial(
        arms=_arms(LARGE_SAC, CausalEntropy(), Dormancy()),
        envs=ROBOTS,
        steps=LONG,
        claims=(Better("ACE", "SAC", final_return()),),
        looks=1,
    ),
)
