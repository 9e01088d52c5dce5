"""How the agents of a group learn by a method for one: by the same parameters, each by its own, or some of them anew.

Agents lie behind the environments, ``[row, agent, ...]``; the method sees rows alone.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Key, PyTree

from thespis.core.contracts import Method, Mode
from thespis.core.errors import UserError
from thespis.core.feeds import Rollouts
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
        """The learners' states ``[agent, ...]``, one after the other.

        At once, their orthogonal matrices would be decomposed as one batch, beside which the loop in which opponents
        begin a game never ends on CPUs (jaxlib 0.10.2).
        """
        return jax.lax.map(lambda key: method.init(spec, key), per_index(key, count))

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


class Again(eqx.Module):
    """Learners that may begin anew: their states ``[agent, ...]`` as they are, and as they were at first."""

    now: PyTree
    first: PyTree


class Renewed(eqx.Module):
    """A learner for each agent, some of which return to their first state, again and again (Vinyals et al. 2019).

    Everything returns: parameters, the state of the optimiser, scales. What an actor remembers of an episode under way
    stays. For methods that learn from rollouts: :func:`period` says what ``every`` steps are.
    """

    every: int = eqx.field(static=True)
    """Environment steps of a seed, at least, between two times of renewal."""
    times: tuple[int, ...] = eqx.field(static=True)
    """For each agent, after how many such times it returns; 0: never."""

    def init(self, method: Method, spec: EnvSpec, count: int, key: Key[Array, ""]) -> Again:
        """The learners' states, twice. Raises ``UserError`` if ``times`` is not one number for each agent."""
        if len(self.times) != count:
            raise UserError(f"{count} agents are renewed after {count} numbers of times, not {len(self.times)}")
        state = Separate().init(method, spec, count, key)
        return Again(state, jax.tree.map(jnp.copy, state))

    def policy(self, method: Method, state: Again, mode: Mode) -> PyTree:
        """Their policies ``[agent, ...]``."""
        return Separate().policy(method, state.now, mode)

    def begin(self, method: Method, policy: PyTree, n: int, count: int) -> PyTree:
        """Memories ``[n, agent, ...]``."""
        return Separate().begin(method, policy, n, count)

    def act(self, method: Method, policy: PyTree, memory: Any, view: View, key: Key[Array, ""], count: int) -> Any:
        """Actions, memories and extras ``[row, agent, ...]``."""
        return Separate().act(method, policy, memory, view, key, count)

    def follow(self, method: Any, state: Again, view: View, key: Key[Array, ""]) -> PyTree:
        """What targets take each to do at views ``[row, agent, ...]``."""
        return Separate().follow(method, state.now, view, key)

    def probabilities(self, method: Readable, policy: PyTree, memory: Any, view: View, count: int) -> Array:
        """Of every choice, ``[row, agent, n]``."""
        return Separate().probabilities(method, policy, memory, view, count)

    def update(self, method: Method, state: Again, batch: Batch, key: Key[Array, ""]) -> tuple[Again, Report]:
        """One update of each on what it has seen, after which those whose time it is begin anew."""
        now, report = Separate().update(method, state.now, batch, key)
        (time, rows), feed = batch.mask.shape[:2], method.feed
        assert isinstance(feed, Rollouts), "what a step is to a replay is not known here"
        done, span = batch.index + 1, period(self.every, time * rows) * feed.updates
        again = jnp.stack([done % (span * after) == 0 if after else done < 0 for after in self.times])
        return Again(_chosen(again, state.first, now), state.first), report


Sharing = Shared | Separate | Renewed


def period(every: int, block: int) -> int:
    """Rollouts of ``block`` steps that are the first to make up ``every`` steps."""
    return max(-(-every // block), 1)


def _chosen(flag: Bool[Array, " agent"], yes: PyTree, no: PyTree) -> PyTree:
    """Agent by agent from the one tree or the other."""
    return jax.tree.map(lambda a, b: jnp.where(flag.reshape(-1, *[1] * (a.ndim - 1)), a, b), yes, no)


def _joined(tree: PyTree, axis: int) -> PyTree:
    """The axis and the one behind it as one: rows and agents."""
    return jax.tree.map(lambda x: x.reshape(*x.shape[:axis], -1, *x.shape[axis + 2 :]), tree)


def _apart(tree: PyTree, count: int) -> PyTree:
    """Rows ``[row * agent, ...]`` as ``[row, agent, ...]``."""
    return jax.tree.map(lambda x: x.reshape(-1, count, *x.shape[1:]), tree)
