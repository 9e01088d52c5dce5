"""Report card of a conversation: the mean return of each seat, and shares of episodes that its rules define.

Of a critic: which answers are right before and after its critiques, what it repairs and spoils, which errors it finds,
its false alarms, and how well its judgments are calibrated (:mod:`thespis.evaluation.verdict_report`). A share of
episodes that never occur is not a number, ``None`` in JSON.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.errors import UserError
from thespis.envs.text.conversation import ConversationEnv, EpisodeShare, HasReportCard, HasReportWarnings
from thespis.evaluation.conversations import play_seats, report_keys
from thespis.evaluation.statistics import Interval, bootstrap_interval
from thespis.evaluation.verdict_report import has_verdicts, report_on_verdicts
from thespis.runtime.callbacks import raising_callback_errors

NUM_VOTES = 5
"""Critiques of each answer, by which a critic's judgments are told to be calibrated or not."""


@runtime_checkable
class HasUsage(Protocol):
    """A method whose responses are paid for, such as those of a model behind an endpoint."""

    @property
    def usage(self) -> Any:
        """What its responses have cost so far."""
        ...


@dataclasses.dataclass(frozen=True)
class ReportCard:
    """Report card of a conversation, one number for each seed."""

    num_episodes: int
    """Episodes of each seed."""
    returns: dict[str, list[float]]
    """Mean returns by seat."""
    shares: dict[str, list[float | None]]
    """Shares of episodes by name, from 0 to 1."""
    warnings: list[str] = dataclasses.field(default_factory=list)
    """Sentences about a seat that does harm or can be deceived; none where all is well."""

    def to_json(self) -> dict[str, Any]:
        """The card as in final.json."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> ReportCard:
        """The card of final.json."""
        return cls(**content)

    def rows(self) -> list[tuple[str, float | None, Interval | None, bool]]:
        """Lines of the card: a name, the mean over seeds, its 95% interval, and whether it is a share."""
        shares = [(name, values, True) for name, values in self.shares.items()]
        returns = [(f"return of the {seat}", values, False) for seat, values in self.returns.items()]
        return [(name, *_mean_and_interval(values, is_share), is_share) for name, values, is_share in shares + returns]


def _mean_and_interval(values: Sequence[float | None], is_share: bool) -> tuple[float | None, Interval | None]:
    known = [value for value in values if value is not None]
    if not known:
        return None, None
    return float(np.mean(known)), bootstrap_interval(known, bounds=(0.0, 1.0) if is_share else None)


def has_report_card(env: Any) -> bool:
    """Whether an environment is a conversation whose rules say what to report."""
    return isinstance(env, ConversationEnv) and isinstance(env.rules, HasReportCard)


def report_card(
    env: Any,
    method: Any = None,
    states: PyTree = None,
    num_episodes: int = 500,
    scripted: Sequence[str] = (),
    seeds: Sequence[int] = (),
) -> ReportCard:
    """Play conversations by sampling, and count.

    ``env``: an environment of a conversation. ``states``: ``[seed, ...]`` of the ``method``, as in ``run.states``.
    ``scripted``: seats that the environment's demonstrator plays; without a method, all of them (one seed). ``seeds``:
    those of the episodes of each state, by default 0, 1, ...

    Of a critic whose judgments can be read, :data:`NUM_VOTES` critiques of each answer tell more, unless a seat's
    responses are paid for.

    Raises:
        UserError: for an environment that is no conversation, and for a seat that it does not have.
    """
    if not isinstance(env, ConversationEnv):
        raise UserError(f"{env.spec.name} is no conversation")
    seats = [group.name for group in env.spec.groups]
    if unknown := [seat for seat in scripted if seat not in seats]:
        raise UserError(f"{env.spec.name} has no seat {unknown[0]!r}: it has {', '.join(seats)}")
    keys = report_keys("report card", states, seeds)
    with raising_callback_errors():
        returns, shares = jax.block_until_ready(_play(env, method, states, keys, num_episodes, tuple(scripted)))
    by_seed = {share.name: np.asarray(share.counts / share.among, float) for share in shares}
    if has_verdicts(env) and not _is_paid_for(method):
        verdicts = report_on_verdicts(env, method, states, num_episodes, NUM_VOTES, scripted, seeds)
        by_seed[f"judgments that are right, majorities of {NUM_VOTES}"] = verdicts.majority_accuracy
        by_seed[f"calibration error of {NUM_VOTES} judgments"] = verdicts.calibration_error
    return ReportCard(
        num_episodes,
        {name: np.asarray(returns[name], float).tolist() for name in seats},
        {name: _without_nan(values.tolist()) for name, values in by_seed.items()},
        _warnings(env.rules, by_seed),
    )


def _is_paid_for(method: Any) -> bool:
    """Whether a seat's responses are paid for."""
    return any(isinstance(seat, HasUsage) for seat in getattr(method, "methods", {}).values())


def _warnings(rules: Any, shares: dict[str, np.ndarray]) -> list[str]:
    """What the rules say of the means over seeds."""
    if not isinstance(rules, HasReportWarnings):
        return []
    known = {name: values[~np.isnan(values)] for name, values in shares.items()}
    return rules.report_warnings({name: float(x.mean()) if x.size else math.nan for name, x in known.items()})


def _without_nan(values: list[float]) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values]


@eqx.filter_jit
def _play(
    env: ConversationEnv,
    method: Any,
    states: PyTree,
    keys: Key[Array, " seed"],
    num_episodes: int,
    scripted: tuple[str, ...],
) -> tuple[dict[str, Float[Array, " seed"]], tuple[EpisodeShare, ...]]:
    """Returns by seat, and shares with the numbers of episodes ``[seed]``; compiled once for all runs of a method."""
    rules: Any = env.rules

    def play(state: PyTree, key: Key[Array, ""]) -> Any:
        final, rewards = play_seats(env, num_episodes, key, method, state, scripted)
        returns = {name: by_turn.sum(axis=0).mean() for name, by_turn in rewards.items()}
        if not isinstance(rules, HasReportCard):
            return returns, ()
        by_episode = {name: by_turn.T for name, by_turn in rewards.items()}
        shares = jax.vmap(rules.report_card)(final.inner, by_episode)
        return returns, tuple(
            EpisodeShare(share.name, jnp.minimum(share.counts, share.among).sum(), share.among.sum())
            for share in shares
        )

    return jax.vmap(play, in_axes=(None if method is None else 0, 0))(states, keys)
