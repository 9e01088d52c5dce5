"""Conversation with a debate: two debaters argue for two answers to a task of one turn, and a judge decides.

Each debater has an answer to defend, right or wrong. In turn they say what they have against the other's answer. The
judge reads their arguments, with the task and the answers or without them, and prefers one of the answers. The debaters
play a zero-sum game for the judge's verdict. Source: Irving et al. 2018, "AI safety via debate", arXiv:1805.00899.
Differs: the debaters do not choose their answers, and the judge learns in the same conversation.
"""

from __future__ import annotations

from typing import Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.core.errors import UserError
from thespis.core.spaces import Vocabulary
from thespis.envs.text.conversation import ConversationSpec, ConversationStep, EpisodeShare, SeatSpec, pad_tokens
from thespis.envs.text.critique import CriticDemonstrator
from thespis.envs.text.judging import FIRST, JUDGE, SECOND, JudgedConversation, JudgedState
from thespis.envs.text.task import RESPONSE_CUE, Task, changed_fields, cut_at_eos, pack_tokens
from thespis.runtime.keys import fold


class DebateState(eqx.Module):
    """State of a debate: the pair of answers and the verdict, and the arguments so far, padded with -1."""

    judged: JudgedState
    arguments: Int[Array, "*episodes argument token"]


class DebateConversation(eqx.Module):
    """Conversation of two debaters and a judge about two answers to a task of one turn, each defended by a debater.

    The judge earns 1 for preferring an answer that is not worse than the other, a debater 1 if the judge prefers its
    answer and -1 if it prefers the other. ``num_rounds``: arguments of each debater. ``max_argument_tokens``: tokens of
    one, its end token included. ``judge_reads``: the task, the answers and the arguments (``all``), or the
    ``arguments`` alone, so that it has to be convinced. ``judge_noise``: the share of demonstrated verdicts that are
    random.
    """

    task: Task
    num_rounds: int = eqx.field(static=True, default=1)
    max_argument_tokens: int = eqx.field(static=True, default=3)
    judge_reads: Literal["all", "arguments"] = eqx.field(static=True, default="all")
    judge_noise: float = 0.0

    def __check_init__(self):
        """Raise ``ValueError`` for a task of several turns, and for no argument."""
        _ = self.pairs
        if self.num_rounds < 1:
            raise ValueError(f"num_rounds={self.num_rounds}: at least 1")

    @property
    def pairs(self) -> JudgedConversation:
        """The conversation about the same pairs without debaters."""
        return JudgedConversation(self.task, judge_noise=self.judge_noise)

    @property
    def vocabulary(self) -> Vocabulary:
        """The words of the task, and those of a verdict."""
        return self.pairs.vocabulary

    @property
    def conversation_spec(self) -> ConversationSpec:
        """The debaters, called by the place of the answer that they defend, and the judge."""
        spec = self.task.task_spec
        settings = changed_fields(self.task) + changed_fields(self, ignored=("task",))
        judge = self.pairs.conversation_spec.seats[0]
        size, argument = judge.max_opening_tokens, self.max_argument_tokens
        debate = 2 * self.num_rounds * (argument + 1) + 1
        report = debate + (size if self.judge_reads == "all" else 0)
        seats = (
            *(SeatSpec(name, size, argument + 2, argument) for name in (FIRST, SECOND)),
            SeatSpec(JUDGE, 0, report, judge.max_response_tokens),
        )
        schedule = (*(FIRST, SECOND) * self.num_rounds, JUDGE)
        return ConversationSpec(
            f"text:debated-{spec.name.removeprefix('text:')}{settings}", self.vocabulary, seats, schedule
        )

    def init(self, key: Key[Array, ""]) -> tuple[DebateState, dict[str, Int[Array, " opening"]]]:
        """A task and two answers for both debaters; the judge waits."""
        judged, openings = self.pairs.init(key)
        arguments = jnp.full((2 * self.num_rounds, self.max_argument_tokens), -1, "int32")
        text = openings[JUDGE]
        return DebateState(judged, arguments), {FIRST: text, SECOND: text, JUDGE: -jnp.ones(1, "int32")}

    def step(
        self, state: DebateState, turn: Int[Array, ""], response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[DebateState, ConversationStep]:
        """An argument goes to the other debater, the last one with all others to the judge, whose verdict ends it."""
        count = 2 * self.num_rounds
        is_argument, is_last = turn < count, turn == count - 1
        argument = cut_at_eos(self.task.task_spec, pad_tokens(response, self.max_argument_tokens))[0]
        arguments = jnp.where(is_argument, state.arguments.at[turn].set(argument), state.arguments)
        judged, result = self.pairs.step(state.judged, jnp.zeros((), "int32"), response, key)
        next_state = DebateState(judged, arguments)
        next_state = eqx.tree_at(
            lambda s: s.judged.verdict, next_state, jnp.where(is_argument, state.judged.verdict, judged.verdict)
        )
        verdict = judged.verdict
        won = jnp.where(verdict < 0, 0.0, 1.0 - 2.0 * verdict)
        rewards = {FIRST: won, SECOND: -won, JUDGE: result.rewards[JUDGE]}
        words = jnp.asarray([self.vocabulary.words.index(word) for word in (FIRST, SECOND)])
        cue = self.task.task_spec.encode(RESPONSE_CUE)
        to_other = pack_tokens(self.max_argument_tokens + 2, words[turn % 2], argument, cue)
        to_judge = self._report(next_state)
        messages = {
            FIRST: jnp.where(is_argument & (turn % 2 == 1) & ~is_last, to_other, -1),
            SECOND: jnp.where(is_argument & (turn % 2 == 0), to_other, -1),
            JUDGE: jnp.where(is_last, to_judge, -1),
        }
        return next_state, ConversationStep(
            {name: message.astype("int32") for name, message in messages.items()},
            {name: jnp.where(is_argument, 0.0, earned) for name, earned in rewards.items()},
            ~is_argument,
        )

    def report_card(self, state: DebateState, rewards: dict[str, Float[Array, " turn"]]) -> tuple[EpisodeShare, ...]:
        """What is reported of a judge without a debate, so that the two can be compared."""
        return self.pairs.report_card(state.judged, rewards)

    def demonstrator_response(
        self, state: DebateState, turn: Int[Array, ""], key: Key[Array, ""]
    ) -> Int[Array, " response"]:
        """An honest critique of the other's answer, or the verdict.

        Raises ``UserError`` for a task without critiques.
        """
        task, judged = self.task, state.judged
        if not isinstance(task, CriticDemonstrator):
            raise UserError(
                f"the demonstrator of {task.task_spec.name} gives no critiques: --model blank or a checkpoint"
            )
        width = max(self.max_argument_tokens, self.pairs.max_verdict_tokens)
        other = jnp.where(judged.is_first, 1 - turn % 2, turn % 2)
        critique = task.demonstrator_critique(judged.task_state, judged.answers[other], fold(key, "critique"))
        verdict = self.pairs.demonstrator_response(judged, jnp.zeros((), "int32"), key)
        is_argument = turn < 2 * self.num_rounds
        return jnp.where(is_argument, pad_tokens(critique, width), pad_tokens(verdict, width)).astype("int32")

    def _report(self, state: DebateState) -> Int[Array, " message"]:
        """What the judge reads: the task and the answers unless it reads arguments alone, and all arguments."""
        seat, vocabulary = self.conversation_spec.seats[-1], self.vocabulary
        cue = self.task.task_spec.encode_word(RESPONSE_CUE)
        parts = []
        if self.judge_reads == "all":
            text = self.pairs.to_judge(state.judged)
            parts = [jnp.where(text == cue, -1, text)]
        for i, argument in enumerate(state.arguments):
            parts += [jnp.asarray(vocabulary.words.index((FIRST, SECOND)[i % 2])), argument]
        return pack_tokens(seat.max_message_tokens, *parts, cue).astype("int32")
