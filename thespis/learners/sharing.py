"""How the agents of a group learn by a method for one: all by the same parameters, or each by its own.

Agents lie behind the environments, ``[row, agent, ...]``; the method sees rows alone.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Key, PyTree

from thespis.core.contracts import Method, Mode
from thespis.core.keys import per_index
from thespis.core.readable import Readable
from thespis.core.records import Batch, EnvSpec, Report, View


class Shared(eqx.Module):
    """One learner and one set of parameters for all agents, whose experience is put together."""

    def init(self, method: Method, spec: EnvSpec, count: int, key: Key[Array, ""]) -> PyTree:
        """The learner's state."""
        return method.init(spec, key)

    def policy(self, method: Method, state: PyTree, mode: Mode) -> PyTree:
        """The policy of all."""
        return method.policy(state, mode)

    def begin(self, method: Method, policy: PyTree, n: int, count: int) -> PyTree:
        """Memories ``[n, agent, ...]``."""
        return _apart(method.begin(policy, n * count), count)

    def act(self, method: Method, policy: PyTree, memory: Any, view: View, key: Key[Array, ""], count: int) -> Any:
        """Actions, memories and extras ``[row, agent, ...]``."""
        return _apart(method.act(policy, _joined(memory, 0), _joined(view, 0), key), count)

    def follow(self, method: Any, state: PyTree, view: View, key: Key[Array, ""]) -> PyTree:
        """What targets take all to do at views ``[row, agent, ...]``."""
        count = jax.tree.leaves(view)[0].shape[1]
        return _apart(method.follow(state, _joined(view, 0), key), count)

    def probabilities(self, method: Readable, policy: PyTree, memory: Any, view: View, count: int) -> Array:
        """Of every choice, ``[row, agent, n]``."""
        return _apart(method.probabilities(policy, _joined(memory, 0), _joined(view, 0)), count)

    def update(self, method: Method, state: PyTree, batch: Batch, key: Key[Array, ""]) -> tuple[PyTree, Report]:
        """One update on what all have seen: ``[time, row, agent, ...]``."""
        steps, mask = _joined((batch.steps, batch.mask), 1)
        return method.update(state, Batch(steps, mask, _joined(batch.memory, 0), batch.index), key)


class Separate(eqx.Module):
    """A learner for each agent: nothing is shared, states have the axis ``[agent]``."""

    def init(self, method: Method, spec: EnvSpec, count: int, key: Key[Array, ""]) -> PyTree:
        """The learners' states ``[agent, ...]``."""
        return jax.vmap(lambda key: method.init(spec, key))(per_index(key, count))

    def policy(self, method: Method, state: PyTree, mode: Mode) -> PyTree:
        """Their policies ``[agent, ...]``."""
        return jax.vmap(lambda state: method.policy(state, mode))(state)

    def begin(self, method: Method, policy: PyTree, n: int, count: int) -> PyTree:
        """Memories ``[n, agent, ...]``."""
        return jax.vmap(lambda policy: method.begin(policy, n), out_axes=1)(policy)

    def act(self, method: Method, policy: PyTree, memory: Any, view: View, key: Key[Array, ""], count: int) -> Any:
        """Actions, memories and extras ``[row, agent, ...]``."""
        return jax.vmap(method.act, in_axes=(0, 1, 1, 0), out_axes=1)(policy, memory, view, per_index(key, count))

    def follow(self, method: Any, state: PyTree, view: View, key: Key[Array, ""]) -> PyTree:
        """What targets take each to do at views ``[row, agent, ...]``."""
        keys = per_index(key, jax.tree.leaves(view)[0].shape[1])
        return jax.vmap(method.follow, in_axes=(0, 1, 0), out_axes=1)(state, view, keys)

    def probabilities(self, method: Readable, policy: PyTree, memory: Any, view: View, count: int) -> Array:
        """Of every choice, ``[row, agent, n]``."""
        return jax.vmap(method.probabilities, in_axes=(0, 1, 1), out_axes=1)(policy, memory, view)

    def update(self, method: Method, state: PyTree, batch: Batch, key: Key[Array, ""]) -> tuple[PyTree, Report]:
        """One update of each on what it has seen; metrics are means over agents."""

        def one(state: PyTree, steps: Any, mask: Array, memory: Any, key: Key[Array, ""]) -> tuple[PyTree, Report]:
            return method.update(state, Batch(steps, mask, memory, batch.index), key)

        keys = per_index(key, batch.mask.shape[2])
        state, report = jax.vmap(one, in_axes=(0, 2, 2, 1, 0))(state, batch.steps, batch.mask, batch.memory, keys)
        return state, Report({name: value.mean() for name, value in report.metrics.items()})


Sharing = Shared | Separate


def _joined(tree: PyTree, axis: int) -> PyTree:
    """The axis and the one behind it as one: rows and agents."""
    return jax.tree.map(lambda x: x.reshape(*x.shape[:axis], -1, *x.shape[axis + 2 :]), tree)


def _apart(tree: PyTree, count: int) -> PyTree:
    """Rows ``[row * agent, ...]`` as ``[row, agent, ...]``."""
    return jax.tree.map(lambda x: x.reshape(-1, count, *x.shape[1:]), tree)
