"""Menu task: choose a dish for every course that is asked for. Every choice has its own share of the return.

``c >`` is answered by one of four dishes, such as ``c2 <end>``, then by the next course, ``e >``, or by ``no e >``
after anything else than a dish of the course. One dish of each course is liked, always the same one, and earns its
share of 1. Nothing in the dialogue tells which one it is. Courses of a dialogue are all different, in random order. The
demonstrator chooses any of the four dishes.

As :class:`~thespis.envs.text.delayed_reward.DelayedReward`, a dialogue ends with a score, like that of WebShop (Yao et
al., 2022), which is the share of the wanted attributes; what each choice has contributed to it is known.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from thespis.core.spaces import word_vocabulary
from thespis.envs.text.delayed_reward import DelayedReward
from thespis.envs.text.task import RESPONSE_CUE, TaskSpec, TaskStep, TextEnv, pack_tokens
from thespis.runtime.keys import fold

NUM_DISHES = 4
"""Dishes per course."""
REFUSAL = "no"
"""First word of the reply to a response that is no dish of the course."""


class MenuState(eqx.Module):
    """State of one episode: the courses in the order in which they are asked for, and the number of finished turns."""

    courses: Int[Array, "*episodes course"]
    turn: Int[Array, "*episodes"]


class Menu(eqx.Module):
    """Menu task: choose one of four dishes for each of ``max_turns`` courses out of ``num_courses`` (at most 26)."""

    max_turns: int = eqx.field(static=True, default=8)
    num_courses: int = eqx.field(static=True, default=12)

    @property
    def liked_dishes(self) -> Int[np.ndarray, " course"]:
        """The dish of each course that is liked, 0 to 3."""
        return np.random.default_rng(0).integers(0, NUM_DISHES, self.num_courses)

    @property
    def task_spec(self) -> TaskSpec:
        """Courses (a letter), dishes (the letter of their course and a number), and the response cue."""
        courses = [chr(ord("a") + i) for i in range(self.num_courses)]
        dishes = [f"{course}{number + 1}" for course in courses for number in range(NUM_DISHES)]
        words = word_vocabulary((RESPONSE_CUE, REFUSAL, *courses, *dishes))
        return TaskSpec("text:menu", words, self.max_turns, 2, max_opening_tokens=2, max_message_tokens=3)

    def init(self, key: Key[Array, ""]) -> tuple[MenuState, Int[Array, " opening"]]:
        """Start of a dialogue: the courses are drawn without replacement."""
        courses = jax.random.permutation(fold(key, "courses"), self.num_courses)[: self.max_turns].astype("int32")
        state = MenuState(courses, jnp.zeros((), "int32"))
        return state, self._prompt(state)[:2]

    def step(
        self, state: MenuState, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[MenuState, TaskStep]:
        """A reward if the dish is the liked one of the course; then the next course."""
        course = state.courses[state.turn]
        dishes = jax.vmap(lambda dish: self._response(course, dish))(jnp.arange(NUM_DISHES))
        chosen = (response == dishes).all(axis=-1)
        is_liked = chosen[jnp.asarray(self.liked_dishes)[course]]
        state = MenuState(state.courses, state.turn + 1)
        message = self._prompt(state, chosen.any())
        return state, TaskStep(message, is_liked / jnp.float32(self.max_turns), jnp.zeros((), bool))

    def demonstrator_response(self, state: MenuState, key: Key[Array, ""]) -> Int[Array, " response"]:
        """Any dish of the course."""
        return self._response(
            state.courses[state.turn], jax.random.randint(fold(key, "dish"), (), 0, NUM_DISHES, "int32")
        )

    def _response(self, course: Int[Array, ""], dish: Int[Array, ""]) -> Int[Array, " response"]:
        spec = self.task_spec
        token = spec.encode_word("a1") + NUM_DISHES * course + dish
        return jnp.stack([token, jnp.full((), spec.vocabulary.eos_tokens[0])]).astype("int32")

    def _prompt(self, state: MenuState, accepted: Bool[Array, ""] | bool = True) -> Int[Array, " message"]:
        spec = self.task_spec
        course = state.courses[jnp.minimum(state.turn, self.max_turns - 1)]
        refusal = jnp.where(accepted, -1, spec.encode(REFUSAL))
        return pack_tokens(3, refusal, spec.encode_word("a") + course, spec.encode(RESPONSE_CUE))


MENU = TextEnv(Menu())
"""Eight of twelve courses; every choice is rewarded at once."""
DELAYED_MENU = TextEnv(DelayedReward(Menu()))
"""The same, where the sum of all rewards is paid at the end."""
