"""Utterances that a world lists, chosen by number: methods for one discrete choice, whose actor is a language model.

The model finds every listed utterance as likely as it is; among them the method inside chooses and learns. A turn is a
step, a transcript all there is to see.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree

from thespis.actors.distributions import Categorical
from thespis.actors.language import Talking
from thespis.actors.listed import ListedActor
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.feeds import Feed
from thespis.core.goals import Goals
from thespis.core.keys import fold
from thespis.core.records import Batch, Critique, EnvSpec, Report, Transition, View
from thespis.core.spaces import Discrete
from thespis.critics.listed import TextHead
from thespis.learners.talker import Modelled
from thespis.nets.listing import Listing, padded


class ListedActorCritic(eqx.Module):
    """One decoder for an actor of listed utterances and a critic of what stands before them."""

    actor: ListedActor
    head: TextHead

    def begin(self, n: int) -> tuple[()]:
        """Nothing is remembered: what is seen says it all."""
        return ()

    def choose(self, memory: Any, view: View) -> tuple[Categorical, Any]:
        """The distribution over utterances for one view."""
        return self.actor(view), memory

    def distributions(self, memory: Any, views: View, first: Bool[Array, "time row"]) -> Categorical:
        """The distributions of a whole rollout, leaves ``[time, row, ...]``."""
        return jax.vmap(jax.vmap(self.actor))(View(views.observation, views.legal))

    def values(self, memory: Any, seen: PyTree, first: Bool[Array, "time row"]) -> tuple[Float[Array, "time row"], Any]:
        """Values of all conversations so far."""
        return self.next_values(memory, seen), memory

    def next_values(self, memories: Any, seen: PyTree) -> Float[Array, "time row"]:
        """Values of conversations."""
        return jax.vmap(jax.vmap(lambda text: self.head(self.actor.listing.before(text))[0]))(seen)


class ListedState(eqx.Module):
    """What the method inside has learnt; the list, and goals that could have been others, if there are any."""

    learnt: PyTree
    talking: Talking = eqx.field(static=True)
    goals: Goals | None = eqx.field(static=True)


class Choosing(eqx.Module):
    """What acts: the policy of the method inside, and the list."""

    actor: PyTree
    talking: Talking = eqx.field(static=True)


class Inside(eqx.Module):
    """What a concrete method names."""

    method: eqx.AbstractVar[Any]


class Listed(Modelled, Inside):
    """A method for listed utterances. A concrete one says by which ``method`` it learns, from what, and how."""

    recent: int = eqx.field(static=True, default=0)
    """How many ids of a conversation are read, the last ones; 0: all."""

    @abc.abstractmethod
    def begun(self, spec: EnvSpec, listing: Listing, key: Key[Array, ""]) -> PyTree:
        """What the method inside begins as, in a world whose choices are numbered."""

    @abc.abstractmethod
    def learn(self, state: ListedState, batch: Batch, key: Key[Array, ""]) -> tuple[PyTree, Report]:
        """What it has learnt after a batch whose actions are numbers."""

    @property
    def feed(self) -> Feed:
        """What the method inside eats."""
        return self.method.feed

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> ListedState:
        """The model that ``model`` names. Raises ``UserError`` for a world that lists no utterances."""
        talking = Talking.of(spec)
        if not talking.choices:
            raise UserError(f"{spec.name} does not list what may be said (text:maze does): use grpo or ppo-lm")
        listing = Listing(self.origin.begun(spec, fold(key, "model")), talking.choices, self.recent)
        numbered = dataclasses.replace(spec, action=Discrete(len(talking.choices)))
        return ListedState(self.begun(numbered, listing, fold(key, "nets")), talking, spec.goals)

    def policy(self, state: ListedState, mode: Mode) -> Choosing:
        """That of the method inside."""
        return Choosing(self.method.policy(state.learnt, mode), state.talking)

    def begin(self, policy: Choosing, n: int) -> Any:
        """That of the method inside."""
        return self.method.begin(policy.actor, n)

    def act(self, policy: Choosing, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """Utterances, and what the method inside says beside them."""
        number, memory, extras = self.method.act(policy.actor, memory, view, key)
        return jnp.asarray(padded(policy.talking.choices, policy.talking.utterance))[number], memory, extras

    def judge(self, state: ListedState, episode: Transition) -> Critique:
        """The opinion of the method inside."""
        return self.method.judge(state.learnt, numbered(state.talking, episode))

    def update(self, state: ListedState, batch: Batch, key: Key[Array, ""]) -> tuple[ListedState, Report]:
        """One update of the method inside."""
        batch = dataclasses.replace(batch, steps=numbered(state.talking, batch.steps))
        learnt, report = self.learn(state, batch, key)
        return dataclasses.replace(state, learnt=learnt), report


def numbered(talking: Talking, steps: Transition) -> Transition:
    """Steps whose actions are numbers of utterances in place of their ids; what is not listed counts as the first."""
    said = (steps.action[..., None, :] == padded(talking.choices, talking.utterance)).all(axis=-1)
    return dataclasses.replace(steps, action=jnp.argmax(said, axis=-1).astype("int32"))
