"""Bench of trained judges: which of two answers is better, by a principle that follows from the query.

The answers have three grades, of which the query decides which one counts (graded answers,
:mod:`thespis.papers.deepseek_grm_spct.envs`). A generative judge says a principle and a grade for each answer, then its
verdict; it is pretrained on judgments of a teacher who judges by length out of habit, of which those with a wrong
verdict were rejected. What is measured is how often verdicts on new pairs are right: one of them, and the majority of
five. What exact reasons are worth is known from a scripted judge.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from thespis.core.spaces import END
from thespis.data.feeds import Episodes
from thespis.envs.text.conversation import ConversationEnv
from thespis.envs.text.judging import FIRST, JUDGE, SECOND
from thespis.evidence.bench import Bench, Headroom, Symptom
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import learning_curve_auc
from thespis.evidence.paired_verdict import SHORT_LOOKS
from thespis.evidence.paper import Arm
from thespis.learners.language.scripted_seat import ScriptedSeat
from thespis.learners.multi_agent.cast import Cast
from thespis.methods.language.grpo import GRPO
from thespis.papers.deepseek_grm_spct.envs import HABIT, PRINCIPLES, GradedAnswers, RejectiveLessons
from thespis.papers.deepseek_grm_spct.measures import chance, judge_accuracy, verdict_error

TASK = GradedAnswers()
REASONED_PAIRS = ConversationEnv(RejectiveLessons(TASK, max_verdict_tokens=6, demonstrates_reasons=True))
"""Judgments are reasons and a verdict."""
DIRECT_PAIRS = ConversationEnv(RejectiveLessons(TASK))
"""Judgments are verdicts alone."""
REASONED_PAIRS_ENV, DIRECT_PAIRS_ENV = f"{__name__}:REASONED_PAIRS", f"{__name__}:DIRECT_PAIRS"
NUM_ROWS, NUM_UPDATES = 64, 100
STEPS = NUM_UPDATES * NUM_ROWS
MODEL: dict[str, Any] = {
    "model": "tiny",
    "num_layers": 2,
    "hidden_size": 64,
    "num_pretrain_steps": 1_500,
    "num_pretrain_dialogues": 16_384,
}
FEED = Episodes(max_steps=1, group_size=8, num_envs=NUM_ROWS)


class ScriptedJudge(ScriptedSeat):
    """Scripted judge of graded answers: by the principle that counts, or always by length; it never learns.

    Of equal grades the first answer is preferred.
    """

    principles: Literal["right", "habit"] = eqx.field(static=True, default="right")
    feed: Episodes = eqx.field(static=True, default=FEED, kw_only=True)

    name: ClassVar[str] = "scripted-judge"
    learns: ClassVar[bool] = True  # so that a run can consist of it alone

    def respond(self, transcripts: Int[Array, "row length"], key: Key[Array, ""]) -> Int[Array, "row 6"]:
        """A judgment of each transcript, ``2 1 first 3 1 4 second 0 2 1 >``."""
        rules: Any = REASONED_PAIRS.rules
        words = rules.vocabulary.words
        zero, principle = words.index("0"), words.index(PRINCIPLES[0])
        query = transcripts[:, :2] - zero
        named = query.sum(axis=1) % len(PRINCIPLES) if self.principles == "right" else jnp.full(len(query), HABIT)
        answers = jnp.stack([transcripts[:, 3:6], transcripts[:, 7:10]], axis=1) - zero
        grades = jnp.take_along_axis(answers, named[:, None, None], axis=2)[..., 0]
        first, second, end = (words.index(word) for word in (FIRST, SECOND, END))
        verdict = jnp.where(grades[:, 1] > grades[:, 0], second, first)
        columns = (named + principle, grades[:, 0] + zero, named + principle, grades[:, 1] + zero, verdict)
        return jnp.stack([*columns, jnp.full_like(verdict, end)], axis=1)


def with_judge(judge: Any) -> Any:
    """The cast of a judge alone."""
    return Cast({JUDGE: judge})


ACCURACY = judge_accuracy()
TRAINED = GRPO(**MODEL, feed=FEED, learning_rate=3e-4)
"""A judge that is trained by GRPO for right verdicts."""
_COPY = dataclasses.replace(TRAINED, learning_rate=3.06e-4)
AS_PRETRAINED = dataclasses.replace(TRAINED, learning_rate=0.0)
SUPERVISED_ARM = Arm("supervised judge", with_judge(AS_PRETRAINED), steps=NUM_ROWS)
"""A judge after supervised learning of the teacher's judgments, of which wrong verdicts were rejected."""
TRAINED_ARM = Arm("trained judge", with_judge(TRAINED))
DIRECT_SUPERVISED_ARM = Arm(
    "supervised judge without reasons", with_judge(AS_PRETRAINED), env=DIRECT_PAIRS_ENV, steps=NUM_ROWS
)
"""A judge that says a verdict at once, after supervised learning of right verdicts."""
DIRECT_TRAINED_ARM = Arm("trained judge without reasons", with_judge(TRAINED), env=DIRECT_PAIRS_ENV)
EXACT_ARM = Arm("exact reasons", with_judge(ScriptedJudge("right")), steps=NUM_ROWS)
HABIT_ARM = Arm("judge by length", with_judge(ScriptedJudge("habit")), steps=NUM_ROWS)

BENCH = Bench(
    name="trained-judges",
    version=1,
    summary="Answers with three grades, of which the query decides which one counts, and a judge whose lessons go by "
    "length out of habit: how often its verdicts on new pairs are right, one of them and the majority of five.",
    envs=(REASONED_PAIRS_ENV,),
    steps=STEPS,
    num_episodes=20,
    arms=(
        SUPERVISED_ARM,
        TRAINED_ARM,
        Arm("trained judge again", with_judge(_COPY)),
        EXACT_ARM,
        HABIT_ARM,
    ),
    positive=Comparison(EXACT_ARM.name, HABIT_ARM.name, ACCURACY),
    negative=Comparison(TRAINED_ARM.name, "trained judge again", learning_curve_auc()),
    headroom=Headroom(SUPERVISED_ARM.name, EXACT_ARM.name, ACCURACY, chance()),
    symptoms=(Symptom(SUPERVISED_ARM.name, verdict_error(), 0.1),),
    tuning="By the accuracy of one verdict and of five votes on 1,000 pairs, on seeds 1,100 and 1,101. The supervised "
    "judge: 0.84 and 0.91, with 0.74 of its principles right; without reasons, from right verdicts alone, 0.66 and "
    "0.71. GRPO for 100 updates, two trials: 0.98 and 1.00 with a learning rate of 3e-4, and 0.84 and 0.87 with 1e-3, "
    "where 0.90 of the principles are right but verdicts no longer follow from the grades. The scripted judges have "
    "1.00 and 0.66. The share of judgments out of habit, the noise of grades and the number of samples that can be "
    "rejected were the first that were tried. In the negative control the copy's learning rate is 2% larger: with a "
    "ten-thousandth scores of another bench of this size were often equal.",
    looks=SHORT_LOOKS,
)
