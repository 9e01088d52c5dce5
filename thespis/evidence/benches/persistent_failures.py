"""Bench of persistent failures: tasks at which a policy gradient never sees a right answer of its own.

Derivations of two steps modulo 5 (:mod:`thespis.papers.critique_grpo.envs`), by a model that is pretrained on a
demonstrator that errs at all steps that leave the digits (wraps) in first attempts, and at random in the others. Groups
of answers to a task with wraps are all wrong, and teach nothing. After a critique that names the wrong step the
demonstrator does it right. All arms sample equally many answers, refinements included. What is measured is the exact
probability of the right first answer, over all tasks.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float

from thespis.data.feeds import Episodes
from thespis.envs.text.task import TextEnv
from thespis.evidence.bench import Bench, Headroom, Symptom
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import Measure, untrained_states
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm
from thespis.learners.language.advantage_estimators import GroupMean, TrajectoryReturn
from thespis.learners.language.policy_losses import FixedLength, PolicyGradient
from thespis.methods.language.grpo import GRPO
from thespis.papers.critique_grpo.envs import WrongWraps
from thespis.papers.critique_grpo.measures import first_answer_success, persistent_failure, task_success
from thespis.papers.critique_grpo.refinements import DemonstrationsInGroup, ShapedRefinements

TASK = WrongWraps()
WRAPS = TextEnv(TASK)
WRAPS_ENV = f"{__name__}:WRAPS"
NUM_RESPONSES, NUM_PROMPTS = 128, 8
"""Answers and tasks of an update: of all arms equally many."""
NUM_OFF_POLICY = 4
"""Refinements or demonstrations in a group."""
NUM_UPDATES = 80
STEPS = NUM_UPDATES * NUM_RESPONSES
MODEL: dict[str, Any] = {
    "model": "tiny",
    "num_layers": 2,
    "hidden_size": 64,
    "num_pretrain_steps": 2_000,
    "num_pretrain_dialogues": 16_384,
}
SETTINGS: dict[str, Any] = MODEL | {
    "advantage_estimator": TrajectoryReturn(GroupMean()),
    "loss_reduction": FixedLength(),
    "kl_penalty": None,
}
"""Settings of all arms, those of the paper's code: no deviation, no length, no penalty."""
FIRST_ANSWERS = Episodes(max_steps=1, num_envs=NUM_RESPONSES, group_size=NUM_RESPONSES // NUM_PROMPTS)
REFINED_ANSWERS = Episodes(max_steps=2, num_envs=NUM_RESPONSES // 2, group_size=NUM_RESPONSES // NUM_PROMPTS // 2)
"""First answers alone, or half as many with a refinement of each."""


def untrained_success() -> Measure:
    """Success of first answers before training."""

    def success(run: Any) -> Float[np.ndarray, " seed"]:
        return task_success(run, untrained_states(run)).mean(axis=1)

    return Measure("success of first answers before training", success, bounds=(0.0, 1.0))


SUCCESS, FAILURE = first_answer_success(), persistent_failure()
ON_FIRST_ANSWERS = GRPO(**SETTINGS, feed=FIRST_ANSWERS, minibatch_size=NUM_RESPONSES // 4, learning_rate=2e-4)
_COPY = dataclasses.replace(ON_FIRST_ANSWERS, learning_rate=2.02e-4)
WITH_DEMONSTRATIONS = dataclasses.replace(
    ON_FIRST_ANSWERS,
    rollout_transform=DemonstrationsInGroup(TASK, NUM_OFF_POLICY),
    objective=ShapedRefinements(),
    minibatch_size=(NUM_RESPONSES + NUM_PROMPTS * NUM_OFF_POLICY) // 4,
)
"""The right answer in each group, as in LUFFY (Yan et al. 2025)."""
_BY_LIKELIHOOD = dataclasses.replace(WITH_DEMONSTRATIONS, objective=PolicyGradient())
"""The same by maximum likelihood, whose gradient is as large for unlikely tokens as for likely ones."""
GRPO_ARM = Arm("GRPO on first answers", ON_FIRST_ANSWERS)
DEMONSTRATIONS_ARM = Arm("demonstrations in the group", WITH_DEMONSTRATIONS)
LIKELIHOOD_ARM = Arm("demonstrations by likelihood", _BY_LIKELIHOOD)

BENCH = Bench(
    name="persistent-failures",
    version=1,
    summary="Sums of two steps, of which three tenths are always answered wrongly, except after a critique: what is "
    "learned where no answer of a group is right.",
    envs=(WRAPS_ENV,),
    steps=STEPS,
    num_episodes=20,
    arms=(GRPO_ARM, Arm("GRPO on first answers again", _COPY), DEMONSTRATIONS_ARM, LIKELIHOOD_ARM),
    positive=Comparison(DEMONSTRATIONS_ARM.name, GRPO_ARM.name, SUCCESS),
    negative=Comparison(GRPO_ARM.name, "GRPO on first answers again", SUCCESS),
    headroom=Headroom(GRPO_ARM.name, LIKELIHOOD_ARM.name, SUCCESS, untrained_success()),
    symptoms=(Symptom(GRPO_ARM.name, FAILURE, 0.15),),
    tuning="By the exact success of first answers on seeds 1,100 and 1,101; before training it is 0.292, 0.422 in "
    "tasks without wraps and 0.0001 in those with. GRPO on first answers: 0.673 and 0.651 with a learning rate "
    "of 3e-4 and 40 updates, 0.235 and 0.020 with 1e-3, where it collapsed, and 0.690 and 0.672 with 2e-4 and "
    "80 updates. With refinements, one in a group of nine: 0.676 and 0.535, 0.042 and 0.028, where they "
    "collapsed, too, and 0.630 and 0.686; four in a group of twelve, with 2e-4 and 80 updates: 0.756 and "
    "0.708. So all have 2e-4 and 80 updates, and demonstrations have four copies in a group. They were not "
    "looked at to the end before the check. Of that, a first run was refused: with them as the best known GRPO "
    "had come 86% of the way, as the shaped gradient is small for unlikely tokens; demonstrations by "
    "likelihood took their place there, without another look, and all else stayed. Another task was looked at "
    "before and not kept: all chains of two steps, of which additions with a carry were wrong, so that most "
    "tasks with one had a single wrong step. There GRPO came to 0.990 and 0.989 with 3e-4 and 100 updates "
    "(0.774 and 0.610 with 1e-3), as one right answer by chance was enough to mend all of them: a step alone "
    "was right in 0.0007 of the cases before training. With two wrong steps in a task that is rare.",
    looks=plan_looks((10,)),
)
