"""Small conversations that are made by hand, and a model to read them."""

from __future__ import annotations

import jax
import numpy as np
from made_up import quick_key

from thespis.actors.language import Talking
from thespis.learners.conversations import Conversations
from thespis.nets.decoder import Shape, decoder

TIME, WIDTH, LENGTH = 3, 2, 12
TALKING = Talking(LENGTH, 3, WIDTH, TIME, (0,))
MODEL = jax.jit(decoder, static_argnums=0)(Shape(9, 32, 1, 1, 1, 32, 96), quick_key(0))
KEY = quick_key(1)


def held(first: list[int], seed: int = 0, turns: int = 2) -> Conversations:
    """Conversations of two ids, then turns of two ids said and one heard; row by row ``first`` is what is said first.

    Who says 8 first earns 1 in the end.
    """
    rng, rows = np.random.default_rng(seed), len(first)
    transcript, said = np.full((rows, LENGTH), -1, "int32"), np.full((TIME, rows, WIDTH), -1, "int32")
    end = 2 + 3 * turns
    transcript[:, :end] = rng.integers(1, 8, (rows, end))
    transcript[:, :2], transcript[:, 2] = 1, first  # all begin alike
    starts = np.repeat(np.array([2, 5, 8, 11])[:, None].clip(max=end), rows, axis=1).astype("int32")
    for t in range(turns):
        said[t] = transcript[:, 2 + 3 * t : 4 + 3 * t]
    alive = np.repeat((np.arange(TIME) < turns)[:, None], rows, axis=1)
    reward = np.zeros((TIME, rows), "float32")
    reward[turns - 1] = np.array(first) == 8
    reward[turns:] = 7.0  # behind the end nothing counts
    no, logs = np.zeros(rows, bool), np.zeros(said.shape, "float32")
    return Conversations(*jax.device_put((transcript, starts, said, alive, reward, no, logs)))
