"""Acting by a running average of the parameters: what circles around an answer is near it on average.

While it explores, the newest policy acts, and is what learning corrects; who watches, judges or plays sees the average.
What leaves the average may be made to pay for it, so that circles become narrow.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.core.contracts import Method, Mode
from thespis.core.errors import UserError
from thespis.core.feeds import Feed
from thespis.core.readable import Readable
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Report, Transition, View
from thespis.learners.gradient import Number


class AveragedState(eqx.Module):
    """What the method has learnt, and the average of its policies."""

    learnt: PyTree
    average: PyTree
    updates: Int[Array, ""]


_RECENT = 3.0
"""While all policies are averaged, the n-th counts in proportion to n (n + 1); 1 here would be the plain mean."""


class Averaged(eqx.Module):
    r"""A method that is judged by the average of its policies. A concrete one names the ``method``.

    With a ``magnet`` of weight :math:`\alpha` it learns from rewards less :math:`\alpha \log \pi(a) / \rho(a)`, where
    :math:`\rho` is the average before the update. Where both are the same that is nothing: rest is an equilibrium.
    """

    method: eqx.AbstractVar[Method]
    decay: eqx.AbstractVar[Number]
    magnet: eqx.AbstractVar[Number | None]

    name: eqx.AbstractClassVar[str]
    citations: eqx.AbstractClassVar[tuple[Citation, ...]]
    details: eqx.AbstractClassVar[tuple[str, ...]]

    @property
    def feed(self) -> Feed:
        """What the method eats."""
        return self.method.feed

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> AveragedState:
        """A fresh learner, whose policy is all there is to average."""
        learnt = self.method.init(spec, key)
        average = jax.tree.map(jnp.array, self.method.policy(learnt, Mode.EXPLORE))
        return AveragedState(learnt, average, jnp.zeros((), "int32"))

    def policy(self, state: AveragedState, mode: Mode) -> PyTree:
        """The newest policy to explore by, else the average."""
        newest = self.method.policy(state.learnt, mode)
        if mode is Mode.EXPLORE:
            return newest
        return jax.tree.unflatten(jax.tree.structure(newest), jax.tree.leaves(state.average))

    def begin(self, policy: PyTree, n: int) -> Any:
        """The method's memories."""
        return self.method.begin(policy, n)

    def act(self, policy: PyTree, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """As the method acts."""
        return self.method.act(policy, memory, view, key)

    def probabilities(self, policy: PyTree, memory: Any, view: View) -> PyTree:
        """As the method tells them. Raises ``UserError`` if it does not."""
        if not isinstance(self.method, Readable):
            raise UserError(f"{self.method.name} does not tell its probabilities")
        return self.method.probabilities(policy, memory, view)

    def judge(self, state: AveragedState, episode: Transition) -> Critique:
        """The newest critic's opinion."""
        return self.method.judge(state.learnt, episode)

    def update(self, state: AveragedState, batch: Batch, key: Key[Array, ""]) -> tuple[AveragedState, Report]:
        """One update, after which the average moves. Raises ``UserError`` for a magnet where there is memory."""
        batch = batch if self.magnet is None else self._drawn(state, batch, self.magnet)
        learnt, report = self.method.update(state.learnt, batch, key)
        count = state.updates + 1
        pull: Float[Array, ""] = jnp.maximum(1.0 - jnp.asarray(self.decay), _RECENT / (count + _RECENT))
        newest = self.method.policy(learnt, Mode.EXPLORE)

        def moved(old: Array, new: Array) -> Array:
            return old + (pull * (new - old)).astype(old.dtype) if jnp.issubdtype(old.dtype, jnp.floating) else new

        return AveragedState(learnt, jax.tree.map(moved, state.average, newest), count), report

    def _drawn(self, state: AveragedState, batch: Batch, magnet: Number) -> Batch:
        """The batch with what it cost to leave the average taken off its rewards."""
        if jax.tree.leaves(batch.memory):
            raise UserError(f"{self.method.name} remembers, so its average cannot draw it: set magnet=none")
        average, steps = self.policy(state, Mode.SAMPLE), batch.steps
        by_average = jax.vmap(lambda view: self.probabilities(average, batch.memory, view))(steps.view)
        chance = jnp.take_along_axis(by_average, steps.action[..., None], axis=-1)[..., 0]
        cost = magnet * (steps.extras["log_prob"] - jnp.log(chance + 1e-30))
        if steps.view.alive is not None:
            cost = jnp.where(steps.view.alive, cost, 0.0)
        return eqx.tree_at(lambda b: b.steps.reward, batch, steps.reward - cost)
