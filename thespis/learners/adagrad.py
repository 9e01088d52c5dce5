"""Step sizes that nobody needs to know: they fall as gradients add up."""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from thespis.learners.gradient import Number

Descent = Literal["adagrad", "adagrad-norm", "sgd"]


class NormState(NamedTuple):
    """All squared gradients so far, summed over time and parameters."""

    total: Float[Array, ""]


def descent(kind: Descent, learning_rate: Number) -> optax.GradientTransformation:
    r"""A step down a gradient :math:`g_t`: ``sgd`` by :math:`\alpha g_t`, the others (Duchi et al., 2011) by

    .. math:: \alpha g_t / \sqrt{\textstyle\sum_{s \le t} g_s^2}

    ``adagrad`` for each parameter by itself, ``adagrad-norm`` with the squared norm of the whole gradient.
    """
    rate: PyTree = learning_rate
    scale = {
        "adagrad": lambda: optax.scale_by_rss(initial_accumulator_value=0.0, eps=1e-10),
        "adagrad-norm": _scale_by_norm,
        "sgd": optax.identity,
    }[kind]()
    return optax.chain(scale, optax.scale_by_learning_rate(rate))


def _scale_by_norm() -> optax.GradientTransformation:
    def init(params: PyTree) -> NormState:
        return NormState(jnp.zeros(()))

    def update(updates: PyTree, state: optax.OptState, params: PyTree = None) -> tuple[PyTree, NormState]:
        assert isinstance(state, NormState)
        total = state.total + optax.tree.norm(updates, squared=True)
        size = jnp.where(total > 0, jax.lax.rsqrt(jnp.where(total > 0, total, 1.0)), 0.0)
        return jax.tree.map(lambda g: g * size, updates), NormState(total)

    return optax.GradientTransformation(init, update)
