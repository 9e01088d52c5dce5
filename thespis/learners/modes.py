"""An actor-critic of several modes: every episode is played in one, and what is done should tell in which.

The mode stands beside what actor and critic see. What actions say of it is paid beside the reward, with a weight.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.core.contracts import Mode
from thespis.core.feeds import Rollouts
from thespis.core.keys import fold, per_index
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Report, Transition, View
from thespis.core.spaces import Discrete, dict_space
from thespis.learners.actor_critic import OnPolicyActor
from thespis.learners.temperature import Temperature
from thespis.objectives.information import told
from thespis.objectives.normalise import mean

UNDRAWN = -1


class ModalState(eqx.Module):
    """What the method has learnt, and the weight of information."""

    learnt: PyTree
    weight: PyTree


class Modal(eqx.Module):
    """An on-policy method whose critic sees what its actor sees. A concrete one names the ``method``."""

    method: eqx.AbstractVar[Any]
    information: eqx.AbstractVar[Temperature]
    modes: eqx.AbstractVar[int]

    name: eqx.AbstractClassVar[str]
    citations: eqx.AbstractClassVar[tuple[Citation, ...]]
    details: eqx.AbstractClassVar[tuple[str, ...]]

    @property
    def feed(self) -> Rollouts:
        """What the method eats."""
        return self.method.feed

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> ModalState:
        """A fresh learner, for a world in which it sees its mode."""
        seen = dict_space(mode=Discrete(self.modes), own=spec.observation)
        learnt = self.method.init(dataclasses.replace(spec, observation=seen), key)
        return ModalState(learnt, self.information.init(spec))

    def policy(self, state: ModalState, mode: Mode) -> OnPolicyActor:
        """The policy of all modes."""
        return self.method.policy(state.learnt, mode)

    def begin(self, policy: OnPolicyActor, n: int) -> tuple[Int[Array, " n"], Any]:
        """No mode yet, and the method's memories."""
        return jnp.full(n, UNDRAWN, "int32"), self.method.begin(policy, n)

    def act(self, policy: OnPolicyActor, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """As the method acts in the mode of the episode: drawn at its first step, or valued most where it exploits."""
        fresh = self._best(policy, memory[1], view) if policy.mode is Mode.EXPLOIT else self._drawn(memory[0], key)
        mode = jnp.where(memory[0] == UNDRAWN, fresh, memory[0])
        action, inner, extras = self.method.act(policy, memory[1], _in(mode, view), key)
        return action, (mode, inner), {**extras, "mode": mode}

    def probabilities(self, policy: OnPolicyActor, memory: Any, view: View) -> Float[Array, "row n"]:
        """Of every choice; their mean where a mode is yet to be drawn. Raises ``UserError`` for any other action."""
        undrawn = (memory[0] == UNDRAWN)[:, None]
        every = jax.vmap(
            lambda z: self.method.probabilities(policy, memory[1], _in(jnp.full_like(memory[0], z), view))
        )(jnp.arange(self.modes, dtype="int32"))
        if policy.mode is Mode.EXPLOIT:
            begun = jax.nn.one_hot(self._best(policy, memory[1], view), self.modes)
        else:
            begun = jnp.full((len(undrawn), self.modes), 1 / self.modes)
        return jnp.einsum("zra,rz->ra", every, jnp.where(undrawn, begun, jax.nn.one_hot(memory[0], self.modes)))

    def judge(self, state: ModalState, episode: Transition) -> Critique:
        """No opinion: values count information beside reward."""
        return Critique()

    def update(self, state: ModalState, batch: Batch, key: Key[Array, ""]) -> tuple[ModalState, Report]:
        """The method's update on reward and information; then the weight moves."""
        steps, mode = batch.steps, batch.steps.extras["mode"]
        counts = batch.mask if steps.view.alive is None else batch.mask & steps.view.alive
        said = jnp.where(counts, self.said(self.policy(state, Mode.EXPLORE), batch), 0.0)
        weight, information = self.information.alpha(state.weight), mean(said, counts)
        views = _in(mode, steps.view), _in(mode, steps.next_view)
        paid = eqx.tree_at(lambda s: (s.view, s.next_view, s.reward), steps, (*views, steps.reward + weight * said))
        learnt, report = self.method.update(state.learnt, Batch(paid, batch.mask, batch.memory[1], batch.index), key)
        metrics = {**report.metrics, "information": information, "information_weight": weight}
        return ModalState(learnt, self.information.update(state.weight, information)), Report(metrics)

    def _drawn(self, mode: Int[Array, " row"], key: Key[Array, ""]) -> Int[Array, " row"]:
        keys = per_index(fold(key, "mode"), len(mode))
        return jax.vmap(lambda k: jax.random.randint(k, (), 0, self.modes, "int32"))(keys)

    def _best(self, policy: OnPolicyActor, memory: Any, view: View) -> Int[Array, " row"]:
        def value(z: Int[Array, ""]) -> Float[Array, " row"]:
            shown = _in(jnp.full(len(jax.tree.leaves(view.observation)[0]), z), view).observation
            seen = jax.vmap(lambda one: policy.observations.apply(policy.scale, one))(shown)
            return policy.network.next_values(*jax.tree.map(lambda x: x[None], (memory[1], seen)))[0]

        every = jax.vmap(value)(jnp.arange(self.modes, dtype="int32"))
        return jnp.argmax(every, axis=0).astype("int32")

    def said(self, policy: OnPolicyActor, batch: Batch) -> Float[Array, "time row"]:
        """What every action says of its mode, in nats."""
        steps, mode = batch.steps, batch.steps.extras["mode"]

        def in_mode(z: int) -> Float[Array, "time row"]:
            view = _in(jnp.full_like(mode, z), steps.view)
            scaled = jax.vmap(jax.vmap(lambda o: policy.observations.apply(policy.scale, o)))(view.observation)
            found = policy.network.distributions(batch.memory[1], View(scaled, view.legal), steps.first)
            return jax.vmap(jax.vmap(lambda p, a: p.log_prob(a)))(found, steps.action)

        return jax.vmap(jax.vmap(told))(jnp.stack([in_mode(z) for z in range(self.modes)], axis=-1), mode)


def _in(mode: Int[Array, "*axes"], view: View) -> View:
    """A view in which the mode stands beside what is seen."""
    return View({"mode": mode, "own": view.observation}, view.legal, view.alive, view.position)
