r"""CriticControl: a language model that never changes, and a critic of its texts by which its words are weighed.

.. math:: p(a|s) \propto \pi(a|s) \frac{\sigma(V(s, a))}{\sigma(V(s))}

for likely ids ``a``. The critic is a linear head on the frozen model. It learns from what the model says unsteered, by
generalised advantages over ids, from a reward that needs no gradient and may be any number: the log-odds of a
classifier, so that its sigmoid is a probability. Evaluation and play are steered; ``strength=0`` is the model itself.

Source: Kim et al., 2022; what is not in its abstract was read from the authors' code, not from the paper. Differs: a
text is valued behind its last id too, where all of its reward is told, since texts may end of themselves; no clipping
of values and no words that are barred from repeating; what is drawn has probabilities that add up to one, where their
code takes the softmax of such probabilities once more (sentiment), or the likeliest id (topics).
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.actors.language import Talking, Voice, features_of
from thespis.core.contracts import Mode
from thespis.core.feeds import Episodes
from thespis.core.keys import fold
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Report, Transition
from thespis.language.steering import ByCritic
from thespis.learners.credit import TokenCritic, Turns, Verdict
from thespis.learners.gradient import Number, Rate, gradient_step
from thespis.learners.talker import Mind, Talker, minded
from thespis.learners.transcripts import Told
from thespis.objectives.normalise import explained_variance, mean


class ControlState(eqx.Module):
    """All that learning may change, and the model, which it does not."""

    mind: Mind
    opt: PyTree
    talking: Talking = eqx.field(static=True)


class CriticControl(Talker):
    """Critic-guided decoding for conversations of any number of turns."""

    credit: TokenCritic = TokenCritic(0.95, 0.99)
    """What the critic learns towards: trace and discount, by id."""
    strength: Number = 1.0
    """Power of the critic's ratio; 0: the model is not steered."""
    likely: int = eqx.field(static=True, default=10)
    """How many of the likeliest ids are weighed; others are left as they are."""
    learning_rate: Rate = 3e-2
    """Step size of the critic."""
    steps: int = eqx.field(static=True, default=8)
    """Gradient steps of the critic on each batch."""
    roles: int = eqx.field(static=True, default=1)
    """Seats that the model speaks from."""
    feed: Episodes = eqx.field(static=True, default=Episodes(envs=64))
    """Conversations: envs, turns (0: the world's)."""

    name: ClassVar[str] = "critic-control"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Critic-Guided Decoding for Controlled Text Generation", "Kim et al.", 2022, "arXiv:2212.10938"),
    )
    details: ClassVar[tuple[str, ...]] = ("the language model is frozen", "unsteered while it learns")

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> ControlState:
        """The model that ``model`` names, a critic that says 0. Raises ``UserError`` for a world without words."""
        talking = dataclasses.replace(Talking.of(spec), roles=self.roles)
        model = self.origin.begun(spec, fold(key, "model"))
        mind = minded(model, model.shape.width)
        return ControlState(mind, self.stepper.init((mind.weight, mind.bias)), talking)

    def policy(self, state: ControlState, mode: Mode) -> Voice:
        """The decoder; steered, but for the texts that the critic learns from."""
        mind = state.mind
        voice = Voice(mind.model, self.sampling, state.talking, mode)
        if mode is Mode.EXPLORE:
            return voice
        strength = jnp.asarray(self.strength, "float32")
        return dataclasses.replace(voice, steering=ByCritic(mind.weight, mind.bias, strength, self.likely))

    def judge(self, state: ControlState, episode: Transition) -> Critique:
        """The critic's values before each utterance."""
        steps = jax.tree.map(lambda x: x[:, None], episode)
        told = Told.of(steps, jnp.ones(steps.reward.shape, bool))
        verdict, _ = self.verdict(state.mind, told)
        return Critique(value=verdict.value[:, 0, 0], advantage=verdict.advantage[:, 0, 0])

    def update(self, state: ControlState, batch: Batch, key: Key[Array, ""]) -> tuple[ControlState, Report]:
        """Steps of the critic towards targets that stay as they are for the batch."""
        verdict, features = self.verdict(state.mind, Told.of(batch.steps, batch.mask))
        stepper, mind = self.stepper, state.mind

        def lost(head: tuple[Array, Array]) -> tuple[Array, Array]:
            value = Mind(mind.model, *head).value(features)
            missed = mean(jnp.square(value - verdict.target), verdict.valued)
            return missed, missed

        def step(carry: Any, _: None) -> Any:
            head, opt, missed, norm = gradient_step(stepper, lost, *carry)
            return (head, opt), {"critic_loss": missed, "gradient": norm}

        (head, opt), metrics = jax.lax.scan(step, ((mind.weight, mind.bias), state.opt), None, self.steps)
        metrics = jax.tree.map(jnp.mean, metrics)
        metrics["explained_variance"] = explained_variance(verdict.value, verdict.target, verdict.valued)
        return ControlState(Mind(mind.model, *head), opt, state.talking), Report(metrics)

    def verdict(self, mind: Mind, told: Told) -> tuple[Verdict, Float[Array, "time row place features"]]:
        """Values and their targets before each id and behind the last, and the features that they are made of."""
        width = told.said.shape[-1] + 1
        features = features_of(mind.model, told.transcript, told.starts, width)
        stands = told.alive[..., None] & (jnp.arange(width) <= told.real.sum(axis=-1, keepdims=True))
        turns = Turns(told.reward, told.alive, told.cut, stands, 1)
        return self.credit(turns, mind.value(features)), features[:-1]
