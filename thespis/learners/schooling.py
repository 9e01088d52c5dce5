"""What methods have in common whose language model learns from conversations that were had, or written, by others.

No conversation is played: a batch is whole conversations of a dataset, a loss is over the ids that were said in them,
beside a reference, and a critic that reads along, where a method wants them.
"""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.actors.language import Talking, Voice
from thespis.core.contracts import Mode
from thespis.core.records import Batch, Critique, EnvSpec, Report, Transition
from thespis.learners.appraising import Appraiser
from thespis.learners.talker import Tuned
from thespis.learners.transcripts import Told, as_critics_read
from thespis.learners.tuning import descended, opened
from thespis.nets.decoder import Decoder


class SchooledState(eqx.Module):
    """All that learning may change."""

    model: Decoder
    opt: PyTree
    talking: Talking = eqx.field(static=True)
    reference: PyTree
    """The decoder that the model is compared with; ``()`` if with none."""
    critic: PyTree
    """The critic and its optimiser; ``()`` if there is none."""


class Lesson(eqx.Module):
    """What a loss may look at beside the model."""

    told: Told
    tether: Float[Array, "time row utterance"]
    """Log-probabilities by the reference; zeros if there is none."""
    values: PyTree
    """What the critic says before each id and behind the last, ``[turns, row, utterance]``; the critic itself if it
    says nothing of states; ``()`` without one.
    """
    steps: Transition
    """The steps that it was made of."""
    talking: Talking = eqx.field(static=True)
    reference: PyTree
    key: Key[Array, ""]
    index: int | Int[Array, ""] = 0
    """Updates that were made before."""

    def any_turn(self) -> tuple[Int[Array, "row length"], Int[Array, " row"], Int[Array, " row"]]:
        """What was said before a turn of each conversation, drawn uniformly; which turn it is, the rows' numbers."""
        rows = jnp.arange(self.told.alive.shape[1])
        turn = jax.random.categorical(self.key, jnp.where(self.told.alive, 0.0, -jnp.inf), axis=0)
        return self.steps.view.observation[turn, rows], turn, rows


class Choices(eqx.Module):
    """What a concrete method is made of."""

    critic: eqx.AbstractVar[Appraiser]
    held: eqx.AbstractClassVar[bool]
    """Whether a reference is kept: the model as it began."""


class Schooled(Tuned, Choices):
    """A language model that learns from a dataset. A concrete method says what is lost; nothing is overridden."""

    renewed: int = eqx.field(static=True, default=0)
    """Updates after which the reference, where there is one, is what the model is by then; 0: it never changes."""
    informed: bool = eqx.field(static=True, default=True)
    """Whether the critic reads what the world tells critics alone, where it does."""

    @abc.abstractmethod
    def lost(self, model: Decoder, lesson: Lesson) -> tuple[Float[Array, ""], dict[str, Array]]:
        """What is to be minimised, and metrics."""

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> SchooledState:
        """The model that ``model`` names. Raises ``UserError`` for a world without words."""
        talking = Talking.of(spec)
        model = self.begun(spec, key)
        kept = jax.tree.map(jnp.copy, model) if self.held else ()
        return SchooledState(model, opened(self.stepper, model), talking, kept, self.critic.begun(model))

    def policy(self, state: SchooledState, mode: Mode) -> Voice:
        """The decoder."""
        return Voice(state.model, self.sampling, state.talking, mode)

    def judge(self, state: SchooledState, episode: Transition) -> Critique:
        """The critic's values of the conversation before each utterance, if there is a critic."""
        steps = jax.tree.map(lambda x: x[:, None], episode)
        told = self._read(steps, jnp.ones(steps.reward.shape, bool))
        values: Any = self.critic.values(state.critic, state.reference, told)
        return Critique() if values is None else Critique(value=values[:-1, 0, 0])

    def update(self, state: SchooledState, batch: Batch, key: Key[Array, ""]) -> tuple[SchooledState, Report]:
        """A step of the critic on whole conversations, then one of the model."""
        told, reference = Told.of(batch.steps, batch.mask), state.reference
        if self.held and self.renewed:
            due = batch.index % self.renewed == 0
            reference = jax.tree.map(lambda new, old: jnp.where(due, new, old), state.model, reference)
        tether = jnp.zeros(told.real.shape)
        if self.held:
            tether = jax.lax.stop_gradient(told.log_probs_by(reference, self.sampling)[0])
        ratio = ()
        if self.critic.soft:
            ratio = jax.lax.stop_gradient(told.log_probs_by(state.model, self.sampling)[0]) - tether
        read = self._read(batch.steps, batch.mask)
        critic, values, metrics = self.critic.learn(state.critic, reference, read, ratio, batch.index)
        lesson = Lesson(told, tether, values, batch.steps, state.talking, reference, key, batch.index)

        def loss(model: Decoder) -> tuple[Array, dict[str, Array]]:
            total, found = self.lost(model, lesson)
            return jnp.where(batch.index < self.critic.first, 0.0, total), {"policy_loss": total} | found

        model, opt, found, norm = descended(self.stepper, loss, state.model, state.opt)
        report = Report(metrics | found | {"gradient": norm})
        return SchooledState(model, opt, state.talking, reference, critic), report

    def _read(self, steps: Transition, mask: Bool[Array, "time row"]) -> Told:
        """The conversations as the critic reads them."""
        return Told.of(as_critics_read(steps) if self.informed else steps, mask)
