"""Returns and advantages of one trajectory, time first; batch with ``vmap`` (``in_axes=1`` for rows).

``terminated`` is where the environment itself ended the episode: nothing follows, so the bootstrap is cut.
``done`` is where the episode stopped for either reason (terminated or truncated): the next row belongs to
another episode, so the trace is cut. ``next_value[t]`` is the value of the **true** next observation of row
``t``, which at a truncation is not ``value[t + 1]``. Selections are by ``where``, never by multiplying with
zero, so not even a NaN flows across an episode's end.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from thespis.core.records import Number


def gae(
    reward: Float[Array, " time"],
    value: Float[Array, " time"],
    next_value: Float[Array, " time"],
    terminated: Bool[Array, " time"],
    done: Bool[Array, " time"],
    discount: Number,
    gae_lambda: Number,
) -> Float[Array, " time"]:
    r"""Generalised advantage estimation, GAE (Schulman et al. 2016, equation 16).

    .. math:: \delta_t = r_t + \gamma V(s'_t) - V(s_t), \qquad
              A_t = \delta_t + \gamma \lambda A_{t+1}

    with :math:`V(s'_t) = 0` where terminated and :math:`A_{t+1} = 0` where done and past the window.
    ``discount`` is :math:`\gamma`, ``gae_lambda`` is :math:`\lambda`, both in ``[0, 1]``.
    """
    error = reward + discount * jnp.where(terminated, 0.0, next_value) - value

    def back(after, step):
        error, done = step
        advantage = error + discount * gae_lambda * jnp.where(done, 0.0, after)
        return advantage, advantage

    return jax.lax.scan(back, jnp.zeros_like(error[0]), (error, done), reverse=True)[1]


def lambda_returns(
    reward: Float[Array, " time"],
    next_value: Float[Array, " time"],
    terminated: Bool[Array, " time"],
    done: Bool[Array, " time"],
    discount: Number,
    td_lambda: Number,
) -> Float[Array, " time"]:
    r"""TD(lambda) return (Sutton and Barto 2018, equation 12.2, in its recursive form).

    .. math:: G_t = r_t + \gamma \left[(1 - \lambda) V(s'_t) + \lambda G_{t+1}\right]

    The bracket is 0 where terminated, and :math:`V(s'_t)` where truncated and at the window's end.
    """

    def back(after, step):
        reward, next_value, terminated, done = step
        after = jnp.where(done, next_value, after)
        following = (1.0 - td_lambda) * next_value + td_lambda * after
        result = reward + discount * jnp.where(terminated, 0.0, following)
        return result, result

    rows = (reward, next_value, terminated, done)
    return jax.lax.scan(back, next_value[-1], rows, reverse=True)[1]


def sliding_n_step_returns(
    reward: Float[Array, " time"],
    next_value: Float[Array, " time"],
    terminated: Bool[Array, " time"],
    done: Bool[Array, " time"],
    discount: Number,
    n_step: int,
) -> Float[Array, " time"]:
    r"""N-step return from every step of a trajectory (Sutton and Barto 2018, equation 7.1).

    .. math:: G_t = r_t + \gamma r_{t+1} + \dots + \gamma^{n-1} r_{t+n-1} + \gamma^n V(s'_{t+n-1})

    Shorter where the episode or the window ends first: it then bootstraps there, unless terminated.
    """

    def precede(following: Array) -> Array:
        return reward + discount * jnp.where(terminated, 0.0, following)

    returns = precede(next_value)
    for _ in range(n_step - 1):
        following = jnp.concatenate([returns[1:], next_value[-1:]])
        returns = precede(jnp.where(done, next_value, following))
    return returns


def discounted_returns(
    reward: Float[Array, " time"],
    next_value: Float[Array, " time"],
    terminated: Bool[Array, " time"],
    done: Bool[Array, " time"],
    discount: Number,
) -> Float[Array, " time"]:
    r"""Discounted return :math:`G_t = r_t + \gamma G_{t+1}`: :func:`lambda_returns` with lambda 1.

    Nothing follows a termination; at a truncation and at the window's end the rest of the return is
    estimated by ``next_value``.
    """
    return lambda_returns(reward, next_value, terminated, done, discount, 1.0)


def vtrace(
    log_ratio: Float[Array, " time"],
    reward: Float[Array, " time"],
    value: Float[Array, " time"],
    next_value: Float[Array, " time"],
    terminated: Bool[Array, " time"],
    done: Bool[Array, " time"],
    discount: Number,
    gae_lambda: Number,
    rho_bar: Number,
    c_bar: Number,
) -> tuple[Float[Array, " time"], Float[Array, " time"]]:
    r"""V-trace targets and advantages (Espeholt et al. 2018, equation 1 and section 4.2), for off-policy steps.

    .. math:: \rho_t = \min(\bar\rho, \pi / \mu), \quad c_t = \lambda \min(\bar c, \pi / \mu), \quad
              \delta_t = r_t + \gamma V(s'_t) - V(s_t)

              v_t = V(s_t) + e_t, \qquad e_t = \rho_t \delta_t + \gamma c_t e_{t+1}, \qquad
              A_t = \rho_t (\delta_t + \gamma \lambda e_{t+1})

    with :math:`V(s'_t) = 0` where terminated and :math:`e_{t+1} = 0` where done and past the window.
    ``log_ratio`` is :math:`\log \pi(a|s) - \log \mu(a|s)` of the policy in training over the one that acted.
    ``A`` includes its importance weight: multiply it with the gradient of the log-probability. At lambda 1 it is the
    paper's; below, the lambda-mixture of V-trace and one-step bootstraps. Where both policies are equal, ``A`` is
    :func:`gae`.

    Returns:
        The value targets ``v`` and the advantages ``A``.
    """
    ratio = jnp.exp(log_ratio)
    weight, cut = jnp.minimum(ratio, rho_bar), gae_lambda * jnp.minimum(ratio, c_bar)
    error = reward + discount * jnp.where(terminated, 0.0, next_value) - value

    def back(after, step):
        error, weight, cut, done = step
        after = jnp.where(done, 0.0, after)
        excess = weight * error + discount * cut * after
        return excess, (excess, weight * (error + discount * gae_lambda * after))

    rows = (error, weight, cut, done)
    excess, advantage = jax.lax.scan(back, jnp.zeros_like(error[0]), rows, reverse=True)[1]
    return value + excess, advantage


def n_step_return(
    reward: Float[Array, " time"],
    terminated: Bool[Array, " time"],
    mask: Bool[Array, " time"],
    discount: Number,
) -> tuple[Float[Array, ""], Float[Array, ""], Int[Array, ""]]:
    r"""N-step return of a window from its first step (Sutton and Barto 2018, equation 7.1).

    .. math:: R = \sum_{i < k} \gamma^i r_i, \qquad \text{target} = R + \gamma^k V(s'_{k-1})

    Args:
            reward: of the window's steps.
            terminated: where the environment ended the episode.
            mask: a prefix of true: the ``k`` steps of the window before the episode's end; all of them if it
                goes on. Entries outside the mask are ignored.
            discount: gamma.

    Returns:
        The return ``R``; the factor of the bootstrap, ``discount ** k`` with the window's own length ``k``,
        or 0 if the window terminates; the index ``k - 1`` of the step whose next observation to bootstrap
        from (0 for an empty window).
    """
    length = jnp.sum(mask, dtype="int32")
    powers = jnp.power(discount, jnp.arange(reward.shape[0], dtype=reward.dtype)).astype(reward.dtype)
    total = jnp.sum(powers * jnp.where(mask, reward, 0.0))
    bootstrap_discount = jnp.power(discount, length.astype(reward.dtype)).astype(reward.dtype)
    return total, jnp.where(jnp.any(terminated & mask), 0.0, bootstrap_discount), jnp.maximum(length - 1, 0)
