"""Report on a judge: how often it is right, alone and by majorities of votes, calibration, and whether order moves it.

For conversations of :class:`~thespis.envs.text.judging.JudgedConversation` about demonstrated answers. The judge reads
the same pairs several times, and once in the other order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.records import View
from thespis.envs.text.conversation import ConversationEnv
from thespis.envs.text.judging import JUDGE, JudgedConversation
from thespis.evaluation.conversations import report_keys
from thespis.evaluation.rollout import first_actions
from thespis.evaluation.votes import check_num_votes, count_votes, majority_is_right
from thespis.runtime.keys import fold, indexed_keys


@dataclasses.dataclass(frozen=True)
class JudgeReport:
    """Shares of pairs of answers that differ, one number for each seed.

    ``accuracy``: single verdicts that are right; ``majority_accuracy``: majorities of ``num_votes`` verdicts that are
    right (a tie is half right). ``consistency``: pairs of which the judge prefers the same answer in both orders, and
    ``consistent_accuracy``: those of them that are right, which is what a filter by order leaves.
    ``first_share``: verdicts for the first answer, half of them without a bias. ``undecided``: responses without a
    verdict, which count as wrong. ``agreement``: pairs of which 1, 2, ... ``num_votes`` verdicts agree on an answer,
    where that is more than half of them, and ``agreed_accuracy``: those of them that are right (no number where there
    are none).
    """

    num_votes: int
    accuracy: Float[np.ndarray, " seed"]
    majority_accuracy: Float[np.ndarray, " seed"]
    consistency: Float[np.ndarray, " seed"]
    consistent_accuracy: Float[np.ndarray, " seed"]
    first_share: Float[np.ndarray, " seed"]
    undecided: Float[np.ndarray, " seed"]
    agreement: Float[np.ndarray, "seed votes"]
    agreed_accuracy: Float[np.ndarray, "seed votes"]

    @property
    def calibration_error(self) -> Float[np.ndarray, " seed"]:
        """Expected calibration error (Guo et al. 2017, eq. 3); a majority's confidence is its share of the votes."""
        confidence = np.arange(1, self.num_votes + 1) / self.num_votes
        gaps = np.nan_to_num(np.abs(self.agreed_accuracy - confidence))
        return (self.agreement * gaps).sum(axis=1) / self.agreement.sum(axis=1)

    @property
    def sentence(self) -> str:
        """The means over seeds in words."""
        shares = (
            self.accuracy,
            self.majority_accuracy,
            self.consistency,
            self.consistent_accuracy,
            self.first_share,
            self.undecided,
        )
        single, majority, same, kept, first, undecided = (f"{100 * np.nanmean(share):.1f}%" for share in shares)
        return (
            f"{single} of the verdicts are right, and {majority} of the majorities of {self.num_votes}; in the other "
            f"order {same} of the preferences are the same, and {kept} of these are right. {first} of the verdicts are "
            f"for the first answer, and {undecided} of the responses have none.{self._agreement_sentence}"
        )

    @property
    def _agreement_sentence(self) -> str:
        """Where votes are several: how often all agree, and are right then."""
        if self.num_votes == 1:
            return ""
        share, accuracy = (100 * np.nanmean(x[:, -1]) for x in (self.agreement, self.agreed_accuracy))
        error = 100 * np.nanmean(self.calibration_error)
        return (
            f" All votes agree on {share:.1f}% of the pairs, and are right on {accuracy:.1f}% of these; a majority's "
            f"share of the votes misses its accuracy by {error:.1f} points."
        )


