"""Conversation of recursive critiques: an answer is criticized, the critique is criticized, and so on, then judged.

A critic says what is wrong with an answer to a task of one turn. Each later critic reads the task, the answer and the
critiques before its own, and says whether it agrees with the last of them, or what it holds to be wrong in the answer
after all; so does the judge, who speaks last. The answer claims to be right, and who disagrees says the opposite of
what it criticizes: so every seat implies a judgment of the answer, and the judge's is the verdict. Whether the critique
of a critique is easier than a critique can be measured level by level
(:func:`~thespis.evaluation.oversight_report.report_on_oversight`).

Source: Wen et al. 2025, "Scalable Oversight for Superhuman AI via Recursive Self-Critiquing", arXiv:2502.04675.
Differs: critiques of a level are read one at a time, not in pairs.
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
from thespis.envs.text.critique import CRITIC, MIN_RIGHT_JUDGMENTS, SOLVER, CriticDemonstrator, HasCritiqueJudgments
from thespis.envs.text.judging import JUDGE
from thespis.envs.text.task import RESPONSE_CUE, Task, changed_fields, cut_at_eos, pack_tokens
from thespis.runtime.keys import fold

AGREE, DISAGREE = "agree", "disagree"
"""Last words of a critique of a critique, and of the judge."""
CRITIQUE = "critique"
"""The word before each critique."""
RIGHT_ANSWERS, RIGHT_VERDICTS = "answers that are right", "verdicts that are right"
MAX_SPOILED = 0.05
"""By how much a judge may be right less often than the critic before it."""


@runtime_checkable
class CriticizedTask(CriticDemonstrator, HasCritiqueJudgments, Protocol):
    """Task of one turn whose critiques of an answer can be demonstrated, and read."""


class RecursiveCritiqueState(eqx.Module):
    """State of a conversation: that of the task, its first message, the answer and its reward, and what was said.

    ``critiques``: those of all critics in their order, padded with -1. ``judgments``: what each critic, and last the
    judge, implies of the answer: 1 that it is right, 0 that it is wrong, -1 neither.
    """

    task_state: PyTree
    opening: Int[Array, "*episodes opening"]
    answer: Int[Array, "*episodes response"]
    answer_reward: Float[Array, "*episodes"]
    critiques: Int[Array, "*episodes critic token"]
    judgments: Int[Array, "*episodes seat"]

    @property
    def is_right(self) -> Bool[Array, "*episodes"]:
        """Whether the answer is right."""
        return self.answer_reward >= 1.0


class RecursiveCritiqueConversation(eqx.Module):
    """Conversation of recursive critiques of an answer to a task of one turn, and a judge who reads them all.

    ``levels``: critics before the judge, called ``critic1``, ``critic2``, ...; 0: the judge reads the answer alone. The
    first critic criticizes the answer in the task's words; the others, and the judge, end with ``agree`` or
    ``disagree`` with what was said last. The judge earns 1 if the judgment of the answer that it implies is right. A
    critic earns 1 if its own is (``critic_reward="truth"``), or if the judge's is the same (``verdict``).

    ``replies``: what the later critics and the judge say. With ``critique`` they criticize the answer in the task's
    words, in reply to what they have read, and the judge's critique is the verdict.

    ``first_answer``: that of the ``demonstrator``, or of a ``solver``, which earns the reward of the task, or 1 if the
    verdict is that its answer is right (``solver_reward="verdict"``). ``reads``: the task, the answer and the
    ``critiques`` before; or the ``answer`` without them, so that seats are a panel whose members agree or disagree with
    the answer, independently: what the same models are worth without recursion. ``max_critique_tokens`` and
    ``max_verdict_tokens``: tokens of a critique and of a response of the judge, end token included.
    ``demonstrates_reasons``: the demonstrator criticizes the answer itself before it says ``agree`` or ``disagree``,
    which follows from that. ``reply_noise`` and ``judge_noise``: the shares of these words that are random, of critics
    and of the judge; those of first critiques are the task's.
    """

    task: Task
    levels: int = eqx.field(static=True, default=2)
    first_answer: Literal["solver", "demonstrator"] = eqx.field(static=True, default="demonstrator")
    replies: Literal["agreement", "critique"] = eqx.field(static=True, default="agreement")
    reads: Literal["critiques", "answer"] = eqx.field(static=True, default="critiques")
    critic_reward: Literal["truth", "verdict"] = eqx.field(static=True, default="truth")
    solver_reward: Literal["task", "verdict"] = eqx.field(static=True, default="task")
    max_critique_tokens: int = eqx.field(static=True, default=3)
    max_verdict_tokens: int = eqx.field(static=True, default=2)
    demonstrates_reasons: bool = eqx.field(static=True, default=False)
    reply_noise: float = 0.0
    judge_noise: float = 0.0

    def __check_init__(self):
        """Raise ``ValueError`` for a task of several turns or without critiques, and for negative levels."""
        spec = self.task.task_spec
        check_one_turn(spec, "the answer to a task of one turn can be criticized")
        if not isinstance(self.task, CriticizedTask):
            raise ValueError(
                f"{spec.name} has no critiques of answers: it needs demonstrator_critique, demonstrator_revision and "
                "critique_judgment"
            )
        if self.levels < 0:
            raise ValueError(f"levels={self.levels}: at least 0")

    @property
    def vocabulary(self) -> Vocabulary:
        """The words of the task, and those of critiques of critiques."""
        words = self.task.task_spec.vocabulary.words
        return word_vocabulary([*words[3:], CRITIQUE, AGREE, DISAGREE])  # the first three are special

    @property
    def seat_names(self) -> tuple[str, ...]:
        """The critics in their order, and the judge."""
        return (*(f"{CRITIC}{level + 1}" for level in range(self.levels)), JUDGE)

    @property
    def conversation_spec(self) -> ConversationSpec:
        """The judge, whose return is reported, the critics, and the solver if it answers."""
        spec = self.task.task_spec
        settings = changed_fields(self.task) + changed_fields(self, ignored=("task",))
        seats, names = [], self.seat_names
        for i, name in enumerate(names):
            is_opening = i == 0 and self.first_answer == "demonstrator"
            size, length = self._text_size(i), self._response_size(i)
            seats.append(SeatSpec(name, size if is_opening else 0, 0 if is_opening else size, length))
        seats, schedule = [seats[-1], *seats[:-1]], names
        if self.first_answer == "solver":
            seats.append(SeatSpec(SOLVER, spec.max_opening_tokens, 0, spec.max_response_tokens))
            schedule = (SOLVER, *names)
        return ConversationSpec(
            f"text:recursive-{spec.name.removeprefix('text:')}{settings}", self.vocabulary, tuple(seats), schedule
        )

    def init(self, key: Key[Array, ""]) -> tuple[RecursiveCritiqueState, dict[str, Int[Array, " opening"]]]:
        """A task for the solver, or a task and an answer for who criticizes first; the others wait."""
        spec = self.task.task_spec
        task_state, opening = self.task.init(key)
        answer = self.task.demonstrator_response(task_state, fold(key, "first answer"))
        answer = pad_tokens(answer, spec.max_response_tokens).astype("int32")
        reward = self.task.step(task_state, answer, fold(key, "first reward"))[1].reward
        critiques = jnp.full((self.levels, self.max_critique_tokens), -1, "int32")
        judgments = jnp.full(self.levels + 1, -1, "int32")
        state = RecursiveCritiqueState(task_state, opening.astype("int32"), answer, reward, critiques, judgments)
        openings = {name: -jnp.ones(1, "int32") for name in self.seat_names}
        if self.first_answer == "solver":
            return state, openings | {SOLVER: state.opening}
        return state, openings | {self.seat_names[0]: self._text(state, 0)}

    def step(
        self,
        state: RecursiveCritiqueState,
        turn: Int[Array, ""],
        response: Int[Array, " response"],
        key: Key[Array, ""],
    ) -> tuple[RecursiveCritiqueState, ConversationStep]:
        """The answer goes to the first critic, each critique to the next seat; the judge's word ends the episode."""
        spec, names = self.task.task_spec, self.seat_names
        seat = turn - 1 if self.first_answer == "solver" else turn
        is_answer, is_last = seat < 0, seat == self.levels
        answer = pad_tokens(response, spec.max_response_tokens)
        reward = self.task.step(state.task_state, answer, fold(key, "task"))[1].reward
        critique = pad_tokens(response, self.max_critique_tokens)
        is_author = (jnp.arange(self.levels) == seat)[:, None]
        is_speaker = jnp.arange(self.levels + 1) == seat
        next_state = RecursiveCritiqueState(
            state.task_state,
            state.opening,
            jnp.where(is_answer, answer, state.answer).astype("int32"),
            jnp.where(is_answer, reward, state.answer_reward),
            jnp.where(is_author, critique[None], state.critiques).astype("int32"),
            jnp.where(is_speaker, self._judgment(state, seat, response), state.judgments),
        )
        messages = {name: jnp.where(seat + 1 == i, self._text(next_state, i), -1) for i, name in enumerate(names)}
        rewards = self._rewards(next_state, is_last)
        if self.first_answer == "solver":
            messages |= {SOLVER: -jnp.ones(1, "int32")}
        return next_state, ConversationStep(messages, rewards, is_last)

    def judges_rightly(self, state: RecursiveCritiqueState) -> Bool[Array, " seat"]:
        """Whether each critic, and last the judge, implies rightly that the answer is right or wrong."""
        return state.judgments == state.is_right.astype("int32")

    def read_reply(self, response: Int[Array, " response"]) -> Int[Array, ""]:
        """Whether a response agrees, by its last word: 1 or 0, -1 for neither."""
        words, length = cut_at_eos(self.task.task_spec, response)
        names = jnp.asarray([self.vocabulary.words.index(word) for word in (DISAGREE, AGREE)])
        is_named = (words[jnp.maximum(length - 1, 0)] == names) & (length > 0)
        return jnp.where(is_named.any(), jnp.argmax(is_named), -1).astype("int32")

    def report_card(
        self, state: RecursiveCritiqueState, rewards: dict[str, Float[Array, " turn"]]
    ) -> tuple[EpisodeShare, ...]:
        """How often each level is right, and what the judge lets pass and rejects."""
        always, is_right, verdict = jnp.ones((), bool), state.is_right, state.judgments[-1]
        rightly = self.judges_rightly(state)
        shares = [EpisodeShare(RIGHT_ANSWERS, is_right, always)]
        for i, name in enumerate(self.seat_names[:-1]):
            shares += [EpisodeShare(_right_judgments(name), rightly[i], always)]
        shares += [
            EpisodeShare(RIGHT_VERDICTS, rightly[-1], always),
            EpisodeShare("wrong answers that pass", verdict == 1, ~is_right),
            EpisodeShare("right answers rejected", verdict == 0, is_right),
            EpisodeShare("no verdict", verdict < 0, always),
        ]
        if self.levels:
            before = rightly[-2]
            shares += [
                EpisodeShare("wrong judgments of the last critic mended", rightly[-1], ~before),
                EpisodeShare("right judgments of the last critic spoiled", ~rightly[-1], before),
            ]
        return tuple(shares)

    def report_warnings(self, shares: dict[str, float]) -> list[str]:
        """That a critic says the opposite of the truth, or that the judge had better believed the last critic."""
        critics, warnings = self.seat_names[:-1], []
        for name in critics:
            if (share := shares[_right_judgments(name)]) < MIN_RIGHT_JUDGMENTS:
                warnings += [f"{name} lies: {share:.0%} of its judgments are right, fewer than those of a coin."]
        if critics:
            verdicts, before = shares[RIGHT_VERDICTS], shares[_right_judgments(critics[-1])]
            if verdicts < before - MAX_SPOILED:
                warnings += [
                    f"{verdicts:.0%} of the verdicts are right, and {before:.0%} of the judgments of {critics[-1]}: "
                    "the judge would do better to believe it."
                ]
        return warnings

    def demonstrator_response(
        self, state: RecursiveCritiqueState, turn: Int[Array, ""], key: Key[Array, ""]
    ) -> Int[Array, " response"]:
        """The task's demonstrator as solver and first critic; who agrees or disagrees does so by the truth."""
        spec, task, vocabulary = self.task.task_spec, self._criticized_task, self.vocabulary
        seat = turn - 1 if self.first_answer == "solver" else turn
        is_judge = seat == self.levels
        width = max(spec.max_response_tokens, self.max_critique_tokens, self.max_verdict_tokens)
        answer = pad_tokens(self.task.demonstrator_response(state.task_state, fold(key, "answer")), width)
        critique = pad_tokens(task.demonstrator_critique(state.task_state, state.answer, fold(key, "critique")), width)
        judgment, reason = state.is_right.astype("int32"), []
        if self.demonstrates_reasons:
            judgment, reason = task.critique_judgment(critique), [cut_at_eos(spec, critique)[0]]
        is_random = jax.random.uniform(fold(key, "wander")) < jnp.where(is_judge, self.judge_noise, self.reply_noise)
        guess = jax.random.bernoulli(fold(key, "guess"))
        agrees = jnp.where(is_random, guess, judgment == self._claim(state, seat))
        words = jnp.asarray([vocabulary.words.index(word) for word in (DISAGREE, AGREE)])
        reply = pack_tokens(width, *reason, words[agrees.astype("int32")], vocabulary.eos_tokens[0])
        spoken = jnp.where(self._criticizes_answer(seat), critique, reply)
        return jnp.where(seat < 0, answer, spoken).astype("int32")

    def _claim(self, state: RecursiveCritiqueState, seat: Int[Array, ""]) -> Int[Array, ""]:
        """What is criticized says of the answer, as in ``judgments``; the answer itself claims to be right."""
        if self.reads == "answer":
            return jnp.ones((), "int32")
        return jnp.where(seat <= 0, 1, state.judgments[jnp.clip(seat - 1, 0, self.levels)])

    def _judgment(
        self, state: RecursiveCritiqueState, seat: Int[Array, ""], response: Int[Array, " response"]
    ) -> Int[Array, ""]:
        """What a seat's response implies of the answer."""
        critique = pad_tokens(response, self._critique_size)
        reply, claim = self.read_reply(critique), self._claim(state, seat)
        implied = jnp.where((reply < 0) | (claim < 0), -1, jnp.where(reply == 1, claim, 1 - claim))
        of_answer = self._criticized_task.critique_judgment(critique)
        return jnp.where(self._criticizes_answer(seat), of_answer, implied).astype("int32")

    def _criticizes_answer(self, seat: Int[Array, ""]) -> Bool[Array, ""]:
        """Whether a seat speaks in the task's words."""
        if self.replies == "critique":
            return seat >= 0
        return (seat == 0) & (self.levels > 0)

    def _rewards(self, state: RecursiveCritiqueState, is_last: Bool[Array, ""]) -> dict[str, Float[Array, ""]]:
        """What each seat earns at the end."""
        verdict = state.judgments[-1]
        earned = self.judges_rightly(state)
        if self.critic_reward == "verdict":
            sides = (state.judgments == verdict) & (verdict >= 0)
            earned = jnp.concatenate([sides[:-1], earned[-1:]])
        rewards = {name: earned[i].astype("float32") for i, name in enumerate(self.seat_names)}
        if self.first_answer == "solver":
            passed = (verdict == 1).astype("float32")
            rewards[SOLVER] = state.answer_reward if self.solver_reward == "task" else passed
        return {name: jnp.where(is_last, reward, 0.0) for name, reward in rewards.items()}

    @property
    def _critique_size(self) -> int:
        """Tokens of the longest response of a critic or the judge."""
        return max(self.max_critique_tokens, self.max_verdict_tokens)

    def _response_size(self, seat: int) -> int:
        """Tokens of a response of a critic or the judge."""
        is_critic = seat < self.levels or self.replies == "critique"
        return self.max_critique_tokens if is_critic else self.max_verdict_tokens

    def _text_size(self, seat: int) -> int:
        """Tokens of what a critic or the judge reads."""
        spec = self.task.task_spec
        num_critiques = seat if self.reads == "critiques" else 0
        return spec.max_opening_tokens + spec.max_response_tokens + num_critiques * (self.max_critique_tokens + 1)

    def _text(self, state: RecursiveCritiqueState, seat: int) -> Int[Array, " text"]:
        """What a critic or the judge reads: the task, the answer, and each critique before it after a word for it."""
        spec = self.task.task_spec
        parts = [without_cue(spec, state.opening), cut_at_eos(spec, state.answer)[0]]
        for i in range(seat if self.reads == "critiques" else 0):
            parts += [jnp.asarray(self.vocabulary.words.index(CRITIQUE)), cut_at_eos(spec, state.critiques[i])[0]]
        return pack_tokens(self._text_size(seat), *parts, spec.encode(RESPONSE_CUE)).astype("int32")

    @property
    def _criticized_task(self) -> CriticizedTask:
        """The task, whose critiques can be demonstrated and read."""
        assert isinstance(self.task, CriticizedTask)
        return self.task


def _right_judgments(name: str) -> str:
    """The line of the report card for a critic."""
    return f"judgments of {name} that are right"
