"""Temporal recall: how an actor of sequences learns from a critic of single actions (Patel and Siegelmann, 2025).

A model of the world fills in what would have been seen between the actions of a sequence, so that the critic can say of
each one what it is worth. Neither is needed when the actor plays.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.actors.heads import act_rows
from thespis.actors.sequences import Script, SequenceActor, SequencePolicy
from thespis.core.contracts import Mode
from thespis.core.keys import key_of
from thespis.core.records import Critique, Transition, View
from thespis.critics.values import ActionValue, evaluate_ensemble
from thespis.learners.gradient import Adam, Number, gradient_step
from thespis.learners.normalisers import AsTheyAre, ObservationScale
from thespis.learners.soft import Evaluate, least
from thespis.learners.temperature import Temperature, TunedTemperature
from thespis.nets.dynamics import Dynamics


class Recall(eqx.Module):
    """What is held fixed while an actor of sequences climbs."""

    evaluate: Evaluate
    dynamics: Dynamics
    alpha: Float[Array, ""]
    length: int = eqx.field(static=True)
    filled: bool = eqx.field(static=True, default=True)
    """Whether the model fills in what is seen; else every action is valued where the actor looked."""

    def values(
        self, actor: SequenceActor, view: View, previous: Float[Array, "*action"], key: Key[Array, ""]
    ) -> tuple[Float[Array, " length"], Float[Array, " length"]]:
        """Soft values ``Q(s_j, a_j) - alpha log pi(a_j)`` of one drawn sequence, and minus its log-densities (nats).

        ``s_0`` is ``view``; what follows it is predicted and passes no gradient, while each action passes it to those
        it was decided after, ``previous`` being what was done before the first.
        """

        def step(carry: tuple[Array, Array, Array], key: Key[Array, ""]):
            hidden, previous, seen = carry
            chosen, hidden = actor.next(hidden, previous)
            action, log_prob = chosen.sample_with_log_prob(key)
            value = self.evaluate(seen, action[None])[0] - self.alpha * log_prob
            if self.filled:
                seen = jax.lax.stop_gradient(self.dynamics(seen, action))
            return (hidden, action, seen), (value, -log_prob)

        begun = actor.look(view), previous, view.observation
        return jax.lax.scan(step, begun, jax.random.split(key, self.length))[1]

    def climb(
        self,
        optimiser: Adam,
        actor: SequenceActor,
        opt_state: PyTree,
        views: View,
        previous: Float[Array, "row *action"],
        keys: Key[Array, " row"],
    ) -> tuple[SequenceActor, PyTree, Float[Array, ""]]:
        """One step up the mean over rows of a sequence's summed values. Returns actor, optimiser state, and the mean
        entropy of an action before the step.
        """

        def loss(actor: SequenceActor):
            values, entropy = jax.vmap(self.values, in_axes=(None, 0, 0, 0))(actor, views, previous, keys)
            return -jnp.mean(jnp.sum(values, axis=1)), jnp.mean(entropy)

        return gradient_step(optimiser, loss, actor, opt_state)[:3]


def fit_dynamics(
    optimiser: Adam,
    dynamics: Dynamics,
    opt_state: PyTree,
    seen: Float[Array, "row *seen"],
    actions: Float[Array, "row *action"],
    following: Float[Array, "row *seen"],
) -> tuple[Dynamics, PyTree, Float[Array, ""]]:
    """One step towards what really followed; returns the mean squared error before it, per number seen."""

    def loss(dynamics: Dynamics):
        error = jnp.mean((jax.vmap(dynamics)(seen, actions) - following) ** 2)
        return error, error

    dynamics, opt_state, error, _ = gradient_step(optimiser, loss, dynamics, opt_state)
    return dynamics, opt_state, error


@runtime_checkable
class SequenceState(Protocol):
    """What is learnt with an actor of sequences."""

    @property
    def actor(self) -> SequenceActor:
        """The actor."""
        ...

    @property
    def critics(self) -> ActionValue:
        """An ensemble of critics of single actions."""
        ...

    @property
    def dynamics(self) -> Dynamics:
        """The model of the world."""
        ...

    @property
    def temperature(self) -> PyTree:
        """State of the weight of entropy."""
        ...

    @property
    def scale(self) -> PyTree:
        """State of the observations' scaling."""
        ...

    @property
    def updates(self) -> Int[Array, ""]:
        """Updates so far."""
        ...


class SequenceLearner(eqx.Module):
    """How a method with an actor of sequences acts and is judged. A concrete one adds ``init`` and ``update``."""

    discount: Number = 0.99
    """Discount per step, in [0, 1]."""
    observations: ObservationScale = AsTheyAre()
    """Scaling of observations: AsTheyAre or RunningScale."""
    length: int = eqx.field(static=True, default=4)
    """Steps between two looks, while it learns and plays."""
    temperature: Temperature = TunedTemperature()
    """Weight of entropy: TunedTemperature or FixedTemperature."""

    def deciding(self, every: int) -> SequenceLearner:
        """The same, looking once in ``every`` steps."""
        return dataclasses.replace(self, length=every)

    def policy(self, state: SequenceState, mode: Mode) -> SequencePolicy:
        """Actor and scale."""
        return SequencePolicy(state.actor, state.scale, state.updates == 0, mode, self.length)

    def begin(self, policy: SequencePolicy, n: int) -> Script:
        """No sequence is under way."""
        return policy.begin(n)

    def act(
        self, policy: SequencePolicy, memory: Script, view: View, key: Key[Array, ""]
    ) -> tuple[PyTree, Script, PyTree]:
        """The next action of a sequence, or the first of one; what was done before it is stored."""

        def one(memory: Script, view: View, key: Key[Array, ""]) -> Any:
            return *policy(memory, self.scaled(policy.scale, view), key), {"previous": memory.previous}

        return act_rows(one, memory, view, key)

    def judge(self, state: SequenceState, episode: Transition) -> Critique:
        """Least values of the actions taken, their advantage over the soft value of looking, and disagreement."""
        alpha = self.temperature.alpha(state.temperature)
        own = Recall(least(state.critics), state.dynamics, alpha, 1)

        def one(view: View, previous: Array, action: Array, key: Key[Array, ""]) -> Any:
            view = self.scaled(state.scale, view)
            values = evaluate_ensemble(state.critics, view.observation, action[None])[:, 0]
            return values, *own.values(state.actor, view, previous, key)

        keys = jax.random.split(key_of(0), episode.reward.shape[0])
        previous = jnp.concatenate([jnp.zeros_like(episode.action[:1]), episode.action[:-1]])
        values, soft, entropy = jax.vmap(one)(episode.view, previous, episode.action, keys)
        value, spread = jnp.min(values, axis=1), jnp.std(values, axis=1)
        return Critique(value, value - soft[:, 0], spread, discount=self.discount, bonus=alpha * entropy[:, 0])

    def scaled(self, scale: PyTree, view: View) -> View:
        """One view as the nets see it."""
        return View(self.observations.apply(scale, view.observation))
