"""Conversation with a judge: it reads two answers to a task of one turn, and says which is better.

A generative judge may give reasons before its verdict: a response is any words, of which the last is ``first`` or
``second``. Which answer comes first is random, so that a judge that always prefers one place is right in half of the
pairs (Zheng et al. 2023, "Judging LLM-as-a-judge with MT-Bench and Chatbot Arena", arXiv:2306.05685, on position bias).
"""

from __future__ import annotations

from typing import Literal, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.spaces import Vocabulary, word_vocabulary
from thespis.envs.text.conversation import (
    ConversationSpec,
    ConversationStep,
    EpisodeShare,
    SeatSpec,
    check_one_turn,
    pad_tokens,
    without_cue,
)
from thespis.envs.text.critique import SOLVER, CriticDemonstrator, HasCritiqueJudgments
from thespis.envs.text.task import RESPONSE_CUE, Task, changed_fields, cut_at_eos, pack_tokens
from thespis.runtime.keys import fold, indexed_keys

JUDGE = "judge"
FIRST, SECOND = "first", "second"
"""Verdicts, and the words before the answers."""
NUM_CANDIDATES = 6
"""Demonstrated answers among which one is looked for that differs in reward from the first."""

PREFERS_FIRST, PREFERS_WORSE = "the first answer preferred", "worse answers of the solver preferred"
MAX_PLACE_BIAS, MAX_WORSE_PREFERRED = 0.3, 0.6
"""How far a judge's share of verdicts for the first answer may be from a half, and what it may prefer wrongly."""


@runtime_checkable
class ReasonsInCritiques(CriticDemonstrator, HasCritiqueJudgments, Protocol):
    """Task whose critiques of an answer can be demonstrated, and read."""


class JudgedState(eqx.Module):
    """State of a conversation: that of the task, its first message, both answers, their rewards, and the verdict.

    ``is_first``: whether the solver's answer, or the first that was demonstrated, comes first.
    """

    task_state: PyTree
    opening: Int[Array, "*episodes opening"]
    answers: Int[Array, "*episodes 2 response"]
    rewards: Float[Array, "*episodes 2"]
    verdict: Int[Array, "*episodes"]
    is_first: Bool[Array, "*episodes"]


