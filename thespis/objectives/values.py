"""Losses and targets of critics, elementwise unless the shapes say otherwise."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Real

Number = int | float | Real[Array, ""]


def huber(error: Float[Array, "*shape"], delta: Number = 1.0) -> Float[Array, "*shape"]:
    r"""Squared error near zero, linear beyond ``delta`` (Huber 1964).

    .. math:: \tfrac12 e^2 \text{ if } |e| \le \delta, \text{ else } \delta(|e| - \tfrac12 \delta)
    """
    near = jnp.minimum(jnp.abs(error), delta)
    return 0.5 * near**2 + delta * (jnp.abs(error) - near)


def clipped_value_loss(
    value: Float[Array, "*shape"],
    old_value: Float[Array, "*shape"],
    target: Float[Array, "*shape"],
    clip: Number,
) -> Float[Array, "*shape"]:
    r"""PPO's value loss, which stays within ``clip`` of the value at acting time.

    .. math:: \tfrac12 \max\left[(V - G)^2,
              (V_{old} + \mathrm{clip}(V - V_{old}, -\epsilon, \epsilon) - G)^2\right]

    Source: the ``ppo2`` reference code of OpenAI baselines (not in the paper).
    """
    near = old_value + jnp.clip(value - old_value, -clip, clip)
    return 0.5 * jnp.maximum((value - target) ** 2, (near - target) ** 2)


def gaussian_return_loss(
    mean: Float[Array, "*shape"],
    deviation: Float[Array, "*shape"],
    target: Float[Array, "*shape"],
    bound: Number,
) -> Float[Array, "*shape"]:
    r"""Negative log-likelihood of a sampled return, with bounded pull on the deviation (Duan et al., 2021).

    .. math:: \frac{(y - Q)^2}{2 \bar\sigma^2} + \frac{(C(y) - \bar Q)^2}{2 \sigma^2} + \log \sigma,
              \quad C(y) = \mathrm{clip}(y, \bar Q - b, \bar Q + b)

    A bar holds a value constant. Within the bound the gradients are those of the normal log-likelihood:
    ``-(y - Q) / sigma^2`` in the mean, ``-((y - Q)^2 - sigma^2) / sigma^3`` in the deviation. Beyond it the latter
    stays finite while the former stays true, for a clipped error would bias the mean. ``deviation`` is positive;
    ``bound`` is in the units of the return.
    """
    held, width = jax.lax.stop_gradient((mean, deviation))
    near = jnp.clip(target - held, -bound, bound)
    return 0.5 * ((target - mean) / width) ** 2 + 0.5 * (near / deviation) ** 2 + jnp.log(deviation)


def double_q(
    online: Float[Array, " actions"],
    target: Float[Array, " actions"],
    legal: Bool[Array, " actions"] | None = None,
) -> Float[Array, ""]:
    r"""Value of a state by double Q-learning (van Hasselt et al. 2016, equation 4).

    .. math:: Q_{target}(s, \arg\max_a Q_{online}(s, a))

    One net chooses among the ``legal`` actions (all if ``None``), the other evaluates.
    """
    choice = jnp.argmax(online if legal is None else jnp.where(legal, online, -jnp.inf))
    return target[choice]
