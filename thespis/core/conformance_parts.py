"""The laws of feedbacks and curricula; public through :mod:`thespis.core.conformance`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from thespis.core.contracts import Curriculum, Feedback
from thespis.core.keys import fold, key_of
from thespis.core.laws import as_numpy, close, finite, hold, same_bits, same_tree
from thespis.core.records import Batch, EnvSpec, Outcomes
from thespis.core.samples import random_steps, until_end, with_other_padding


def begun(init: Callable[..., Any], root: Key[Array, ""], law: str) -> PyTree:
    """A fresh state, or the broken law if ``init`` returns what is no array."""
    try:
        return init(root)
    except TypeError as error:  # what JAX says of a text or a function that comes out of a compiled program
        hold("not a valid JAX type" not in str(error), law, str(error).splitlines()[0])
        raise


def check_feedback(feedback: Feedback, spec: EnvSpec, *, seed: int = 0, time: int = 3, rows: int = 4) -> None:
    """All laws that concern a feedback, on made-up experience ``[time, row]``."""
    root = key_of(seed)
    state = begun(jax.jit(lambda key: feedback.init(spec, key)), root, "a feedback's state holds arrays only")
    same_bits(state, jax.jit(lambda key: feedback.init(spec, key))(root), "init is repeatable")
    rng = np.random.default_rng(seed)
    steps = random_steps(spec, rng, time, rows)
    mask = jnp.asarray(until_end(steps.ended))
    batch = Batch(steps, mask, (), jnp.zeros((), "int32"))
    before = as_numpy(state)
    score: Callable[..., Any] = jax.jit(feedback.score)
    rewards = score(state, steps)
    same_bits(before, as_numpy(state), "score writes nothing")
    same_tree(steps.reward, rewards, "score gives one reward a step")
    finite(rewards, "rewards are finite")
    same_bits(rewards, score(state, steps), "score is repeatable")

    update: Callable[..., Any] = jax.jit(feedback.update)
    key = fold(root, "update")
    new, report = update(state, batch, key)
    same_tree(state, new, "update keeps the state's tree, shapes and dtypes")
    finite((new, report.metrics), "an updated state and its metrics are finite")
    same_bits((new, report), update(state, batch, key), "update is repeatable")
    padded = with_other_padding(spec, steps, mask, rng)
    other = update(state, eqx.tree_at(lambda b: b.steps, batch, padded), key)
    same_bits((new, report), other, "padding past an episode's end changes no update")
    both = jax.tree.map(lambda x: jnp.stack([x, x]), (state, batch))
    together = jax.jit(jax.vmap(feedback.update, in_axes=(0, 0, None)))(*both, key)
    close((new, report), jax.tree.map(lambda x: x[0], together), "a seed beside others does what it does alone", 1e-4)


def check_curriculum(curriculum: Curriculum, spec: EnvSpec, *, seed: int = 0, time: int = 3, rows: int = 4) -> None:
    """All laws that concern a curriculum, on made-up outcomes ``[time, row]``."""
    root = key_of(seed)
    state = begun(jax.jit(lambda key: curriculum.init(spec, key)), root, "a curriculum's state holds arrays only")
    same_bits(state, jax.jit(lambda key: curriculum.init(spec, key))(root), "init is repeatable")
    before = as_numpy(state)
    draw: Callable[..., Any] = jax.jit(curriculum.draw, static_argnums=2)
    params = draw(state, root, rows)
    same_bits(before, as_numpy(state), "draw writes nothing")
    wanted = jax.tree.map(lambda x: jnp.broadcast_to(x, (rows, *jnp.shape(x))), spec.params)
    same_tree(wanted, params, "draw gives the world's parameters, one row an episode")
    same_bits(params, draw(state, root, rows), "draw is repeatable")
    finite(params, "drawn parameters are finite")

    ended = jnp.arange(time * rows).reshape(time, rows) % 3 == 0
    shown = jax.tree.map(lambda x: jnp.broadcast_to(x, (time, *x.shape)), params)
    returns = jax.random.normal(fold(root, "returns"), ended.shape)
    each = {group.name: jnp.repeat(returns[..., None], group.count, axis=-1) for group in spec.groups} or None
    outcomes = Outcomes(ended, returns, jnp.full(ended.shape, 5, "int32"), shown, each=each)
    update: Callable[..., Any] = jax.jit(curriculum.update)
    new, report = update(state, outcomes, root)
    same_tree(state, new, "update keeps the state's tree, shapes and dtypes")
    finite((new, report.metrics), "an updated state and its metrics are finite")
    same_bits((new, report), update(state, outcomes, root), "update is repeatable")
