"""Who causes what among numbers, from how they are distributed: linear, not normal, without cycles."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

TINY = 1e-8


def _standard(x: Float[Array, " n"]) -> Float[Array, " n"]:
    return (x - jnp.mean(x)) / (jnp.std(x) + TINY)


def negentropic(x: Float[Array, " n"]) -> Float[Array, ""]:
    """Approximate entropy of standardised numbers in nats (Hyvärinen, 1998, with its constants)."""
    odd, even = jnp.mean(jnp.log(jnp.cosh(x))), jnp.mean(x * jnp.exp(-(x**2) / 2))
    return 0.5 * (1 + jnp.log(2 * jnp.pi)) - 79.047 * (odd - 0.37457) ** 2 - 7.4129 * even**2


def _rest(x: Float[Array, " n"], of: Float[Array, " n"]) -> Float[Array, " n"]:
    """What of ``x`` a line in ``of`` does not explain."""
    centred = of - jnp.mean(of)
    return x - jnp.mean(x * centred) / (jnp.mean(centred**2) + TINY) * of


def _exogenous(x: Float[Array, "p n"], left: Bool[Array, " p"]) -> Int[Array, ""]:
    """Which of those that are ``left`` depends least on what regressing the others on it leaves over."""
    x = jax.vmap(_standard)(x)
    own = jax.vmap(negentropic)(x)

    def against(i):
        def apart(j):
            of_i, of_j = _standard(_rest(x[i], x[j])), _standard(_rest(x[j], x[i]))
            return own[j] + negentropic(of_i) - own[i] - negentropic(of_j)

        gaps = jax.lax.map(apart, jnp.arange(len(x)))
        return -jnp.sum(jnp.where(left & (jnp.arange(len(x)) != i), jnp.minimum(gaps, 0.0) ** 2, 0.0))

    return jnp.argmax(jnp.where(left, jax.lax.map(against, jnp.arange(len(x))), -jnp.inf))


def causal_order(x: Float[Array, "p n"]) -> Int[Array, " p"]:
    """Positions of ``p`` variables in a causal order, causes first, from ``n`` samples of each.

    DirectLiNGAM (Shimizu et al., 2011): the one that is most independent of the others' residuals comes first, its
    effect is taken out of the others, and so on. The measure of independence is that of Hyvärinen and Smith (2013).
    """
    p = len(x)

    def step(place, carried):
        x, left, order = carried
        first = _exogenous(x, left)
        others = jax.vmap(lambda row: _rest(row, x[first]))(x)
        left = left & (jnp.arange(p) != first)
        return jnp.where(left[:, None], others, x), left, order.at[first].set(place)

    return jax.lax.fori_loop(0, p, step, (x, jnp.ones(p, bool), jnp.zeros(p, "int32")))[2]


def effects_on_last(x: Float[Array, "p n"]) -> Float[Array, " p"]:
    """Direct linear effect of every variable on the last one: 0 where it does not come before it in causal order.

    Least squares on all that come before. Differs from common code, whose regression is sparse (adaptive lasso).
    """
    order = causal_order(x)
    before = order < order[-1]
    x = x - jnp.mean(x, axis=1, keepdims=True)
    used = jnp.where(before[:, None], x, 0.0)
    gram = used @ used.T / x.shape[1] + jnp.diag(jnp.where(before, TINY, 1.0))
    return jnp.linalg.solve(gram, used @ x[-1] / x.shape[1])
