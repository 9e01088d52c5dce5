"""Report on second tries: how often attempts succeed at first, and after reflections on those that failed.

For conversations of :class:`~thespis.envs.text.retry.RetryConversation`. Seats can be played by the demonstrator: in
the reflector's place that is what its hints are worth to the same actor.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.errors import UserError
from thespis.envs.text.retry import RetryConversation
from thespis.evaluation.conversations import play_conversations
from thespis.runtime.keys import fold, seed_key


@dataclasses.dataclass(frozen=True)
class RetryReport:
    """Shares of episodes, one for each seed.

    ``first_success``: first attempts that succeed. ``retry_success``: episodes of those that fail at first in which a
    later attempt succeeds (not a number where none fails). ``success``: all episodes that end with success.
    """

    first_success: Float[np.ndarray, " seed"]
    retry_success: Float[np.ndarray, " seed"]
    success: Float[np.ndarray, " seed"]

    @property
    def sentence(self) -> str:
        """The means over seeds in words."""
        first, retry, final = (
            f"{100 * np.nanmean(x):.1f}%" for x in (self.first_success, self.retry_success, self.success)
        )
        return f"{first} of the first attempts succeed, {retry} of the others after reflection: {final} in all."


def report_on_retries(
    env: Any,
    method: Any = None,
    states: PyTree = None,
    num_episodes: int = 500,
    scripted: Sequence[str] = (),
    seeds: Sequence[int] = (),
) -> RetryReport:
    """Play conversations by sampling, and count first attempts and later ones that succeed.

    ``env``: a conversation with second tries. ``states``: ``[seed, ...]`` of the ``method``, as in ``run.states``.
    ``scripted``: seats that the environment's demonstrator plays; without a method, all of them (one seed). ``seeds``:
    those of the episodes of each state, by default 0, 1, ...

    Raises:
        UserError: for another environment.
    """
    rules = getattr(env, "rules", None)
    if not isinstance(rules, RetryConversation):
        raise UserError(f"{env.spec.name} is no conversation with second tries")
    num_seeds = 1 if method is None else jax.tree.leaves(eqx.filter(states, eqx.is_array))[0].shape[0]
    keys = jnp.stack([fold(seed_key(seed), "retry report") for seed in seeds or range(num_seeds)])
    rewards = _sampled_rewards(env, method, states, keys, num_episodes, tuple(scripted))
    is_success = np.asarray(rewards >= rules.success_reward)
    first, final = is_success[:, 0], is_success.any(axis=1)
    num_failed = (~first).sum(axis=1)
    retry = np.where(num_failed > 0, (final & ~first).sum(axis=1) / np.maximum(num_failed, 1), np.nan)
    return RetryReport(first.mean(axis=1), retry, final.mean(axis=1))


@eqx.filter_jit
def _sampled_rewards(
    env: Any, method: Any, states: PyTree, keys: Key[Array, " seed"], num_episodes: int, scripted: tuple[str, ...]
) -> Float[Array, "seed turn episode"]:
    """Rewards of the first seat; compiled once for all runs of a method."""

    def play(state: PyTree, key: Key[Array, ""]) -> Float[Array, "turn episode"]:
        return play_conversations(env, num_episodes, key, method, state, scripted)[1]

    return jax.vmap(play, in_axes=(None if method is None else 0, 0))(states, keys)
