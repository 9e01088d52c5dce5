"""Bench of second tries: a frozen actor that follows hints, and a reflector that has to learn which hint to write.

The hidden-rule task (:mod:`thespis.envs.text.hidden_rule`) as a conversation of actor and reflector. Both are models of
their own, pretrained on responses of their own seat: the actor obeys hints, and three tenths of the hints that the
reflector has seen are random. What is measured is the success of the second tries. What the best hint is worth to an
actor that obeys is known exactly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from thespis.core.spaces import END
from thespis.data.feeds import Episodes
from thespis.envs.text.conversation import ConversationEnv
from thespis.envs.text.hidden_rule import RULES, HiddenRule
from thespis.envs.text.retry import ACTOR, REFLECTOR, RetryConversation
from thespis.envs.text.task import DIGITS
from thespis.evaluation.retry_report import report_on_retries
from thespis.evidence.bench import Bench, Headroom, Symptom
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import Measure, learning_curve_auc
from thespis.evidence.paired_verdict import SHORT_LOOKS
from thespis.evidence.paper import Arm
from thespis.learners.language.frozen_model import FrozenModel
from thespis.learners.language.scripted_seat import ScriptedSeat
from thespis.learners.multi_agent.cast import Cast
from thespis.methods.language.ppo_lm import LanguagePPO

TASK = HiddenRule(base=5, demonstrator_noise=1.0, critic_noise=0.3)
"""Three different digits of five; demonstrations fail at first, and three tenths of their hints are random."""
_RULES = RetryConversation(TASK, max_reflection_tokens=2)
SECOND_TRIES = ConversationEnv(_RULES)
SECOND_TRIES_ENV = f"{__name__}:SECOND_TRIES"
NUM_ROWS = 64
NUM_UPDATES = 100
NUM_TURNS = 3
NUM_PLAYED = 1_000
MODEL: dict[str, Any] = {"model": "tiny", "num_layers": 2, "hidden_size": 64, "num_pretrain_steps": 1_000}
FEED = Episodes(max_steps=NUM_TURNS, num_envs=NUM_ROWS)
STEPS = NUM_UPDATES * NUM_ROWS * NUM_TURNS


class ScriptedReflector(ScriptedSeat):
    """Scripted reflector of the hidden-rule task: it writes the best hint, a random one, or nothing, and never learns.

    The best hint is the one that is right most often, by Bayes' rule, after what the reflector reads.
    """

    hints: Literal["best", "random", "none"] = eqx.field(static=True, default="best")
    feed: Episodes = eqx.field(static=True, default=FEED, kw_only=True)

    name: ClassVar[str] = "scripted-reflector"
    learns: ClassVar[bool] = True  # so that a run can consist of it alone

    def respond(self, transcripts: Int[Array, "row length"], key: Key[Array, ""]) -> Int[Array, "row 2"]:
        """A hint for each transcript."""
        accuracies = jax.vmap(_hint_accuracies)(transcripts)
        noise = jax.random.uniform(key, accuracies.shape)
        rule = jnp.argmax(noise + (jnp.round(accuracies, 4) * 1e3 if self.hints == "best" else 0.0), axis=1)
        word, end = TASK.task_spec.encode_word(RULES[0]), TASK.task_spec.encode_word(END)
        if self.hints == "none":
            return jnp.tile(jnp.asarray([end, -1]), (len(transcripts), 1))
        return jnp.stack([word + rule, jnp.full_like(rule, end)], axis=1)


def _hint_accuracies(transcript: Int[Array, " length"]) -> Float[Array, " rule"]:
    """How often each hint is right, for a reflector that has read ``4 2 7 2 more >``."""
    count, zero = TASK.num_digits, TASK.task_spec.encode_word(DIGITS[0])
    is_digit = (transcript >= zero) & (transcript < zero + len(DIGITS))
    answer = jnp.where(is_digit[count], transcript[count] - zero, -1)
    feedback = jnp.where(is_digit[count], transcript[count + 1], -1)
    return TASK.hint_accuracies(transcript[:count] - zero, answer, feedback)


def with_reflector(reflector: Any) -> Any:
    """The cast of the frozen actor and a reflector."""
    return Cast({ACTOR: FrozenModel(**MODEL), REFLECTOR: reflector})


def second_try_success() -> Measure:
    """Share of the second tries that succeed, of a thousand sampled conversations for each seed."""
    return Measure("success of second tries", lambda run: _success(run, SECOND_TRIES), bounds=(0.0, 1.0))


def random_hint_success() -> Measure:
    """The same where hints are random, any of the rules or none, in place of the reflector's own."""
    env = _scripted_hints(1.0)
    return Measure("success of second tries after random hints", lambda run: _success(run, env, [REFLECTOR]))


