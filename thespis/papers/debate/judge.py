"""Handwritten digits, and a judge that classifies them from a few pixels.

The digits are the 1,797 images of 8 x 8 pixels in scikit-learn (Alpaydin and Kaynak 1998, "Optical recognition of
handwritten digits"). The judge is a small network, trained once on randomly chosen pixels.
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
from thespis.runtime.keys import fold, seed_key

NUM_PIXELS, NUM_LABELS = 64, 10
HIDDEN_SIZE, NUM_STEPS, BATCH_SIZE, LEARNING_RATE = 256, 3_000, 128, 1e-3
"""Training of the judge: hidden units, gradient steps, images per batch, learning rate."""


class DigitDataset(NamedTuple):
    """Dataset of digits: images, with pixels in [0, 1], and their labels."""

    images: Float[np.ndarray, "image pixel"]
    labels: Int[np.ndarray, " image"]


@functools.cache
def load_digit_split(train: bool) -> DigitDataset:
    """Load the training split (two thirds of all digits, on which judge and debaters learn), or the held-out third.

    Raises:
        UserError: if scikit-learn is missing.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise missing_extra("sklearn", "games") from error
    dataset: Any = load_digits()
    images, labels = dataset.data, dataset.target
    in_split = (np.arange(len(labels)) % 3 > 0) == train
    return DigitDataset((images[in_split] / 16).astype("float32"), labels[in_split].astype("int32"))


@functools.cache
def max_revealable_pixels() -> int:
    """The largest number of pixels of a digit that are not 0."""
    return max(int((load_digit_split(train).images > 0).sum(axis=1).max()) for train in (True, False))


class PixelJudge(eqx.Module):
    """Digit classifier with one hidden layer, whose inputs are the revealed pixels' values and positions."""

    hidden_weights: Float[Array, "hidden input"]
    hidden_bias: Float[Array, " hidden"]
    output_weights: Float[Array, "label hidden"]

    def __call__(self, image: Float[Array, " pixel"], revealed: Bool[Array, " pixel"]) -> Float[Array, " label"]:
        """Logits of all labels, from the ``revealed`` pixels alone."""
        inputs = jnp.concatenate([jnp.where(revealed, image, 0.0), revealed.astype("float32")])
        return self.output_weights @ jax.nn.relu(self.hidden_weights @ inputs + self.hidden_bias)


def sample_pixels(image: Float[Array, " pixel"], num_pixels: int, key: Key[Array, ""]) -> Bool[Array, " pixel"]:
    """Sample ``num_pixels`` different pixels of ``image`` that are not 0, uniformly at random."""
    priorities = jnp.where(image > 0, jax.random.uniform(key, image.shape), -1.0)
    return jnp.zeros(image.shape, bool).at[jax.lax.top_k(priorities, num_pixels)[1]].set(True)


@functools.cache
def trained_judge(num_pixels: int) -> PixelJudge:
    """Return the judge trained on ``num_pixels`` random pixels that are not 0. It is the same every time."""
    with jax.ensure_compile_time_eval():  # the cache must not hold tracers
        return jax.tree.map(np.asarray, _train_judge(num_pixels, *map(jnp.asarray, load_digit_split(train=True))))


@functools.partial(jax.jit, static_argnums=0)
def _train_judge(count: int, images: Float[Array, "image pixel"], labels: Int[Array, " image"]) -> PixelJudge:
    root, adam = seed_key(0), optax.adam(LEARNING_RATE)
    first, last = (
        jax.random.normal(fold(root, name), shape) / shape[1] ** 0.5 for name, shape in _WEIGHT_SHAPES.items()
    )
    judge = PixelJudge(first, jnp.zeros(HIDDEN_SIZE), last)

    def loss(judge: PixelJudge, key: Array) -> Array:
        indices = jax.random.randint(fold(key, "images"), (BATCH_SIZE,), 0, len(labels))
        revealed = jax.vmap(lambda image, key: sample_pixels(image, count, key))(
            images[indices], jax.random.split(key, BATCH_SIZE)
        )
        logits = jax.vmap(judge)(images[indices], revealed)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels[indices]).mean()

    def step(carry: tuple[PixelJudge, optax.OptState], number: Array) -> tuple[tuple[PixelJudge, optax.OptState], None]:
        judge, state = carry
        updates, state = adam.update(jax.grad(loss)(judge, fold(root, "step", number)), state)
        return (optax.apply_updates(judge, updates), state), None  # pyright: ignore

    return jax.lax.scan(step, (judge, adam.init(judge)), jnp.arange(NUM_STEPS))[0][0]  # pyright: ignore


_WEIGHT_SHAPES = {"first": (HIDDEN_SIZE, 2 * NUM_PIXELS), "last": (NUM_LABELS, HIDDEN_SIZE)}
