"""What methods for actors that speak have in common: a decoder that acts, whole conversations, credit, gradient steps.

A conversation is one pass of the decoder: the last transcript of an episode holds all utterances, and where each begins
is how long the transcript was when it was said. Losses are over ids that were sampled, with the log-probability that
each was sampled with; what the world said is seen, and padding is not. A concrete method chooses the parts.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.actors.language import Heard, Talking, Voice, features_of, log_probs_of
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.feeds import Episodes
from thespis.core.keys import fold
from thespis.core.records import Batch, Critique, EnvSpec, Report, Transition, View
from thespis.learners.conversations import Conversations, conversations_of
from thespis.learners.credit import Credit, Turns, Verdict
from thespis.learners.experience import AsPlayed, Experience
from thespis.learners.gradient import Number
from thespis.learners.minibatches import Columns, epochs
from thespis.learners.talker import Mind, Tuned, minded
from thespis.learners.transcripts import by_row
from thespis.learners.tuning import descended, opened
from thespis.learners.utterances import Divisor, Objective, Reference, Unheld
from thespis.objectives.normalise import explained_variance, mean, standardise
from thespis.objectives.policies import kl_k3


class SpeakingState(eqx.Module):
    """All that learning may change."""

    mind: Mind
    opt: PyTree
    talking: Talking = eqx.field(static=True)
    reference: PyTree
    """The decoder that the policy is held to; ``()`` if to none."""
    kept: PyTree = ()
    """What ``experience`` keeps."""


class Talks(eqx.Module):
    """Conversations, as a loss sees them: ``transcript[row, length]``, all else ``[time, row, ...]``."""

    transcript: Int[Array, "row length"]
    starts: Int[Array, "time row"]
    said: Int[Array, "time row utterance"]
    log_probs: Float[Array, "time row utterance"]
    verdict: Verdict
    turns: Turns
    tether: Float[Array, "time row utterance"]
    """Log-probabilities by the reference; zeros if there is none."""


class Choices(eqx.Module):
    """What a concrete method chooses."""

    credit: eqx.AbstractVar[Credit]
    objective: eqx.AbstractVar[Objective]
    divisor: eqx.AbstractVar[Divisor]


class Speaking(Tuned, Choices):
    """A language model as a method. Nothing here is overridden."""

    value_weight: Number = 0.5
    """Weight of the critic's loss, where there is one."""
    entropy_weight: Number = 0.0
    """Weight of the entropy bonus."""
    reference: Reference = Unheld()
    """What holds the policy to the model that it began as: Unheld, Held, HeldByK3 or HeldFirst."""
    experience: Experience = AsPlayed()
    """What is made of conversations before they are credited: AsPlayed, MovingMean, BySeat,
    Progress, Successes, Chosen, Revisions, Attribution, ProcessReward, Discriminator or UtteranceCritic."""
    standardised: bool = eqx.field(static=True, default=False)
    """Whether advantages are scaled to mean 0 and deviation 1 over the batch."""
    epochs: int = eqx.field(static=True, default=1)
    """Passes over each set of conversations."""
    minibatch: int = eqx.field(static=True, default=32)
    """Conversations per gradient step."""
    roles: int = eqx.field(static=True, default=1)
    """Seats that one set of parameters speaks from; conversations are compared with those of the same seat."""
    feed: Episodes = eqx.field(static=True, default=Episodes(group=8, envs=64))
    """Conversations: group (of equal beginnings), envs, turns (0: the world's)."""

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> SpeakingState:
        """The model that ``model`` names, a critic that says 0. Raises ``UserError`` for a world without words."""
        talking = Talking.of(spec)
        model = self.begun(spec, key)
        mind = minded(model, model.shape.width if self.credit.critic else 0)
        kept = jax.tree.map(jnp.copy, model) if self.reference.held else ()
        turns, held = self.feed.turns or talking.turns, dataclasses.replace(talking, roles=self.roles)
        experience = self.experience.init(model, held, turns, fold(key, "experience"))
        return SpeakingState(mind, opened(self.stepper, mind), talking, kept, experience)

    def policy(self, state: SpeakingState, mode: Mode) -> Voice:
        """The decoder."""
        return Voice(state.mind.model, self.sampling, state.talking, mode)

    def probabilities(self, policy: Voice, memory: Heard, view: View) -> Float[Array, "row choice"]:
        """Of the listed utterances. Raises ``UserError`` where none are listed."""
        if not policy.talking.choices:
            raise UserError("a language actor says what it likes here: only in worlds of listed choices can it be read")
        return policy.probabilities(view)

    def judge(self, state: SpeakingState, episode: Transition) -> Critique:
        """The critic's values of the conversation before each utterance, if there is a critic."""
        if not self.credit.critic:
            return Critique()
        steps = jax.tree.map(lambda x: x[:, None], episode)
        talks = self._talks(state, conversations_of(steps, jnp.ones(steps.reward.shape, bool)), 1)
        return Critique(value=talks.verdict.value[:, 0, 0], advantage=talks.verdict.advantage[:, 0, 0])

    def update(self, state: SpeakingState, batch: Batch, key: Key[Array, ""]) -> tuple[SpeakingState, Report]:
        """Passes over the conversations in minibatches."""
        group = min(self.feed.group, batch.mask.shape[1] // self.roles)
        told = conversations_of(batch.steps, batch.mask)
        kept, played, noted = self.experience(state.kept, told, group, fold(key, "experience"))
        talks = self._talks(state, played, group)
        stepper = self.stepper

        def step(carry: tuple[Mind, PyTree], data: tuple[Any, Any]) -> Any:
            mind, opt, metrics, norm = descended(stepper, lambda mind: self._loss(mind, *data, batch.index), *carry)
            return (mind, opt), metrics | {"gradient": norm}

        verdict, real = talks.verdict, talks.turns.real
        if self.standardised:
            advantage = jnp.where(real, standardise(verdict.advantage, real), 0.0)
            verdict = dataclasses.replace(verdict, advantage=advantage)
        by_time = (talks.starts, talks.said, talks.log_probs, verdict, real, talks.tether)
        data = Columns(by_time, talks.transcript)
        size = self.minibatch * data.shape[0]
        (mind, opt), metrics = epochs(step, (state.mind, state.opt), data, self.epochs, size, key)
        count = talks.turns.alive.sum(axis=0)
        metrics |= {"turns": count.mean(dtype="float32"), "alike": talks.turns.alike, **noted}
        if self.credit.critic:
            metrics["explained_variance"] = explained_variance(verdict.value, verdict.target, verdict.valued)
        return SpeakingState(mind, opt, state.talking, state.reference, kept), Report(metrics)

    def _talks(self, state: SpeakingState, told: Conversations, group: int) -> Talks:
        """What was said, and the credit for it, by the critic as it is."""
        real = told.real
        turns = Turns(told.reward, told.alive, told.cut, real, group, min(self.roles, real.shape[1]))
        values = None
        if self.credit.critic:
            features = features_of(state.mind.model, told.transcript, told.starts, told.said.shape[-1])
            values = state.mind.value(features)
        verdict = self.credit(turns, values)
        tether = jnp.zeros(real.shape)
        if self.reference.held:
            tether, _ = told.log_probs_by(state.reference, self.sampling)
        return Talks(told.transcript, told.starts[:-1], told.said, told.log_probs, verdict, turns, tether)

    def _loss(self, mind: Mind, by_time: Any, transcript: Array, index: Array) -> tuple[Array, dict[str, Array]]:
        starts, said, before, verdict, real, tether = by_time
        features = features_of(mind.model, transcript, starts, said.shape[-1])
        log_prob, entropy = log_probs_of(mind.model, self.sampling, features, said)
        ratio = jnp.where(real, log_prob - before, 0.0)
        losses = self.objective(log_prob, ratio, verdict.advantage)
        losses -= self.entropy_weight * entropy
        if self.reference.held:
            losses += self.reference(log_prob, ratio, tether, index)
        total = self.divisor(by_row(losses), by_row(real))
        metrics = {
            "policy_loss": total,
            "entropy": mean(entropy, real),
            "kl": mean(kl_k3(ratio), real),
            "ratio": jnp.max(jnp.where(real, jnp.abs(ratio), 0.0)),
        }
        if self.credit.critic:
            missed = mean(jnp.square(mind.value(features) - verdict.target), verdict.valued)
            total, metrics = total + self.value_weight * missed, metrics | {"critic_loss": missed}
        return total, metrics
