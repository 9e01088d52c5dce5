"""Directions task: name the street to take at each crossing on the way to a place; only the whole way earns anything.

``to 3 >`` is answered by ``b1 a2 d3 c4 <end>``, one street at each crossing, which ends the episode. There is one way
to each place, and it earns 1; all other responses earn 0. A response of random streets is right with a probability of
``num_streets ** -num_crossings``, so that a policy that begins at the prompt seldom finds a way, while one that begins
on it needs to find the rest alone: the combination lock of the theory of exploration, in text.

The demonstrator says some streets at random, so that it is seldom right, but in a share ``informed_share`` of its
responses it knows the way.
"""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from thespis.core.spaces import END, word_vocabulary
from thespis.envs.text.task import RESPONSE_CUE, TaskSpec, TaskStep
from thespis.runtime.keys import fold


@functools.cache
def draw_ways(num_places: int, num_crossings: int, num_streets: int, seed: int) -> np.ndarray:
    """The street ``[place, crossing]`` to take on the way to each place, uniformly random."""
    return np.random.default_rng(seed).integers(num_streets, size=(num_places, num_crossings)).astype("int32")


class Directions(eqx.Module):
    """Directions task: name the street to take at each crossing on the way to a place.

    ``num_places``: prompts, 1 to 10. ``num_crossings``: streets of a response. ``num_streets``: streets at a crossing,
    2 to 26. ``seed``: that of the ways. ``demonstrator_noise``: the share of the demonstrator's streets that are
    random. ``informed_share``: the share of its responses that are right.
    """

    num_places: int = eqx.field(static=True, default=8)
    num_crossings: int = eqx.field(static=True, default=8)
    num_streets: int = eqx.field(static=True, default=4)
    seed: int = eqx.field(static=True, default=0)
    demonstrator_noise: float = 0.6
    informed_share: float = 0.0

    def __check_init__(self):
        """Raise ``ValueError`` for numbers of places or streets out of range."""
        if not 1 <= self.num_places <= 10:
            raise ValueError(f"num_places={self.num_places}: 1 to 10")
        if not 2 <= self.num_streets <= 26:
            raise ValueError(f"num_streets={self.num_streets}: 2 to 26")

    @property
    def task_spec(self) -> TaskSpec:
        """The numbers of the places, and the streets of each crossing."""
        places, crossings = map(str, range(self.num_places)), range(1, self.num_crossings + 1)
        streets = (f"{letter}{i}" for i in crossings for letter in "abcdefghijklmnopqrstuvwxyz"[: self.num_streets])
        return TaskSpec(
            "text:directions",
            word_vocabulary((RESPONSE_CUE, "to", *places, *streets)),
            1,
            self.num_crossings + 1,
            max_opening_tokens=3,
            max_message_tokens=1,
        )

    @property
    def prompt_tokens(self) -> np.ndarray:
        """The tokens ``[place, opening]`` of the prompts with the response cue."""
        return np.stack([self.task_spec.encode(f"to {i} {RESPONSE_CUE}") for i in range(self.num_places)])

    @property
    def ways(self) -> np.ndarray:
        """The tokens ``[place, response]`` of the right responses, with the end token."""
        spec = self.task_spec
        streets = draw_ways(self.num_places, self.num_crossings, self.num_streets, self.seed)
        tokens = spec.encode_word("a1") + self.num_streets * np.arange(self.num_crossings) + streets
        return np.concatenate([tokens, np.full((self.num_places, 1), spec.encode_word(END))], axis=1).astype("int32")

    def init(self, key: Key[Array, ""]) -> tuple[Int[Array, ""], Int[Array, " opening"]]:
        """A random place; the state is its number."""
        place = jax.random.randint(fold(key, "place"), (), 0, self.num_places)
        return place, jnp.asarray(self.prompt_tokens)[place]

    def step(self, state: Int[Array, ""], response: Int[Array, " response"], key: Key[Array, ""]):
        """Reward 1 for the way to the place; the episode ends."""
        is_right = (response == jnp.asarray(self.ways)[state]).all()
        return state, TaskStep(jnp.full(1, -1), is_right.astype("float32"), jnp.ones((), bool))

    def demonstrator_response(self, state: Int[Array, ""], key: Key[Array, ""]) -> Int[Array, " response"]:
        """The way, with random streets unless the demonstrator knows it."""
        way = jnp.asarray(self.ways)[state]
        is_random = jax.random.uniform(fold(key, "wander"), (self.num_crossings,)) < self.demonstrator_noise
        is_random &= jax.random.uniform(fold(key, "informed")) >= self.informed_share
        streets = jax.random.randint(fold(key, "streets"), (self.num_crossings,), 0, self.num_streets)
        first = self.task_spec.encode_word("a1") + self.num_streets * jnp.arange(self.num_crossings)
        return jnp.concatenate([jnp.where(is_random, first + streets, way[:-1]), way[-1:]]).astype("int32")
