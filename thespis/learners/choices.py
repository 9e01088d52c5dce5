"""What methods that learn the values of one discrete choice have in common: a net, its slow copy, how it is judged.

A concrete method adds its fields, how it acts and an ``update``; of what stands here only :meth:`ChoiceLearner.net`
may be overridden.
"""

from __future__ import annotations

import abc
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.actors.distributions import IMPOSSIBLE
from thespis.core.errors import UserError
from thespis.core.records import Critique, EnvSpec, Transition, View
from thespis.core.spaces import Discrete
from thespis.critics.values import ChoiceValue, ensemble
from thespis.learners.gradient import Number, Optimiser, polyak


@runtime_checkable
class Choosing(Protocol):
    """``Q(o, ·)`` of every choice at once."""

    def all(self, observation: PyTree) -> Float[Array, " n"]:
        """The values of every choice."""
        ...


Nets = TypeVar("Nets", bound=Choosing)


class ChoiceState(eqx.Module, Generic[Nets]):
    """All that is learnt; nets carry a leading axis of members, often of one."""

    critic: Nets
    target: Nets
    opt: PyTree
    updates: Int[Array, ""]


class ChoiceLearner(eqx.Module):
    """Values of one discrete choice."""

    name: eqx.AbstractClassVar[str]
    target_every: eqx.AbstractVar[int]

    discount: Number = 0.99
    """Discount per step, in [0, 1]."""
    max_gradient_norm: Number = 10.0
    """Global norm to which the gradient is clipped."""
    duelling: bool = eqx.field(static=True, default=False)
    """Separate streams of state value and advantage."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    """Units of each hidden layer."""

    @property
    @abc.abstractmethod
    def members(self) -> int:
        """How many nets learn side by side."""

    @abc.abstractmethod
    def stepper(self) -> Optimiser:
        """How gradients become steps."""

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> ChoiceState:
        """A fresh net and its copy."""
        if not isinstance(spec.action, Discrete):
            raise UserError(
                f"{self.name} needs one discrete choice, {spec.name} has {spec.action}: use ppo, a2c, sac or td3"
            )
        critic = ensemble(lambda k: self.net(spec, k), self.members, key)
        return ChoiceState(critic, critic, self.stepper().init(critic), jnp.zeros((), "int32"))

    def net(self, spec: EnvSpec, key: Key[Array, ""]) -> Any:
        """One fresh member."""
        return ChoiceValue(spec, self.hidden, key, duelling=self.duelling)

    def judge(self, state: ChoiceState, episode: Transition) -> Critique:
        """Members' mean values of the choices taken, their advantage over the best one, and members' disagreement."""
        values = jax.vmap(lambda view: legal_values(state.critic, view))(episode.view)
        every = jnp.take_along_axis(values, episode.action[:, None, None], axis=2)[:, :, 0]
        taken, best = jnp.mean(every, axis=1), jnp.max(jnp.mean(values, axis=1), axis=1)
        spread = jnp.std(every, axis=1) if self.members > 1 else None
        return Critique(value=taken, advantage=taken - best, spread=spread, discount=self.discount)

    def renewed(self, state: ChoiceState, critic: Any, opt: PyTree) -> ChoiceState:
        """The state after one more update; the target is copied every ``target_every`` of them."""
        updates = state.updates + 1
        copy = (updates % self.target_every == 0).astype("float32")
        return ChoiceState(critic, polyak(state.target, critic, copy), opt, updates)


def choice_values(critic: Choosing, view: View) -> Float[Array, "members n"]:
    """Values of every choice by every member, whether legal or not."""
    return jax.vmap(lambda member: member.all(view.observation))(critic)


def legal_values(critic: Choosing, view: View) -> Float[Array, "members n"]:
    """Values of every choice by every member; those of illegal choices are far below any other."""
    return masked(choice_values(critic, view), view.legal)


def masked(values: Float[Array, "*axes n"], legal: Bool[Array, "*legal n"] | None) -> Float[Array, "*axes n"]:
    """``values``, those of illegal choices far below any other."""
    return values if legal is None else jnp.where(legal, values, IMPOSSIBLE)
