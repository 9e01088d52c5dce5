"""What tasks share: an utterance up to the word that ends it, and numbers written digit by digit."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from thespis.envs.text.task import Manners

DIGITS = "0123456789"
"""Words that tasks with numbers have, one behind the other: a digit's id is that of ``0`` plus its value."""


def before_end(told: Manners, said: Int[Array, " utterance"]) -> tuple[Int[Array, " utterance"], Int[Array, ""]]:
    """The ids in front of the first word that ends an utterance, -1 behind them, and how many they are.

    What is said behind that word is not heeded, and an utterance that never ends says nothing.
    """
    ends = (said[:, None] == jnp.array(told.vocabulary.stop)).any(axis=-1)
    length = jnp.where(ends.any(), jnp.argmax(ends), 0)
    return jnp.where(jnp.arange(said.shape[0]) < length, said, -1), length


def digits(value: Int[Array, ""], most: int, zero: int) -> Int[Array, " most"]:
    """Ids of the digits of a number from 0 to ``10**most - 1``; -1 in place of leading zeros."""
    powers = jnp.asarray(10 ** np.arange(most - 1, -1, -1), "int32")
    return jnp.where((value >= powers) | (powers == 1), zero + value // powers % 10, -1)


def number(ids: Int[Array, " n"], zero: int) -> tuple[Int[Array, ""], Bool[Array, ""]]:
    """The number that digits write, and whether they do: there is one, and nothing else.

    Ids of -1 are passed over; leading zeros are allowed. At most nine digits fit.
    """
    figure = ids - zero
    is_digit = (figure >= 0) & (figure < len(DIGITS))
    value = jnp.zeros((), "int32")
    for i in range(ids.shape[0]):
        value = jnp.where(is_digit[i], 10 * value + figure[i], value)
    return value, is_digit.any() & (is_digit | (ids < 0)).all()
