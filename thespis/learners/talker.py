"""What all methods have in common whose actor is a language model, whatever it learns from."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.actors.language import Heard, Voice
from thespis.core.keys import fold
from thespis.core.records import EnvSpec, View
from thespis.language.sampling import Sampling
from thespis.language.steering import linear
from thespis.learners.gradient import Adam, Number, Rate
from thespis.learners.tuning import Everything, Tuning
from thespis.learners.voices import LESSON, Compute, Origin
from thespis.nets.decoder import Decoder


class Mind(eqx.Module):
    """A decoder, and a linear critic on its features (of no width if there is none)."""

    model: Decoder
    weight: Float[Array, " features"]
    bias: Float[Array, ""]

    def value(self, features: Float[Array, "*axes features"]) -> Float[Array, "*axes"]:
        """The critic's word."""
        return linear(features, self.weight, self.bias)


def minded(model: Decoder, width: int) -> Mind:
    """A mind whose critic looks at ``width`` features and says 0."""
    return Mind(model, jnp.zeros(width), jnp.zeros(()))


class Modelled(eqx.Module):
    """What begins as a language model."""

    model: str = eqx.field(static=True, default="tiny")
    """Where parameters come from: tiny, blank, or the directory of a checkpoint."""
    layers: int = eqx.field(static=True, default=5)
    """Layers of a model that is made here."""
    width: int = eqx.field(static=True, default=128)
    """Features of a model that is made here; a multiple of 32."""
    lesson: int = eqx.field(static=True, default=LESSON.steps)
    """Gradient steps that teach a tiny model before it begins."""
    compute: Compute = eqx.field(static=True, default="float32")
    """What its products take: float32, or bfloat16, which is faster and less exact. Parameters stay as they are."""

    @property
    def origin(self) -> Origin:
        """Where parameters come from."""
        return Origin(self.model, self.layers, self.width, self.lesson, self.compute)


class Talker(Modelled):
    """A language model that acts. Nothing here is overridden."""

    temperature: Number = 1.0
    """Of sampling, above 0."""
    learning_rate: Rate = 3e-4
    """Step size: a number, Falling or Annealed."""
    max_gradient_norm: Number = 1.0
    """Global norm to which the gradient is clipped."""

    @property
    def sampling(self) -> Sampling:
        """How ids are drawn, and so what their probabilities are."""
        return Sampling(jnp.asarray(self.temperature, "float32"))

    @property
    def stepper(self) -> Adam:
        """What makes gradient steps."""
        return Adam(self.learning_rate, self.max_gradient_norm)

    def begin(self, policy: Voice, n: int) -> Heard:
        """Nothing was read yet."""
        return policy.begin(n)

    def act(self, policy: Voice, memory: Heard, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """Utterances; the extras are the log-probabilities of their ids as sampled."""
        return policy.act(memory, view, key)


class Tuned(Talker):
    """A language model that learns. Nothing here is overridden."""

    tuned: Tuning = Everything()
    """What learns of the model: Everything, or Adapters (LoRA)."""

    def begun(self, spec: EnvSpec, key: Key[Array, ""]) -> Decoder:
        """The model as it begins. Raises ``UserError`` for a checkpoint that does not fit the world."""
        return self.tuned.begun(self.origin.begun(spec, fold(key, "model")), fold(key, "adapters"))
