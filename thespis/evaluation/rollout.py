"""Rollouts of a trained policy in any environment, without changing the training state.

All episodes of all seeds run in parallel, one environment each, so that short episodes are not counted more often
than long ones. Acting is jitted and vmapped over seeds; environments are stepped through the host contract.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key, PyTree

from thespis.core.contracts import HostEnvironment, Mode
from thespis.core.records import Transition, View
from thespis.core.spaces import Space, unscale_action
from thespis.runtime.callbacks import raising_callback_errors
from thespis.runtime.keys import env_seeds, fold, root_keys

MAX_EPISODE_STEPS = 100_000  # steps after which an episode that does not end is cut, and counted as it is


@runtime_checkable
class Actor(Protocol):
    """The part of a method that plays, see :class:`thespis.core.contracts.Method`."""

    def policy(self, state: Any, mode: Mode) -> Any:
        """The policy of a training state."""
        ...

    def init_memory(self, policy: Any, n: int) -> Any:
        """The memory of ``n`` fresh episodes."""
        ...

    def act(self, policy: Any, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """Canonical actions for ``n`` environments, the memory after them, and extras."""
        ...


@dataclasses.dataclass(frozen=True)
class RolloutResult:
    """Episodes of every seed.

    ``episode_returns`` and ``episode_lengths`` are ``[seed, episode]``; ``episodes[seed]`` are the first ``num_kept``
    episodes as transitions ``[time]``.
    """

    episode_returns: np.ndarray
    episode_lengths: np.ndarray
    episodes: list[list[Transition]]


@raising_callback_errors()
def play_episodes(
    method: Actor,
    states: PyTree,
    envs: HostEnvironment,
    seeds: list[int],
    mode: Mode,
    *,
    num_kept: int = 0,
    stream: str = "evaluate",
    max_steps: int = MAX_EPISODE_STEPS,
) -> RolloutResult:
    """Play one episode in each environment; environments are split evenly among the seeds, in order.

    ``states`` are the method's training states, leading axis ``[seed]``. Environments and actions use random streams
    named by ``stream`` and the mode under each seed's root key, so that the same call gives the same episodes.
    """
    rows, count, space = envs.num_envs // len(seeds), len(seeds), envs.spec.action_space
    keys = jnp.stack([fold(root, f"{stream}/{mode.value}") for root in root_keys(seeds)])
    policy, memory = _init_policies(method, states, rows, mode)

    def by_seed(tree: PyTree) -> PyTree:
        return jax.tree.map(lambda x: np.asarray(x).reshape(count, rows, *np.shape(x)[1:]), tree)

    initial = by_seed(envs.reset([seed for key in keys for seed in env_seeds(key, rows)]))
    view, privileged = initial.view, initial.privileged
    active, first = np.ones((2, count, rows), bool)
    returns, lengths = np.zeros((count, rows)), np.zeros((count, rows), int)
    recorded: list[list[list[Transition]]] = [[[] for _ in range(num_kept)] for _ in seeds]
    for tick in range(max_steps):
        env_action, action, memory, extras = _act(method, space, policy, memory, view, keys, jnp.asarray(tick, "int32"))
        step, next_view = envs.step(jax.tree.map(lambda x: np.asarray(x).reshape(-1, *x.shape[2:]), env_action))
        step, next_view = by_seed(step), by_seed(next_view)
        outcome = step.reward, step.terminated, step.truncated, step.view
        transition = Transition(view, action, *outcome, first, extras, privileged, step.privileged, step.agent_outcomes)
        for s, e in zip(*np.nonzero(active[:, :num_kept]), strict=True):
            recorded[s][e].append(jax.tree.map(lambda x, at=(s, e): np.asarray(x[at]), transition))
        returns += np.where(active, step.reward, 0.0)
        lengths += active
        active &= ~(step.terminated | step.truncated)
        view, first, privileged = (
            next_view,
            np.zeros_like(first),
            step.privileged,
        )  # wrong after an episode's end, and not used there
        if not active.any():
            break
    episodes = [
        [jax.tree.map(lambda *x: np.stack(x), *steps) for steps in trajectories if steps] for trajectories in recorded
    ]
    return RolloutResult(returns, lengths, episodes)


# Compiled once per method, mode and number of environments: a run evaluates many times.


@eqx.filter_jit
def first_actions(method: Actor, state: PyTree, view: View, key: Key[Array, ""]) -> PyTree:
    """Sampled actions ``[row, ...]`` of one state of a method in the first step of episodes, as part of a program."""
    policy = method.policy(state, Mode.SAMPLE)
    # as constants, XLA would fold the empty caches at length when it compiles
    memory = jax.lax.optimization_barrier(method.init_memory(policy, len(jax.tree.leaves(view.observation)[0])))
    return method.act(policy, memory, view, key)[0]


def _init_policies(method: Actor, states: PyTree, num_envs: int, mode: Mode) -> tuple[PyTree, PyTree]:
    """Policies and initial memories ``[seed, ...]``."""

    def per_seed(state: PyTree) -> tuple[PyTree, PyTree]:
        policy = method.policy(state, mode)
        return policy, method.init_memory(policy, num_envs)

    return jax.vmap(per_seed)(states)


@eqx.filter_jit
def _act(
    method: Actor,
    action_space: Space,
    policy: PyTree,
    memory: PyTree,
    view: View,
    keys: Key[Array, " seed"],
    step: Int[Array, ""],
) -> tuple[PyTree, PyTree, PyTree, PyTree]:
    """Actions in the environment's units, canonical actions, memories and extras, ``[seed, env, ...]``."""

    def per_seed(
        policy: PyTree, memory: PyTree, view: View, key: Key[Array, ""]
    ) -> tuple[PyTree, PyTree, PyTree, PyTree]:
        action, memory, extras = method.act(policy, memory, view, fold(key, "act", step))
        return unscale_action(action_space, action), action, memory, extras

    return jax.vmap(per_seed)(policy, memory, view, keys)
