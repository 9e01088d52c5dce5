"""Report on a critic's verdicts: their calibration over several critiques, and agreement with a critic in numbers.

In a conversation of solver and critic (:class:`~thespis.envs.text.critique.CritiqueConversation`) the critic criticizes
the same answers several times. The share of critiques that call an answer right is its confidence in it. A critic in
numbers, any feedback, such as a trained reward model, scores the same answers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.contracts import Feedback
from thespis.core.errors import UserError
from thespis.core.records import Batch, Transition, View
from thespis.envs.text.conversation import ConversationEnv
from thespis.envs.text.critique import CRITIC, CritiqueConversation, CritiqueConversationState, HasCritiqueJudgments
from thespis.envs.text.task import DialogueState, TextEnv, append_tokens
from thespis.evaluation.conversations import SeatPlayers, report_keys
from thespis.evaluation.votes import check_num_votes, count_votes, majority_is_right
from thespis.runtime.callbacks import raising_callback_errors
from thespis.runtime.keys import fold, indexed_keys


@dataclasses.dataclass(frozen=True)
class VerdictReport:
    """Shares of answers, one number for each seed; not a number where no answer counts.

    ``accuracy``: single critiques that say rightly whether an answer is right; ``majority_accuracy``: majorities of
    ``num_votes`` critiques that do (a tie is half right). ``undecided``: critiques that say neither, half a vote for
    each side. ``calibration_error``: expected calibration error (Guo et al. 2017, eq. 3) of the share of votes that
    call an answer right: by how much it differs from the share of such answers that are right. ``discrimination``: how
    often a right answer has more of the votes than a wrong one (area under the ROC curve; 0.5 by chance).

    ``number_discrimination``: how often the critic in numbers scores a right answer higher than a wrong one.
    ``agreement``: how often it scores an answer that a critique calls right higher than one that a critique calls
    wrong. ``None`` without such a critic.
    """

    num_votes: int
    accuracy: Float[np.ndarray, " seed"]
    majority_accuracy: Float[np.ndarray, " seed"]
    undecided: Float[np.ndarray, " seed"]
    calibration_error: Float[np.ndarray, " seed"]
    discrimination: Float[np.ndarray, " seed"]
    number_discrimination: Float[np.ndarray, " seed"] | None = None
    agreement: Float[np.ndarray, " seed"] | None = None

    @property
    def sentence(self) -> str:
        """The means over seeds in words."""
        single, majority, undecided = (
            f"{100 * np.nanmean(x):.1f}%" for x in (self.accuracy, self.majority_accuracy, self.undecided)
        )
        error = 100 * np.nanmean(self.calibration_error)
        text = (
            f"{single} of the critiques say rightly whether an answer is right, and {majority} of the majorities of "
            f"{self.num_votes}; {undecided} say neither. The share of votes for an answer misses the share of such "
            f"answers that are right by {error:.1f} points, and is larger for a right answer than for a wrong one in "
            f"{_percent(self.discrimination)} of the pairs."
        )
        if self.number_discrimination is None or self.agreement is None:
            return text
        return (
            f"{text} The critic in numbers scores the right answer higher in {_percent(self.number_discrimination)} of "
            f"the pairs, and in {_percent(self.agreement)} the one that the words call right."
        )


def _percent(shares: Float[np.ndarray, " seed"]) -> str:
    """The mean over seeds in percent, or that there is none."""
    known = shares[~np.isnan(shares)]
    return f"{100 * known.mean():.1f}%" if known.size else "(no such pairs)"


def has_verdicts(env: Any) -> bool:
    """Whether an environment is a conversation with a critic whose verdicts its task can read."""
    rules = getattr(env, "rules", None)
    return isinstance(rules, CritiqueConversation) and isinstance(rules.task, HasCritiqueJudgments)


def report_on_verdicts(
    env: Any,
    method: Any = None,
    states: PyTree = None,
    num_answers: int = 500,
    num_votes: int = 5,
    scripted: Sequence[str] = (),
    seeds: Sequence[int] = (),
    numbers: Feedback | None = None,
    numbers_state: PyTree = None,
) -> VerdictReport:
    """Let a critic criticize the same answers several times by sampling, and count.

    ``env``: a conversation of solver and critic whose task can read what a critique says. ``states``: ``[seed, ...]``
    of the ``method``, as in ``run.states``. ``scripted``: seats that the demonstrator plays; without a method, all of
    them (one seed). ``seeds``: those of the answers of each state, by default 0, 1, ... ``numbers``: a feedback that
    scores the answers, and its trained state, by default the initial one. A right answer has a reward of at least 1.

    Raises:
        UserError: for another environment, and for fewer than one vote.
    """
    if not has_verdicts(env):
        raise UserError(f"{env.spec.name} is no conversation with a critic whose verdicts can be read")
    check_num_votes(num_votes)
    keys = report_keys("verdict report", states, seeds)
    with raising_callback_errors():
        results = _verdicts(env, method, states, keys, num_answers, num_votes, tuple(scripted), numbers, numbers_state)
        verdicts, is_right, scores = (np.asarray(x) for x in jax.block_until_ready(results))
    votes_right, none = (verdicts == 1).sum(axis=1), (verdicts < 0).sum(axis=1)
    twice_right = 2 * votes_right + none  # in half votes
    confidence = twice_right / (2 * num_votes)
    majority = majority_is_right(*count_votes(verdicts, is_right[:, None].astype(int), axis=1))
    levels = twice_right[:, None] == np.arange(2 * num_votes + 1)[:, None]
    gaps = np.abs((levels * (is_right - confidence)[:, None]).sum(axis=2)).sum(axis=1) / is_right.shape[1]
    every = np.broadcast_to(is_right[:, None], verdicts.shape)
    report = VerdictReport(
        num_votes,
        (verdicts == every).mean(axis=(1, 2)),
        majority.mean(axis=1),
        (verdicts < 0).mean(axis=(1, 2)),
        gaps,
        _discrimination(confidence, is_right, ~is_right),
    )
    if numbers is None:
        return report
    first = verdicts[:, 0]
    return dataclasses.replace(
        report,
        number_discrimination=_discrimination(scores, is_right, ~is_right),
        agreement=_discrimination(scores, first == 1, first == 0),
    )


def _discrimination(
    scores: Float[np.ndarray, "seed answer"], positive: Bool[np.ndarray, "seed answer"], negative: Any
) -> Float[np.ndarray, " seed"]:
    """How often a positive answer has the larger score than a negative one; equal scores count half."""

    def of_seed(scores: np.ndarray, positive: np.ndarray, negative: np.ndarray) -> float:
        difference = scores[positive][:, None] - scores[negative][None]
        return float(((difference > 0) + 0.5 * (difference == 0)).mean()) if difference.size else np.nan

    return np.array([of_seed(*rows) for rows in zip(scores, positive, negative, strict=True)])


@eqx.filter_jit
def _verdicts(
    env: ConversationEnv,
    method: Any,
    states: PyTree,
    keys: Key[Array, " seed"],
    num_answers: int,
    num_votes: int,
    scripted: tuple[str, ...],
    numbers: Feedback | None,
    numbers_state: PyTree,
) -> tuple[Int[Array, "seed vote answer"], Bool[Array, "seed answer"], Float[Array, "seed answer"]]:
    """What each critique says of each answer (1 right, 0 wrong, -1 neither), whether it is, and scores in numbers."""
    rules: Any = env.rules

    def judge(state: PyTree, key: Key[Array, ""]) -> Any:
        players = SeatPlayers.of(env, num_answers, method, state, scripted)
        env_state, step = jax.vmap(lambda key: env.reset(None, key))(indexed_keys(fold(key, "reset"), num_answers))
        memory = players.memory
        if rules.first_answer == "solver":
            action, memory = players.act(memory, env_state, step, fold(key, "answer"), jnp.int32(0))
            env_state, step = jax.vmap(env.step)(env_state, action, indexed_keys(fold(key, "step"), num_answers))

        def vote(index: Int[Array, ""]) -> Int[Array, " answer"]:
            critiques = players.act(memory, env_state, step, fold(key, "vote"), index)[0][CRITIC][:, 0]
            return jax.vmap(rules.task.critique_judgment)(critiques)

        inner = env_state.inner
        scores = jnp.zeros(num_answers)
        if numbers is not None:
            scores = _scores(rules, inner, numbers, numbers_state, fold(key, "numbers"))
        return jax.lax.map(vote, jnp.arange(num_votes)), inner.answer_reward >= 1.0, scores

    return jax.vmap(judge, in_axes=(None if method is None else 0, 0))(states, keys)


def _scores(
    rules: CritiqueConversation,
    inner: CritiqueConversationState,
    numbers: Feedback,
    numbers_state: PyTree,
    key: Key[Array, ""],
) -> Float[Array, " answer"]:
    """What a feedback gives to the answers, as episodes of one turn of the task's own environment."""
    env = TextEnv(rules.task)
    space: Any = env.spec.observation_space
    state = numbers.init(env.spec, fold(key, "init")) if numbers_state is None else numbers_state

    def answered(inner: CritiqueConversationState, key: Key[Array, ""]) -> Transition:
        before = append_tokens(jnp.full(space.max_length, -1, "int32"), inner.opening)
        _, step = env.step(DialogueState(inner.task_state, before, jnp.zeros((), "int32")), inner.answer, key)
        first = jnp.ones((), bool)
        views = View(before), View(step.observation)
        return Transition(views[0], inner.answer, step.reward, step.terminated, step.truncated, views[1], first)

    count = inner.answer_reward.shape[0]
    steps = jax.vmap(answered)(inner, indexed_keys(fold(key, "steps"), count))
    steps = jax.tree.map(lambda x: x[None], steps)
    batch = Batch(steps, jnp.ones((1, count), bool), (), jnp.zeros((), "int32"))
    return numbers.score(state, batch, fold(key, "score")).total[0]
