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

from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.envs.text.retry import RetryConversation
from thespis.evaluation.conversations import play_conversations, report_keys
from thespis.runtime.keys import fold, indexed_keys


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
    keys = report_keys("retry report", states, seeds)
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


def success_by_try(
    env: Any,
    method: Any,
    states: PyTree,
    num_episodes: int = 500,
    seeds: Sequence[int] = (),
    num_tries: int | None = None,
) -> Float[np.ndarray, "seed try"]:
    """Share of the tasks that one model has solved after each number of tries, by sampling.

    ``env``: a conversation of one seat with further tries, or an environment of one turn. In that the model tries each
    task ``num_tries`` times, every time as if it were new: without memory. In the conversation, too, if ``num_tries``
    is given: then its first attempt counts alone. ``states`` and ``seeds`` are as of :func:`report_on_retries`.

    Raises:
        UserError: for an environment of several turns without second tries, or no number of tries.
    """
    rules = getattr(env, "rules", None)
    is_retried = isinstance(rules, RetryConversation)
    if num_tries is None and not is_retried:
        raise UserError(f"{env.spec.name} has no second tries: num_tries=N tries each task as if it were new")
    if not is_retried and env.spec.time_limit != 1:
        raise UserError(f"{env.spec.name} has several turns, and only a task of one turn can be tried again")
    keys = report_keys("tries", states, seeds)
    rewards = _attempt_rewards(env, method, states, keys, num_episodes, num_tries)
    is_success = np.asarray(rewards >= (rules.success_reward if isinstance(rules, RetryConversation) else 1.0))
    return np.logical_or.accumulate(is_success, axis=1).mean(axis=2)


@eqx.filter_jit
def _attempt_rewards(
    env: Any, method: Any, states: PyTree, keys: Key[Array, " seed"], num_episodes: int, num_tries: int | None
) -> Float[Array, "seed try episode"]:
    """Rewards of the attempts; compiled once for all runs of a method."""

    def play(state: PyTree, key: Key[Array, ""]) -> Float[Array, "try episode"]:
        if num_tries is not None:
            tries = [_solo_rewards(env, method, state, key, num_episodes, i, 1)[0] for i in range(num_tries)]
            return jnp.stack(tries)
        rewards = _solo_rewards(env, method, state, key, num_episodes, 0, env.spec.time_limit)
        return rewards[::2] if env.rules.reflects else rewards

    return jax.vmap(play)(states, keys)


def _solo_rewards(
    env: Any, method: Any, state: PyTree, key: Key[Array, ""], num_episodes: int, attempt: int, num_turns: int
) -> Float[Array, "turn episode"]:
    """Rewards of one model in the same tasks, whatever the ``attempt``, whose responses are others; 0 after the end."""
    policy = method.policy(state, Mode.SAMPLE)
    # as constants, XLA would fold the empty caches at length when it compiles
    memory = jax.lax.optimization_barrier(method.init_memory(policy, num_episodes))
    env_state, step = jax.vmap(lambda key: env.reset(None, key))(indexed_keys(fold(key, "reset"), num_episodes))
    rewards, over, act_key = [], jnp.zeros(num_episodes, bool), fold(key, "try", attempt)
    for turn in range(num_turns):
        action, memory, _ = method.act(policy, memory, step.view, fold(act_key, "act", turn))
        env_state, step = jax.vmap(env.step)(env_state, action, indexed_keys(fold(key, "step", turn), num_episodes))
        rewards.append(jnp.where(over, 0.0, step.reward))
        over = over | step.terminated
    return jnp.stack(rewards)