def obedience() -> Measure:
    """The same where hints name the hidden rule: what is missing to 1 is what the actor does not do as it is told."""
    env = _scripted_hints(0.0)
    return Measure(
        "success of second tries after the hidden rule as a hint", lambda run: _success(run, env, [REFLECTOR])
    )


def second_try_failure() -> Measure:
    """Share of the second tries that fail: lower is better."""
    name = "failure of second tries"
    return Measure(name, lambda run: 1.0 - _success(run, SECOND_TRIES), False, bounds=(0.0, 1.0))


def _scripted_hints(critic_noise: float) -> ConversationEnv:
    """The conversation with other hints of the demonstrator."""
    return ConversationEnv(dataclasses.replace(_RULES, task=dataclasses.replace(TASK, critic_noise=critic_noise)))


def _success(run: Any, env: ConversationEnv, scripted: Sequence[str] = ()) -> Float[np.ndarray, " seed"]:
    report = report_on_retries(env, run.method, run.states, NUM_PLAYED, scripted, run.config["seeds"])
    return report.retry_success


SUCCESS = second_try_success()
TRAINED = LanguagePPO(**MODEL, feed=FEED, learning_rate=1e-3)
"""A reflector that is trained by PPO on the gain of the second try."""
_COPY = dataclasses.replace(TRAINED, learning_rate=1.0001e-3)
_AS_PRETRAINED = LanguagePPO(**MODEL, feed=FEED, learning_rate=0.0)
_ONE_UPDATE = NUM_ROWS * NUM_TURNS
FROZEN_ARM = Arm("frozen reflector", with_reflector(_AS_PRETRAINED), steps=_ONE_UPDATE)
"""A reflector as it was pretrained, as in Reflexion (Shinn et al., 2023)."""
BEST_HINTS_ARM = Arm("best hints", with_reflector(ScriptedReflector(hints="best")), steps=_ONE_UPDATE)
RANDOM_HINTS_ARM = Arm("random hints", with_reflector(ScriptedReflector(hints="random")), steps=_ONE_UPDATE)
BLIND_RETRY_ARM = Arm("blind retry", with_reflector(ScriptedReflector(hints="none")), steps=_ONE_UPDATE)
TRAINED_ARM = Arm("trained reflector", with_reflector(TRAINED))

BENCH = Bench(
    name="second-tries",
    version=1,
    summary="A hidden rule picks one of three digits, and a wrong answer is followed by whether the right one is "
    "larger or smaller: what reflections on the failed attempt are worth to a frozen actor that does as it is told.",
    envs=(SECOND_TRIES_ENV,),
    steps=STEPS,
    num_episodes=20,
    arms=(
        FROZEN_ARM,
        TRAINED_ARM,
        Arm("trained reflector again", with_reflector(_COPY)),
        BEST_HINTS_ARM,
        BLIND_RETRY_ARM,
    ),
    positive=Comparison("best hints", "blind retry", SUCCESS),
    negative=Comparison("trained reflector", "trained reflector again", learning_curve_auc()),
    headroom=Headroom("frozen reflector", "best hints", SUCCESS, random_hint_success()),
    symptoms=(Symptom("frozen reflector", second_try_failure(), 0.3),),
    tuning="By the success of second tries after 100 updates on seeds 1,100 and 1,101. PPO: 0.858 with a learning "
    "rate of 1e-3 and 0.781 with 3e-4. Maximum likelihood of the own reflections that worked, with two epochs: 0.855 "
    "with 1e-3 and 0.857 with 3e-4. The frozen reflector has 0.634, and random hints 0.431. With half of the "
    "demonstrated hints random, which was looked at before and not kept, the frozen reflector had 0.545 where the "
    "best hints have 0.836, a third of the way from random ones (0.422), PPO 0.839, and no hint 0.424; there the "
    "actor named the right digit in 0.992 of the cases in which the hint was the hidden rule. With an actor that "
    "always obeys, and random wrong answers at first, the best hint is right in 5 of 6 cases and a random one in 5 of "
    "12. With the success of second tries as the measure of the negative control, two of ten scores were equal, as "
    "both arms play the same first attempts; the area under the learning curve took its place, and the other controls "
    "stayed as they were.",
    looks=SHORT_LOOKS,
)
