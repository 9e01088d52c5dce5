"""Report on recursive critiques: how often each level is right, what votes add, and how many tokens a verdict costs.

For conversations of :class:`~thespis.envs.text.recursive_critique.RecursiveCritiqueConversation` about demonstrated
answers. The same answers are judged several times, so that levels can be compared at equal cost with more votes of
fewer levels.
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

from thespis.core.errors import UserError
from thespis.envs.text.conversation import ConversationEnv
from thespis.envs.text.recursive_critique import RecursiveCritiqueConversation
from thespis.evaluation.conversations import play_seats, report_keys
from thespis.evaluation.votes import check_num_votes, count_votes, majority_is_right
from thespis.runtime.keys import fold


@dataclasses.dataclass(frozen=True)
class OversightReport:
    """Shares of answers, one number for each seed.

    ``accuracy``: verdicts that are right; ``majority_accuracy``: majorities of ``num_votes`` verdicts on the same
    answer that are right (a tie is half right). ``level_accuracy``: judgments of each critic in their order, and last
    the judge's, that are right. ``panel_accuracy``: majorities of the judgments of all seats in a conversation that are
    right. ``tokens``: tokens that all seats together read and write for a verdict.
    """

    num_votes: int
    accuracy: Float[np.ndarray, " seed"]
    majority_accuracy: Float[np.ndarray, " seed"]
    level_accuracy: Float[np.ndarray, "seed level"]
    panel_accuracy: Float[np.ndarray, " seed"]
    tokens: Float[np.ndarray, " seed"]

    @property
    def sentence(self) -> str:
        """The means over seeds in words."""
        *levels, verdicts = (f"{100 * share:.1f}%" for share in self.level_accuracy.mean(axis=0))
        majority, panel = (f"{100 * share.mean():.1f}%" for share in (self.majority_accuracy, self.panel_accuracy))
        critics = f" Of the critics' judgments, level by level: {', '.join(levels)}." if levels else ""
        return (
            f"{verdicts} of the verdicts are right, {majority} of the majorities of {self.num_votes}, and {panel} of "
            f"the majorities of all seats.{critics} A verdict costs {self.tokens.mean():.1f} tokens."
        )


def report_on_oversight(
    env: Any,
    method: Any = None,
    states: PyTree = None,
    num_answers: int = 500,
    num_votes: int = 5,
    seeds: Sequence[int] = (),
    scripted: Sequence[str] = (),
) -> OversightReport:
    """Let critics and a judge criticize and judge answers by sampling, several times each, and count.

    ``env``: a conversation of recursive critiques of demonstrated answers. ``states``: ``[seed, ...]`` of the
    ``method``, a cast, as in ``run.states``; without a method the demonstrator plays all seats (one seed).
    ``scripted``: seats that it plays beside the models. ``seeds``: those of the answers of each state, by default 0, 1,
    ...

    Raises:
        UserError: for another environment, and for fewer than one vote.
    """
    rules = getattr(env, "rules", None)
    if not isinstance(rules, RecursiveCritiqueConversation) or rules.first_answer != "demonstrator":
        raise UserError(f"{env.spec.name} is no conversation of recursive critiques of demonstrated answers")
    check_num_votes(num_votes)
    keys = report_keys("oversight report", states, seeds)
    judgments, is_right, tokens = (
        np.asarray(x) for x in _judgments(env, method, states, keys, num_answers, num_votes, tuple(scripted))
    )
    truth = is_right.astype(int)
    right = judgments == truth[:, None, :, None]
    return OversightReport(
        num_votes,
        right[..., -1].mean(axis=(1, 2)),
        majority_is_right(*count_votes(judgments[..., -1], truth[:, None], axis=1)).mean(axis=1),
        right.mean(axis=(1, 2)),
        majority_is_right(*count_votes(judgments, truth[:, None, :, None], axis=3)).mean(axis=(1, 2)),
        tokens,
    )


@eqx.filter_jit
def _judgments(
    env: ConversationEnv,
    method: Any,
    states: PyTree,
    keys: Key[Array, " seed"],
    num_answers: int,
    num_votes: int,
    scripted: tuple[str, ...],
) -> tuple[Int[Array, "seed vote answer seat"], Bool[Array, "seed answer"], Float[Array, " seed"]]:
    """What each seat implies of each answer, which of them are right, and the tokens of all transcripts."""

    def judge(state: PyTree, key: Key[Array, ""]) -> Any:
        def vote(index: Int[Array, ""]) -> Any:
            final, _ = play_seats(
                env, num_answers, fold(key, "vote", index), method, state, scripted, fold(key, "answers")
            )
            num_tokens = [(text >= 0).sum(axis=-1) for text in final.transcripts.values()]
            return final.inner.judgments, final.inner.is_right, jnp.stack(num_tokens).sum(axis=0).mean()

        judgments, is_right, tokens = jax.lax.map(vote, jnp.arange(num_votes))
        return judgments, is_right[0], tokens.mean()

    return jax.vmap(judge, in_axes=(None if method is None else 0, 0))(states, keys)
