"""Playing episodes with a trained actor, in any environment, without changing any state.

All episodes of all seeds run side by side, one world each, so that short episodes are not counted more often
than long ones. Acting is jitted and vmapped over seeds; worlds are stepped behind the host contract.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key, PyTree

from thespis.core.contracts import HostEnvironment, Method, Mode
from thespis.core.keys import fold, roots, world_seed
from thespis.core.records import Transition, View
from thespis.core.spaces import Space, to_world

LONGEST = 100_000  # steps after which an episode of a world without an end is cut and counted as it is


@dataclasses.dataclass(frozen=True)
class Played:
    """Episodes of every seed: ``returns`` and ``lengths`` ``[seed, episode]``; ``kept[seed]`` are the first
    episodes as transitions ``[time]``, as many as were asked for.
    """

    returns: np.ndarray
    lengths: np.ndarray
    kept: list[list[Transition]]


def play(
    method: Method,
    states: PyTree,
    worlds: HostEnvironment,
    seeds: list[int],
    mode: Mode,
    *,
    keep: int = 0,
    stream: str = "evaluate",
    longest: int = LONGEST,
) -> Played:
    """Play one episode in each world; the worlds are split evenly among the seeds, in order.

    ``states`` are the method's, leading axis ``[seed]``. Worlds and actions draw from ``stream`` and the mode's
    name under each seed's root key, so that the same call gives the same episodes.
    """
    rows, count, space = worlds.n // len(seeds), len(seeds), worlds.spec.action
    keys = jnp.stack([fold(root, f"{stream}/{mode.value}") for root in roots(seeds)])
    world_seeds = [world_seed(key, i) for key in keys for i in range(rows)]
    policy, memory = _begin(method, states, rows, mode)

    def by_seed(tree: PyTree) -> PyTree:
        return jax.tree.map(lambda x: np.asarray(x).reshape(count, rows, *np.shape(x)[1:]), tree)

    begun = by_seed(worlds.start(world_seeds))
    view, privileged = begun.view, begun.privileged
    playing, first = np.ones((2, count, rows), bool)
    returns, lengths = np.zeros((count, rows)), np.zeros((count, rows), int)
    kept: list[list[list[Transition]]] = [[[] for _ in range(keep)] for _ in seeds]
    for tick in range(longest):
        sent, action, memory, extras = _act(method, space, policy, memory, view, keys, jnp.asarray(tick, "int32"))
        step, following = worlds.step(jax.tree.map(lambda x: np.asarray(x).reshape(-1, *x.shape[2:]), sent))
        step, following = by_seed(step), by_seed(following)
        answer = step.reward, step.terminated, step.truncated, step.view
        transition = Transition(view, action, *answer, first, extras, privileged, step.privileged, step.each)
        for s, e in zip(*np.nonzero(playing[:, :keep]), strict=True):
            kept[s][e].append(jax.tree.map(lambda x, at=(s, e): np.asarray(x[at]), transition))
        returns += np.where(playing, step.reward, 0.0)
        lengths += playing
        playing &= ~(step.terminated | step.truncated)
        view, first, privileged = following, np.zeros_like(first), step.privileged  # wrong after an end: not kept
        if not playing.any():
            break
    whole = [[jax.tree.map(lambda *x: np.stack(x), *steps) for steps in episodes if steps] for episodes in kept]
    return Played(returns, lengths, whole)


# Compiled once for a method, a mode and a number of worlds: a run evaluates many times.


@eqx.filter_jit
def _begin(method: Method, states: PyTree, rows: int, mode: Mode) -> tuple[PyTree, PyTree]:
    """Policies and memories ``[seed, ...]``."""

    def one(state: PyTree) -> tuple[PyTree, PyTree]:
        policy = method.policy(state, mode)
        return policy, method.begin(policy, rows)

    return jax.vmap(one)(states)


@eqx.filter_jit
def _act(
    method: Method, space: Space, policy: PyTree, memory: PyTree, view: View, keys: Key[Array, " seed"],
    tick: Int[Array, ""],
) -> tuple[PyTree, PyTree, PyTree, PyTree]:  # fmt: skip
    """What the worlds receive, the actions, memories and extras, ``[seed, row, ...]``."""

    def one(policy: PyTree, memory: PyTree, view: View, key: Key[Array, ""]) -> tuple[PyTree, PyTree, PyTree, PyTree]:
        action, memory, extras = method.act(policy, memory, view, fold(key, "act", tick))
        return to_world(space, action), action, memory, extras

    return jax.vmap(one)(policy, memory, view, keys)
