"""An encoder of episodes that learns by contrast: what belongs to one episode is told from what belongs to others."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Key, PyTree

from thespis.core.keys import fold
from thespis.core.records import Batch
from thespis.core.spaces import Space
from thespis.core.spread import whole
from thespis.learners.gradient import Adam, Number, gradient_step
from thespis.nets.mlp import Linear, orthogonal
from thespis.nets.pooling import Pooled, Pooling
from thespis.objectives.contrast import info_nce


class Contrasted(eqx.Module):
    """The encoder, the layer behind which views are compared, and the state of their optimiser."""

    encoder: Pooling
    compared: Linear
    opt: PyTree


class Contrast(eqx.Module):
    """Windows of steps, each split at random into two halves; the halves of a window must find each other."""

    learning_rate: Number = 1e-3
    """Step size of the encoder."""
    temperature: Number = 0.1
    """Divides cosines in the loss, above 0."""
    max_gradient_norm: Number = 0.5
    """Global norm to which the encoder's gradient is clipped."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(64,))
    """Units of each hidden layer of the encoder."""
    size: int = eqx.field(static=True, default=8)
    """Numbers that an episode so far becomes."""
    window: int = eqx.field(static=True, default=16)
    """Steps of a window, which ends early with its episode; what is left of a rollout behind the last is not used."""
    passes: int = eqx.field(static=True, default=4)
    """Steps of the encoder on each rollout, every time with other halves."""

    def init(self, space: Space, key: Key[Array, ""]) -> Contrasted:
        """A fresh encoder of what is in ``space``."""
        encoder = Pooling(space, self.hidden, self.size, fold(key, "encoder"))
        compared = Linear(self.size, self.size, orthogonal(1.0), fold(key, "compared"))
        return Contrasted(encoder, compared, self._stepper().init((encoder, compared)))

    def learn(
        self, model: Contrasted, known: Pooled, batch: Batch, key: Key[Array, ""]
    ) -> tuple[Contrasted, dict[str, Array]]:
        """All passes over one rollout, before which ``known`` was known; and metrics."""
        steps = batch.steps
        rollout = whole((known.last, steps.view.observation, steps.first))
        counts = whole(batch.mask if steps.view.alive is None else batch.mask & steps.view.alive)

        def step(carry: tuple[Any, PyTree], key: Key[Array, ""]) -> Any:
            nets, opt, found, _ = gradient_step(
                self._stepper(), lambda nets: self.loss(nets[0], nets[1], rollout, counts, key), *carry
            )
            return (nets, opt), found

        keys = jax.random.split(key, self.passes)
        begun = (model.encoder, model.compared), model.opt
        (nets, opt), found = jax.lax.scan(step, begun, keys)
        return Contrasted(*nets, opt), jax.tree.map(jnp.mean, found)

    def loss(
        self, encoder: Pooling, compared: Linear, rollout: Any, counts: Bool[Array, "time row"], key: Key[Array, ""]
    ) -> tuple[Array, dict[str, Array]]:
        """Of the halves of every window of ``rollout``: features before it, observations, where episodes begin."""
        length = min(self.window, counts.shape[0])

        def cut(x: Array) -> Array:
            x = x[: len(x) // length * length].reshape(-1, length, *x.shape[1:])
            return jnp.moveaxis(x, 2, 1).reshape(-1, length, *x.shape[3:])

        steps, counts, first = jax.tree.map(cut, (encoder.steps(*rollout), counts, rollout[2]))
        counts = counts & (jnp.cumsum(first.at[:, 0].set(False), axis=1) == 0)
        half = jax.random.bernoulli(key, 0.5, counts.shape)
        one, other = counts & half, counts & ~half
        compare, whole_pair = jax.vmap(compared), one.any(1) & other.any(1)
        loss, found = info_nce(compare(steps.pooled(one)), compare(steps.pooled(other)), whole_pair, self.temperature)
        return loss, {"contrast_loss": loss, "contrast_found": found}

    def _stepper(self) -> Adam:
        return Adam(self.learning_rate, self.max_gradient_norm)
