"""Gradient steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

Params = TypeVar("Params")
Number = float | int | Float[Array, ""]


class Falling(eqx.Module):
    r"""A step size that falls with the number of steps, as :math:`first / \sqrt{1 + steps / halfway}`."""

    first: Number = 1e-3
    """The first step's size."""
    halfway: Number = 1_000.0
    """Gradient steps after which it is 0.7 of that."""

    def __call__(self, count: Int[Array, ""]) -> Float[Array, ""]:
        """The size of the step after ``count`` others."""
        return self.first / jnp.sqrt(1.0 + count / self.halfway)


class Annealed(eqx.Module):
    """Linearly from ``first`` to nothing."""

    first: Number = 1e-3
    """The first step's size."""
    steps: Number = 1_000.0
    """Gradient steps until none is made."""

    def __call__(self, count: Int[Array, ""]) -> Float[Array, ""]:
        """The size of the step after ``count`` others."""
        return self.first * jnp.maximum(1.0 - count / self.steps, 0.0)


Rate = Number | Falling | Annealed


class Adam(eqx.Module):
    """Adam (Kingma & Ba, 2015), with the gradient's global norm clipped first if ``max_norm`` is given."""

    learning_rate: Rate
    max_norm: Number | None = None
    epsilon: Number = 1e-8

    def transform(self) -> Any:
        """The optax chain."""
        rate: Any = self.learning_rate
        return _clipped(self.max_norm, optax.adam(rate, eps=self.epsilon))

    def init(self, params: PyTree) -> PyTree:
        """Fresh optimiser state."""
        return self.transform().init(params)


class AdamW(eqx.Module):
    """Adam with decoupled weight decay (Loshchilov & Hutter, 2019): a step also takes away ``decay`` times its size."""

    learning_rate: Rate
    decay: Number = 0.01
    epsilon: Number = 1e-8

    def transform(self) -> Any:
        """The optax chain."""
        rate: Any = self.learning_rate
        decay: Any = self.decay
        return optax.adamw(rate, eps=self.epsilon, weight_decay=decay)

    def init(self, params: PyTree) -> PyTree:
        """Fresh optimiser state."""
        return self.transform().init(params)


class RMSProp(eqx.Module):
    """RMSProp with epsilon added to the mean square, which starts at 1 (as the authors of A3C had it)."""

    learning_rate: Rate
    max_norm: Number | None = None
    epsilon: Number = 1e-5
    decay: Number = 0.99

    def transform(self) -> Any:
        """The optax chain."""
        rate: Any = self.learning_rate
        rmsprop = optax.rmsprop(rate, decay=self.decay, eps=self.epsilon, initial_scale=1.0)
        return _clipped(self.max_norm, rmsprop)

    def init(self, params: PyTree) -> PyTree:
        """Fresh optimiser state."""
        return self.transform().init(params)


Optimiser = Adam | AdamW | RMSProp


def _clipped(max_norm: Any, transform: optax.GradientTransformation) -> optax.GradientTransformation:
    """``transform`` of the gradient scaled down to a global norm of at most ``max_norm`` (a number, maybe traced)."""
    return transform if max_norm is None else optax.chain(optax.clip_by_global_norm(max_norm), transform)


def gradient_step(
    optimiser: Optimiser,
    loss: Callable[[Params], tuple[Array, Any]],
    params: Params,
    opt_state: PyTree,
) -> tuple[Params, PyTree, Any, Float[Array, ""]]:
    """One step down ``loss(params) -> (value, aux)``. Returns params, optimiser state, aux, gradient norm."""
    (_, aux), gradient = jax.value_and_grad(loss, has_aux=True)(params)
    updates, opt_state = optimiser.transform().update(gradient, opt_state, params)
    return jax.tree.map(jnp.add, params, updates), opt_state, aux, optax.tree.norm(gradient)


def polyak(target: Params, online: Params, rate: Number | Array) -> Params:
    """``(1 - rate) target + rate online``, leaf by leaf; rate 1 copies."""
    return jax.tree.map(lambda t, o: (1 - rate) * t + rate * o, target, online)
