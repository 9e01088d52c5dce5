"""Bench of trained judges: which of two answers is better, by a principle that follows from the query.

The answers have three grades, of which the query decides which one counts (graded answers,
:mod:`thespis.papers.deepseek_grm_spct.envs`). A generative judge says a principle and a grade for each answer, then its
verdict; it is pretrained on judgments of a teacher who judges by length out of habit, of which those with a wrong
verdict were rejected. The habit prevails: where another principle counts, most of the lessons that remain name the
length, so that the most likely judgment is no better than a sampled one. What is measured is how often verdicts on new
pairs are right: one of them, and the majority of five. What exact reasons are worth is known from a scripted judge.
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

TASK = GradedAnswers(habit=0.75)
"""Where the length does not count, 64% of the lessons that are not rejected name it nevertheless."""
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
SHARPER = dataclasses.replace(AS_PRETRAINED, temperature=0.5)
SUPERVISED_ARM = Arm("supervised judge", with_judge(SHARPER), steps=NUM_ROWS)
"""A judge after supervised learning of the teacher's judgments, at the temperature at which one verdict is best."""
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
    version=2,
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
    tuning="By the accuracy of one verdict and of five votes on 1,000 pairs, on seeds 1,100 to 1,102. The supervised "
    "judge at temperatures of 1, 0.5, 0.25 and 0.05: 0.78 and 0.82, 0.81 and 0.80, 0.79 and 0.77, 0.76 and 0.75; from "
    "0.61 to 0.48 of its principles are right. GRPO for 100 updates, three learning rates: 0.96 and 1.00 with 1e-4, "
    "0.96 and 0.98 with 3e-4, 0.86 and 0.90 with 1e-3. The scripted judges have 1.00 and 0.66. Version 1 had the habit "
    "in half of the judgments: there the most likely lesson was right, and a supervised judge at a temperature of 0.05 "
    "had 0.99 of the verdicts right without any training. Three quarters was the first share that was tried after it. "
    "In the negative control the copy's learning rate is 2% larger: with a ten-thousandth scores of another bench of "
    "this size were often equal.",
    looks=SHORT_LOOKS,
)
