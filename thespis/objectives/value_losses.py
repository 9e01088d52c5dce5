"""Critic losses and targets, elementwise unless the shapes say otherwise."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from thespis.core.records import Number


def huber_loss(error: Float[Array, "*shape"], delta: Number = 1.0) -> Float[Array, "*shape"]:
    r"""Huber loss: squared error near zero, linear beyond ``delta`` (Huber 1964).

    .. math:: \tfrac12 e^2 \text{ if } |e| \le \delta, \text{ else } \delta(|e| - \tfrac12 \delta)
    """
    size = jnp.abs(error)  # a difference of terms in delta would round the gradient to the precision of delta
    return jnp.where(size <= delta, 0.5 * error**2, delta * (size - 0.5 * delta))


def clipped_value_loss(
    value: Float[Array, "*shape"],
    old_value: Float[Array, "*shape"],
    target: Float[Array, "*shape"],
    clip_range: Number,
) -> Float[Array, "*shape"]:
    r"""Clipped value loss of PPO: the value counts only within ``clip_range`` of the value at acting time.

    .. math:: \tfrac12 \max\left[(V - G)^2,
              (V_{old} + \mathrm{clip}(V - V_{old}, -\epsilon, \epsilon) - G)^2\right]

    Source: the ``ppo2`` reference code of OpenAI baselines (not in the paper).
    """
    clipped = old_value + jnp.clip(value - old_value, -clip_range, clip_range)
    return 0.5 * jnp.maximum((value - target) ** 2, (clipped - target) ** 2)


def gaussian_return_loss(
    mean: Float[Array, "*shape"],
    std: Float[Array, "*shape"],
    target: Float[Array, "*shape"],
    td_bound: Number,
) -> Float[Array, "*shape"]:
    r"""Negative log-likelihood of a sampled return, with bounded gradient in the deviation (Duan et al., 2021).

    .. math:: \frac{(y - Q)^2}{2 \bar\sigma^2} + \frac{(C(y) - \bar Q)^2}{2 \sigma^2} + \log \sigma,
              \quad C(y) = \mathrm{clip}(y, \bar Q - b, \bar Q + b)

    A bar holds a value constant. Within the bound the gradients are those of the normal log-likelihood:
    ``-(y - Q) / sigma^2`` in the mean, ``-((y - Q)^2 - sigma^2) / sigma^3`` in the deviation. Beyond it the latter
    stays finite while the former stays exact, for a clipped error would bias the mean. ``std`` is positive;
    ``td_bound`` is in the units of the return.
    """
    fixed_mean, fixed_std = jax.lax.stop_gradient((mean, std))
    clipped_error = jnp.clip(target - fixed_mean, -td_bound, td_bound)
    return 0.5 * ((target - mean) / fixed_std) ** 2 + 0.5 * (clipped_error / std) ** 2 + jnp.log(std)


def double_q_value(
    online_values: Float[Array, " actions"],
    target_values: Float[Array, " actions"],
    action_mask: Bool[Array, " actions"] | None = None,
) -> Float[Array, ""]:
    r"""State value by double Q-learning (van Hasselt et al. 2016, equation 4).

    .. math:: Q_{target}(s, \arg\max_a Q_{online}(s, a))

    The online network chooses among the legal actions (all if ``action_mask`` is ``None``), the target one evaluates.
    """
    choice = jnp.argmax(online_values if action_mask is None else jnp.where(action_mask, online_values, -jnp.inf))
    return target_values[choice]
