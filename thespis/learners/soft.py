"""What soft actor-critics have in common: an actor that climbs action values and its own entropy, and how it is judged.

A concrete method adds its fields, its critics and an ``update``; nothing here is overridden.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.actors.heads import act_rows
from thespis.actors.soft import AS_PUBLISHED, Soft, SoftPolicy
from thespis.core.contracts import Mode
from thespis.core.keys import key_of
from thespis.core.records import Critique, Transition, View
from thespis.critics.values import ActionValue, evaluate_ensemble, seen_by_critics
from thespis.learners.gradient import Adam, Number, gradient_step
from thespis.learners.normalisers import AsTheyAre, ObservationScale
from thespis.objectives.normalise import mean

Actor = TypeVar("Actor", bound=Soft)
Evaluate = Callable[[PyTree, PyTree], Float[Array, " k"]]
"""Values of ``k`` actions for one observation."""
Cost = Callable[[Any, View], Float[Array, ""]]
"""What a distribution in one view costs."""
Candidates = tuple[PyTree, Float[Array, " k"], Float[Array, " k"]]
"""Actions, their weights, their log-probabilities: see :mod:`thespis.actors.distributions`."""
Draw = Callable[[Any, Key[Array, ""]], Candidates]
"""How a distribution's candidates are drawn."""
Rise = Callable[[Float[Array, " k"], Float[Array, " k"], Float[Array, " k"]], Float[Array, ""]]
"""What is climbed in one view, of the candidates' weights, values and bonuses for entropy."""
Verdict = tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""] | None, Float[Array, ""]]
"""Value and advantage of one action, the critics' disagreement if there are several, the bonus for entropy."""


@runtime_checkable
class SoftState(Protocol):
    """What the state of every soft actor-critic has."""

    @property
    def actor(self) -> Soft:
        """The actor that explores and exploits."""
        ...

    @property
    def scale(self) -> PyTree:
        """State of the observations' scaling."""
        ...

    @property
    def updates(self) -> Int[Array, ""]:
        """Updates so far."""
        ...


class SoftActorCritic(eqx.Module):
    """How a method with a soft actor acts and is judged."""

    discount: Number = 0.99
    """Discount per step, in [0, 1]."""
    observations: ObservationScale = AsTheyAre()
    """Scaling of observations: AsTheyAre or RunningScale."""

    @abc.abstractmethod
    def verdict(self, state: Any, view: View, told: PyTree, actions: PyTree, key: Key[Array, ""]) -> Verdict:
        """Of one scaled view, what only critics see there (or ``None``) and the action taken (on an axis of 1), in the
        world's units of reward.
        """

    def policy(self, state: SoftState, mode: Mode) -> SoftPolicy:
        """Actor and scale."""
        return SoftPolicy(state.actor, state.scale, state.updates == 0, mode)

    def begin(self, policy: SoftPolicy, n: int) -> tuple[()]:
        """No memory."""
        return ()

    def act(self, policy: SoftPolicy, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """A sample, or the mode when it exploits."""

        def one(memory, view, key):
            return policy(self.scaled(policy.scale, view), key), memory, ()

        return act_rows(one, memory, view, key)

    def judge(self, state: SoftState, episode: Transition) -> Critique:
        """Action values, their advantage over the value of the state, and disagreement, of one episode ``[time]``."""

        def one(view, privileged, action, key):
            actions = jax.tree.map(lambda x: x[None], action)
            return self.verdict(state, self.scaled(state.scale, view), privileged, actions, key)

        keys = jax.random.split(key_of(0), episode.reward.shape[0])
        value, advantage, spread, bonus = jax.vmap(one)(episode.view, episode.privileged, episode.action, keys)
        return Critique(value, advantage, spread, discount=self.discount, bonus=bonus)

    def scaled(self, scale: PyTree, view: View) -> View:
        """One view as the nets see it."""
        return View(self.observations.apply(scale, view.observation), view.legal)


def least(critics: ActionValue) -> Evaluate:
    """The least value among the members of an ensemble, as a remedy against over-estimation (Fujimoto et al., 2018)."""
    return lambda observation, actions: jnp.min(evaluate_ensemble(critics, observation, actions), axis=0)


def candidates(distribution: Any, key: Key[Array, ""]) -> Candidates:
    """As the distribution itself draws them."""
    return distribution.candidates(key)


def soft_value(
    actor: Soft,
    evaluate: Evaluate,
    alpha: Float[Array, ""],
    view: View,
    key: Key[Array, ""],
    privileged: PyTree = None,
    draw: Draw = candidates,
    rise: Rise = AS_PUBLISHED.rise,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """``E_a[Q(o, a) - alpha log pi(a|o)]`` of one view, and the actor's entropy there in nats.

    Both are exact sums for a discrete choice, one reparameterised sample for a continuous action. ``privileged`` is
    what critics see in place of the observation. With another ``rise`` the first is what that makes of the candidates.
    """
    actions, weights, log_probs = draw(actor(view), key)
    q = evaluate(seen_by_critics(privileged, view.observation), actions)
    return rise(weights, q, -alpha * log_probs), -jnp.sum(weights * log_probs)


def climb(
    optimiser: Adam,
    actor: Actor,
    opt_state: PyTree,
    evaluate: Evaluate,
    alpha: Float[Array, ""],
    views: View,
    keys: Key[Array, " row"],
    privileged: PyTree = None,
    alive: Bool[Array, " row"] | None = None,
    cost: Cost | None = None,
    draw: Draw = candidates,
    rise: Rise = AS_PUBLISHED.rise,
) -> tuple[Actor, PyTree, tuple[Float[Array, " row"], Float[Array, ""]], Float[Array, ""]]:
    """One step of the actor up the mean soft value of ``views`` ``[row, ...]``, those where it is ``alive``.

    ``cost`` of its distribution in a view is taken from the value that it climbs, not from the one returned.
    Returns actor, optimiser state, what was there before the step (soft values, mean entropy), gradient norm.
    """

    def loss(actor):
        def one(view, key, privileged):
            return soft_value(actor, evaluate, alpha, view, key, privileged, draw, rise)

        values, entropy = jax.vmap(one)(views, keys, privileged)
        found = -mean(values, alive), (values, mean(entropy, alive))
        if cost is None:
            return found
        paid = jax.vmap(lambda view, cost=cost: cost(actor(view), view))(views)
        return found[0] + mean(paid, alive), found[1]

    return gradient_step(optimiser, loss, actor, opt_state)