class JudgedConversation(eqx.Module):
    """Conversation with a judge, which reads a task of one turn and two answers to it, and says which is better.

    The judge earns 1 for naming an answer that has no smaller reward than the other, else 0.

    ``answers``: both are demonstrated, and differ in their rewards if that can be; or one of them is the ``solver``'s,
    which answers first. ``solver_reward``: it earns the reward of the task, or 1 if the judge prefers its answer
    (``verdict``). ``max_verdict_tokens``: tokens of a response of the judge, reasons and end token included.
    ``demonstrates_reasons``: the demonstrator gives critiques of both answers before its verdict, which follows from
    them. ``judge_noise``: the share of its verdicts that are random. ``is_swapped``: the same pairs, in the other
    order.
    """

    task: Task
    answers: Literal["demonstrator", "solver"] = eqx.field(static=True, default="demonstrator")
    solver_reward: Literal["task", "verdict"] = eqx.field(static=True, default="task")
    max_verdict_tokens: int = eqx.field(static=True, default=2)
    demonstrates_reasons: bool = eqx.field(static=True, default=False)
    judge_noise: float = 0.0
    is_swapped: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        """Raise ``ValueError`` for a task of several turns, and for reasons that a task cannot demonstrate."""
        spec = self.task.task_spec
        check_one_turn(spec, "answers to a task of one turn can be judged")
        if self.demonstrates_reasons and not isinstance(self.task, ReasonsInCritiques):
            raise ValueError(f"{spec.name} has no critiques to demonstrate as reasons: demonstrates_reasons=False")

    @property
    def vocabulary(self) -> Vocabulary:
        """The words of the task, and those of a verdict."""
        words = self.task.task_spec.vocabulary.words
        return word_vocabulary([*words[3:], FIRST, SECOND])  # the first three are special

    @property
    def conversation_spec(self) -> ConversationSpec:
        """The judge, and before it the solver if it answers."""
        spec = self.task.task_spec
        settings = changed_fields(self.task) + changed_fields(self, ignored=("task",))
        name = f"text:judged-{spec.name.removeprefix('text:')}{settings}"
        size = spec.max_opening_tokens + 2 * spec.max_response_tokens + 2
        judge = SeatSpec(JUDGE, size, 0, self.max_verdict_tokens)
        if self.answers == "demonstrator":
            return ConversationSpec(name, self.vocabulary, (judge,), (JUDGE,))
        solver = SeatSpec(SOLVER, spec.max_opening_tokens, 0, spec.max_response_tokens)
        judge = SeatSpec(JUDGE, 0, size, self.max_verdict_tokens)
        return ConversationSpec(name, self.vocabulary, (solver, judge), (SOLVER, JUDGE))

    def init(self, key: Key[Array, ""]) -> tuple[JudgedState, dict[str, Int[Array, " opening"]]]:
        """A task for the solver, or a task and two answers for the judge."""
        task_state, opening = self.task.init(key)
        answers, rewards = self._demonstrated_pair(task_state, fold(key, "answers"))
        is_first = jax.random.bernoulli(fold(key, "order")) ^ self.is_swapped
        state = JudgedState(task_state, opening.astype("int32"), answers, rewards, jnp.int32(-1), is_first)
        if self.answers == "solver":
            return state, {SOLVER: opening, JUDGE: -jnp.ones(1, "int32")}
        return state, {JUDGE: self.to_judge(state)}

    def step(
        self, state: JudgedState, turn: Int[Array, ""], response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[JudgedState, ConversationStep]:
        """The solver's answer takes the place of a demonstrated one; the verdict ends the episode."""
        is_answer = (turn == 0) if self.answers == "solver" else jnp.zeros((), bool)
        answer = pad_tokens(response, self.task.task_spec.max_response_tokens)
        reward = self.task.step(state.task_state, answer, fold(key, "task"))[1].reward
        verdict = self.read_verdict(pad_tokens(response, self.max_verdict_tokens))
        next_state = JudgedState(
            state.task_state,
            state.opening,
            jnp.where(is_answer, state.answers.at[0].set(answer), state.answers),
            jnp.where(is_answer, state.rewards.at[0].set(reward), state.rewards),
            jnp.where(is_answer, state.verdict, verdict),
            state.is_first,
        )
        is_right, prefers = self.is_right(next_state), self._preferred(next_state) == 0
        earned = next_state.rewards[0] if self.solver_reward == "task" else prefers.astype("float32")
        rewards = {JUDGE: is_right.astype("float32"), SOLVER: earned}
        messages = {JUDGE: self.to_judge(next_state), SOLVER: -jnp.ones(1, "int32")}
        names = [seat.name for seat in self.conversation_spec.seats]
        return next_state, ConversationStep(
            {name: jnp.where(is_answer, messages[name], -1) for name in names},
            {name: jnp.where(is_answer, 0.0, rewards[name]) for name in names},
            ~is_answer,
        )

    def read_verdict(self, response: Int[Array, " response"]) -> Int[Array, ""]:
        """The place that a response prefers, by its last word: 0 or 1, -1 for none."""
        words, length = cut_at_eos(self.task.task_spec, response)
        names = jnp.asarray([self.vocabulary.words.index(word) for word in (FIRST, SECOND)])
        is_named = (words[jnp.maximum(length - 1, 0)] == names) & (length > 0)
        return jnp.where(is_named.any(), jnp.argmax(is_named), -1).astype("int32")

    def is_right(self, state: JudgedState) -> Bool[Array, ""]:
        """Whether the verdict names an answer that has no smaller reward than the other."""
        preferred = self._preferred(state)
        return (preferred >= 0) & (state.rewards[preferred] >= state.rewards.max())

    def report_card(self, state: JudgedState, rewards: dict[str, Float[Array, " turn"]]) -> tuple[EpisodeShare, ...]:
        """How often the judge is right where the answers differ, which place it prefers, and whether it decides."""
        differs, always = state.rewards[0] != state.rewards[1], jnp.ones((), bool)
        shares = [
            EpisodeShare("verdicts that are right, of answers that differ", self.is_right(state), differs),
            EpisodeShare(PREFERS_FIRST, state.verdict == 0, state.verdict >= 0),
            EpisodeShare("no verdict", state.verdict < 0, always),
        ]
        if self.answers == "solver":
            preferred = self._preferred(state)
            is_worse = state.rewards[0] < state.rewards[1]
            shares += [
                EpisodeShare("the solver's answer preferred", preferred == 0, preferred >= 0),
                EpisodeShare(PREFERS_WORSE, preferred == 0, is_worse),
            ]
        return tuple(shares)

    def report_warnings(self, shares: dict[str, float]) -> list[str]:
        """That the judge prefers one place, or that the solver pleases it with answers that are worse."""
        first, worse, warnings = shares[PREFERS_FIRST], shares.get(PREFERS_WORSE, 0.0), []
        if abs(first - 0.5) > MAX_PLACE_BIAS:
            place = FIRST if first > 0.5 else SECOND
            warnings += [f"The judge prefers the {place} answer in {max(first, 1 - first):.0%} of the pairs."]
        if worse > MAX_WORSE_PREFERRED:
            warnings += [
                f"The judge prefers the solver's answer in {worse:.0%} of the pairs in which it is the worse one: it "
                "can be pleased without being convinced."
            ]
        return warnings

    def demonstrator_response(
        self, state: JudgedState, turn: Int[Array, ""], key: Key[Array, ""]
    ) -> Int[Array, " response"]:
        """The demonstrated answer of the solver, and the verdict, after reasons if they are demonstrated."""
        spec, vocabulary = self.task.task_spec, self.vocabulary
        width = max(spec.max_response_tokens, self.max_verdict_tokens)
        answer = pad_tokens(self.task.demonstrator_response(state.task_state, fold(key, "answer")), width)
        in_order = jnp.where(state.is_first, jnp.arange(2), 1 - jnp.arange(2))
        values, reasons = state.rewards[in_order], []
        if self.demonstrates_reasons:
            values, reasons = self._reasons(state, in_order, fold(key, "reasons"))
        guess = jax.random.randint(fold(key, "guess"), (), 0, 2)
        is_random = (jax.random.uniform(fold(key, "wander")) < self.judge_noise) | (values[0] == values[1])
        place = jnp.where(is_random, guess, (values[1] > values[0]).astype("int32"))
        words = jnp.asarray([vocabulary.words.index(word) for word in (FIRST, SECOND)])
        verdict = pack_tokens(width, *reasons, words[place], vocabulary.eos_tokens[0])
        is_answer = (turn == 0) & (self.answers == "solver")
        return jnp.where(is_answer, answer, verdict).astype("int32")

    def _reasons(
        self, state: JudgedState, in_order: Int[Array, "2"], key: Key[Array, ""]
    ) -> tuple[Float[Array, "2"], list[Int[Array, " critique"]]]:
        """What the demonstrator says of each answer, in their order, and what it makes of it: 1 for a right one."""
        task = self.task
        assert isinstance(task, ReasonsInCritiques)
        critiques = [
            task.demonstrator_critique(state.task_state, state.answers[in_order[i]], fold(key, "place", i))
            for i in range(2)
        ]
        judgments = jnp.stack([task.critique_judgment(critique) for critique in critiques])
        return judgments.astype("float32"), [cut_at_eos(task.task_spec, critique)[0] for critique in critiques]

    def _preferred(self, state: JudgedState) -> Int[Array, ""]:
        """The index of the answer that the verdict prefers, whatever its place; -1 for none."""
        return jnp.where(state.verdict < 0, -1, jnp.where(state.is_first, state.verdict, 1 - state.verdict))

    def _demonstrated_pair(
        self, task_state: PyTree, key: Key[Array, ""]
    ) -> tuple[Int[Array, "2 response"], Float[Array, "2"]]:
        """A demonstrated answer, and the next one with another reward (or just the next), and their rewards."""
        keys = indexed_keys(key, NUM_CANDIDATES)
        answers = jax.vmap(lambda key: self.task.demonstrator_response(task_state, key))(keys)
        answers = jax.vmap(lambda row: pad_tokens(row, self.task.task_spec.max_response_tokens))(answers)
        rewards = jax.vmap(lambda answer, key: self.task.step(task_state, answer, key)[1].reward)(answers, keys)
        differs = (rewards != rewards[0]).at[0].set(False)
        chosen = jnp.stack([0, jnp.where(differs.any(), jnp.argmax(differs), 1)])
        return answers[chosen].astype("int32"), rewards[chosen]

    def to_judge(self, state: JudgedState) -> Int[Array, " message"]:
        """What the judge reads: the task, and the two answers in their order, each after the word for its place."""
        spec, vocabulary = self.task.task_spec, self.vocabulary
        texts = jax.vmap(lambda answer: cut_at_eos(spec, answer)[0])(state.answers)
        texts = jnp.where(state.is_first, texts, texts[::-1])
        parts = [without_cue(spec, state.opening)]
        for word, text in zip((FIRST, SECOND), texts, strict=True):
            parts += [jnp.asarray(vocabulary.words.index(word)), text]
        size = spec.max_opening_tokens + 2 * spec.max_response_tokens + 2
        return pack_tokens(size, *parts, spec.encode(RESPONSE_CUE)).astype("int32")