def report_on_judge(
    env: Any,
    method: Any = None,
    states: PyTree = None,
    num_pairs: int = 500,
    num_votes: int = 5,
    seeds: Sequence[int] = (),
) -> JudgeReport:
    """Let a judge read pairs of answers by sampling, several times and in both orders, and count.

    ``env``: a conversation with a judge about demonstrated answers. ``states``: ``[seed, ...]`` of the ``method``, as
    in ``run.states``; without a method the demonstrator judges (one seed). ``seeds``: those of the pairs of each state,
    by default 0, 1, ...

    Raises:
        UserError: for another environment, and for fewer than one vote.
    """
    rules = getattr(env, "rules", None)
    if not isinstance(rules, JudgedConversation) or rules.answers != "demonstrator":
        raise UserError(f"{env.spec.name} is no conversation with a judge about demonstrated answers")
    check_num_votes(num_votes)
    keys = report_keys("judge report", states, seeds)
    verdicts, swapped, better = (np.asarray(x) for x in _verdicts(rules, method, states, keys, num_pairs, num_votes))
    differs = better >= 0

    def share(counts: np.ndarray, among: np.ndarray) -> np.ndarray:
        axes = tuple(range(1, counts.ndim))
        number = among.sum(axis=axes)
        return np.where(number > 0, np.where(among, counts, 0).sum(axis=axes) / np.maximum(number, 1), np.nan)

    num_right, num_wrong = count_votes(verdicts, better[:, None], axis=1)
    decided = (verdicts[:, 0] >= 0) & (swapped >= 0)
    is_same = swapped == 1 - verdicts[:, 0]
    most = np.maximum(num_right, num_wrong)
    is_level = np.arange(1, num_votes + 1)[:, None, None] == np.where(2 * most > num_votes, most, 0)
    every = np.broadcast_to(differs[:, None], verdicts.shape)
    return JudgeReport(
        num_votes,
        share(verdicts == better[:, None], every),
        share(majority_is_right(num_right, num_wrong), differs),
        share(is_same, differs & decided),
        share(verdicts[:, 0] == better, differs & decided & is_same),
        share(verdicts == 0, every & (verdicts >= 0)),
        share(verdicts < 0, every),
        np.stack([share(level, differs) for level in is_level], axis=1),
        np.stack([share(num_right > num_wrong, differs & level) for level in is_level], axis=1),
    )


@eqx.filter_jit
def _verdicts(
    rules: JudgedConversation, method: Any, states: PyTree, keys: Key[Array, " seed"], num_pairs: int, num_votes: int
) -> tuple[Int[Array, "seed vote pair"], Int[Array, "seed pair"], Int[Array, "seed pair"]]:
    """Verdicts, one more on each pair in the other order, and the place of the better answer (-1: equal rewards)."""
    envs = [ConversationEnv(dataclasses.replace(rules, is_swapped=swapped)) for swapped in (False, True)]

    def judge_once(env: ConversationEnv, state: PyTree, key: Key[Array, ""], vote: Any) -> Int[Array, " pair"]:
        env_state, step = jax.vmap(lambda key: env.reset(None, key))(indexed_keys(fold(key, "pairs"), num_pairs))
        if method is None:
            action = jax.vmap(env.demonstrator_action)(env_state, indexed_keys(fold(key, "say", vote), num_pairs))
        else:
            action = first_actions(method, state, View(step.observation, None, step.alive), fold(key, "act", vote))
        return jax.vmap(lambda response: rules.read_verdict(response[0]))(action[JUDGE])

    def judge(state: PyTree, key: Key[Array, ""]) -> Any:
        pairs = jax.vmap(lambda key: rules.init(key)[0])(indexed_keys(fold(key, "pairs"), num_pairs))
        rewards = jnp.where(pairs.is_first[:, None], pairs.rewards, pairs.rewards[:, ::-1])
        better = jnp.where(rewards[:, 0] == rewards[:, 1], -1, jnp.argmax(rewards, axis=1))
        votes = jax.lax.map(lambda vote: judge_once(envs[0], state, key, vote), jnp.arange(num_votes))
        return votes, judge_once(envs[1], state, key, jnp.int32(num_votes)), better

    return jax.vmap(judge, in_axes=(None if method is None else 0, 0))(states, keys)
