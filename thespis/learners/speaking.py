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
from thespis.core.feeds import Episodes
from thespis.core.keys import fold
from thespis.core.records import Batch, Critique, EnvSpec, Report, Transition, View
from thespis.language.sampling import Sampling
from thespis.learners.credit import Credit, Turns, Verdict
from thespis.learners.gradient import Adam, Number, Rate, gradient_step
from thespis.learners.minibatches import Columns, epochs
from thespis.learners.utterances import Divisor, Objective, Reference, Unheld
from thespis.learners.voices import Origin
from thespis.nets.decoder import Decoder
from thespis.objectives.normalise import explained_variance, mean, standardise
from thespis.objectives.policies import kl_k3


class Mind(eqx.Module):
    """What learns: the decoder, and a linear critic on its features (of no width if there is none)."""

    model: Decoder
    weight: Float[Array, " features"]
    bias: Float[Array, ""]

    def value(self, features: Float[Array, "*axes features"]) -> Float[Array, "*axes"]:
        """The critic's word; features have norm ``sqrt(width)``, which would make its gradient drown the actor's."""
        return features @ self.weight / max(self.weight.shape[0], 1) ** 0.5 + self.bias


class SpeakingState(eqx.Module):
    """All that learning may change."""

    mind: Mind
    opt: PyTree
    talking: Talking = eqx.field(static=True)
    reference: PyTree
    """The decoder that the policy is held to; ``()`` if to none."""


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


class Speaking(eqx.Module):
    """A language model as a method. Nothing here is overridden."""

    credit: eqx.AbstractVar[Credit]
    objective: eqx.AbstractVar[Objective]
    divisor: eqx.AbstractVar[Divisor]

    model: str = eqx.field(static=True, default="tiny")
    """Where parameters come from: tiny, blank, or the directory of a checkpoint."""
    layers: int = eqx.field(static=True, default=5)
    """Layers of a model that is made here."""
    width: int = eqx.field(static=True, default=128)
    """Features of a model that is made here; a multiple of 32."""
    temperature: Number = 1.0
    """Of sampling, above 0."""
    learning_rate: Rate = 3e-4
    """Step size."""
    max_gradient_norm: Number = 1.0
    """Global norm to which the gradient is clipped."""
    value_weight: Number = 0.5
    """Weight of the critic's loss, where there is one."""
    entropy_weight: Number = 0.0
    """Weight of the entropy bonus."""
    reference: Reference = Unheld()
    """What holds the policy to the model that it began as: Unheld, Held or HeldByK3."""
    standardised: bool = eqx.field(static=True, default=False)
    """Whether advantages are scaled to mean 0 and deviation 1 over the batch."""
    epochs: int = eqx.field(static=True, default=1)
    """Passes over each set of conversations."""
    minibatch: int = eqx.field(static=True, default=32)
    """Conversations per gradient step."""
    feed: Episodes = eqx.field(static=True, default=Episodes(group=8, envs=64))
    """Conversations: group (of equal beginnings), envs, turns (0: the world's)."""

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> SpeakingState:
        """The model that ``model`` names, a critic that says 0. Raises ``UserError`` for a world without words."""
        talking = Talking.of(spec)
        model = self.origin.begun(spec, fold(key, "model"))
        width = model.shape.width if self.credit.critic else 0
        mind = Mind(model, jnp.zeros(width), jnp.zeros(()))
        kept = jax.tree.map(jnp.copy, model) if self.reference.held else ()
        return SpeakingState(mind, self._stepper().init(mind), talking, kept)

    @property
    def origin(self) -> Origin:
        """Where parameters come from."""
        return Origin(self.model, self.layers, self.width)

    def policy(self, state: SpeakingState, mode: Mode) -> Voice:
        """The decoder."""
        return Voice(state.mind.model, self._sampling(), state.talking, mode)

    def begin(self, policy: Voice, n: int) -> Heard:
        """Nothing was read yet."""
        return policy.begin(n)

    def act(self, policy: Voice, memory: Heard, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """Utterances; the extras are the log-probabilities of their ids as sampled."""
        return policy.act(memory, view, key)

    def judge(self, state: SpeakingState, episode: Transition) -> Critique:
        """The critic's values of the conversation before each utterance, if there is a critic."""
        if not self.credit.critic:
            return Critique()
        steps = jax.tree.map(lambda x: x[:, None], episode)
        talks = self._talks(state, steps, jnp.ones(steps.reward.shape, bool))
        return Critique(value=talks.verdict.value[:, 0, 0], advantage=talks.verdict.advantage[:, 0, 0])

    def update(self, state: SpeakingState, batch: Batch, key: Key[Array, ""]) -> tuple[SpeakingState, Report]:
        """Passes over the conversations in minibatches."""
        talks = self._talks(state, batch.steps, batch.mask)
        stepper = self._stepper()

        def step(carry: tuple[Mind, PyTree], data: tuple[Any, Any]) -> Any:
            mind, opt, metrics, norm = gradient_step(stepper, lambda mind: self._loss(mind, *data), *carry)
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
        metrics["turns"] = count.mean(dtype="float32")
        if self.credit.critic:
            metrics["explained_variance"] = explained_variance(verdict.value, verdict.target, verdict.valued)
        return SpeakingState(mind, opt, state.talking, state.reference), Report(metrics)

    def _talks(self, state: SpeakingState, steps: Transition, mask: Array) -> Talks:
        """What was said, and the credit for it, by the critic as it is."""
        last = jnp.maximum(mask.sum(axis=0) - 1, 0)
        rows = jnp.arange(mask.shape[1])
        transcript = steps.next_view.observation[last, rows]
        ends = (transcript >= 0).sum(axis=1)
        starts = jnp.concatenate([(steps.view.observation >= 0).sum(axis=-1), ends[None]])
        real = (steps.action >= 0) & mask[..., None]
        cut = ~steps.terminated[last, rows]
        turns = Turns(steps.reward, mask, cut, real, min(self.feed.group, mask.shape[1]))
        values = None
        if self.credit.critic:
            values = state.mind.value(features_of(state.mind.model, transcript, starts, real.shape[-1]))
        verdict = self.credit(turns, values)
        tether = jnp.zeros(real.shape)
        if self.reference.held:
            seen = features_of(state.reference, transcript, starts[:-1], real.shape[-1])
            tether, _ = log_probs_of(state.reference, self._sampling(), seen, steps.action)
        return Talks(transcript, starts[:-1], steps.action, steps.extras, verdict, turns, tether)

    def _loss(self, mind: Mind, by_time: Any, transcript: Array) -> tuple[Array, dict[str, Array]]:
        starts, said, before, verdict, real, tether = by_time
        features = features_of(mind.model, transcript, starts, said.shape[-1])
        log_prob, entropy = log_probs_of(mind.model, self._sampling(), features, said)
        ratio = jnp.where(real, log_prob - before, 0.0)
        losses = self.objective(log_prob, ratio, verdict.advantage)
        losses -= self.entropy_weight * entropy
        if self.reference.held:
            losses += self.reference(log_prob, ratio, tether)
        total = self.divisor(_by_row(losses), _by_row(real))
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

    def _sampling(self) -> Sampling:
        return Sampling(jnp.asarray(self.temperature, "float32"))

    def _stepper(self) -> Adam:
        return Adam(self.learning_rate, self.max_gradient_norm)


def _by_row(x: Array) -> Array:
    """``[time, row, utterance]`` as ``[row, time * utterance]``."""
    return x.transpose(1, 0, 2).reshape(x.shape[1], -1)
