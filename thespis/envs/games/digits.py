"""Handwritten digits, and a judge who is shown a few of their pixels.

Digits are the 1,797 of 8 x 8 pixels that scikit-learn brings (Alpaydin and Kaynak 1998, "Optical recognition of
handwritten digits"). The judge is a small net, trained once, on pixels that were drawn at random.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.core.errors import missing_extra
from thespis.core.keys import fold, key_of

PIXELS, LABELS = 64, 10
HIDDEN, STEPS, BATCH, STEP_SIZE = 256, 3_000, 128, 1e-3
"""Of the judge: units, gradient steps, images in each, step size."""


class Digits(NamedTuple):
    """Images, each pixel in [0, 1], and what they show."""

    images: Float[np.ndarray, "image pixel"]
    labels: Int[np.ndarray, " image"]


@functools.cache
def digits(seen: bool) -> Digits:
    """Two thirds of all digits, by which judge and debaters learn, or the third that they have not ``seen``.

    Raises:
        UserError: if scikit-learn is missing.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise missing_extra("sklearn", "games") from error
    found: Any = load_digits()
    images, labels = found.data, found.target
    chosen = (np.arange(len(labels)) % 3 > 0) == seen
    return Digits((images[chosen] / 16).astype("float32"), labels[chosen].astype("int32"))


class Judge(eqx.Module):
    """Says which digit it takes an image for: one hidden layer over values and places of the pixels shown."""

    first: Float[Array, "hidden seen"]
    bias: Float[Array, " hidden"]
    last: Float[Array, "label hidden"]

    def __call__(self, image: Float[Array, " pixel"], shown: Bool[Array, " pixel"]) -> Float[Array, " label"]:
        """Logits of all labels, from the pixels that are ``shown`` alone."""
        seen = jnp.concatenate([jnp.where(shown, image, 0.0), shown.astype("float32")])
        return self.last @ jax.nn.relu(self.first @ seen + self.bias)


def drawn(image: Float[Array, " pixel"], count: int, key: Key[Array, ""]) -> Bool[Array, " pixel"]:
    """``count`` different pixels of ``image`` that are not 0, at random."""
    lots = jnp.where(image > 0, jax.random.uniform(key, image.shape), -1.0)
    return jnp.zeros(image.shape, bool).at[jax.lax.top_k(lots, count)[1]].set(True)


@functools.cache
def judge_of(count: int) -> Judge:
    """A judge trained to tell digits from ``count`` random pixels that are not 0. It is the same every time."""
    with jax.ensure_compile_time_eval():  # the cache must not hold tracers
        return jax.tree.map(np.asarray, _trained(count, *map(jnp.asarray, digits(seen=True))))


def accuracy(judge: Judge, count: int, data: Digits, key: Key[Array, ""]) -> float:
    """Share of images that the judge tells right from ``count`` random pixels that are not 0."""

    def right(image: Array, label: Array, key: Array) -> Bool[Array, ""]:
        return jnp.argmax(judge(image, drawn(image, count, key))) == label

    keys = jax.random.split(key, len(data.labels))
    return float(jnp.mean(jax.vmap(right)(jnp.asarray(data.images), jnp.asarray(data.labels), keys)))


@functools.partial(jax.jit, static_argnums=0)
def _trained(count: int, images: Float[Array, "image pixel"], labels: Int[Array, " image"]) -> Judge:
    root, adam = key_of(0), optax.adam(STEP_SIZE)
    first, last = (jax.random.normal(fold(root, name), shape) / shape[1] ** 0.5 for name, shape in _SHAPES.items())
    judge = Judge(first, jnp.zeros(HIDDEN), last)

    def loss(judge: Judge, key: Array) -> Array:
        chosen = jax.random.randint(fold(key, "images"), (BATCH,), 0, len(labels))
        shown = jax.vmap(lambda image, key: drawn(image, count, key))(images[chosen], jax.random.split(key, BATCH))
        logits = jax.vmap(judge)(images[chosen], shown)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels[chosen]).mean()

    def step(carry: tuple[Judge, optax.OptState], number: Array) -> tuple[tuple[Judge, optax.OptState], None]:
        judge, state = carry
        updates, state = adam.update(jax.grad(loss)(judge, fold(root, "step", number)), state)
        return (optax.apply_updates(judge, updates), state), None  # pyright: ignore

    return jax.lax.scan(step, (judge, adam.init(judge)), jnp.arange(STEPS))[0][0]  # pyright: ignore


_SHAPES = {"first": (HIDDEN, 2 * PIXELS), "last": (LABELS, HIDDEN)}
