"""Packing task: pack the things that the message asks for and no others; every set that can be packed is a goal.

Chance packs few of the sets, and a wrong thing cannot be taken out. So most episodes of an untrained model earn nothing
for the goal that they had, but all of them reach some goal.
"""

from __future__ import annotations

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from thespis.core.spaces import word_vocabulary
from thespis.envs.text.task import RESPONSE_CUE, TaskSpec, TaskStep, TextEnv
from thespis.runtime.keys import fold

THINGS = ("tent", "rope", "lamp", "map", "knife", "soap", "book", "cup")
BLANK = "_"


@dataclasses.dataclass(frozen=True)
class PackingGoalRelabeler:
    """Goal relabeler for hindsight relabeling of packing transcripts: a goal is the tokens of the wanted things.

    ``goal_token`` and ``packed_token``: the words that stand before the ``size`` tokens of wanted things and before
    those of packed things, which are larger by ``offset``; ``blank_token`` fills both up. The goal ends the episode.
    """

    goal_token: int
    packed_token: int
    blank_token: int
    size: int
    offset: int
    goal_reward: float = 1.0

    def achieved_goal(self, transcript: Int[Array, " time"]) -> Int[Array, " slot"]:
        """The things that the last message says are packed, as wanted ones."""
        places = jnp.arange(transcript.shape[0])
        last = jnp.max(jnp.where(transcript == self.packed_token, places, -1))
        packed = transcript[last + 1 + jnp.arange(self.size)]
        return jnp.where(packed == self.blank_token, packed, packed - self.offset)

    def relabel(
        self, transcript: Int[Array, " time"], goal: Int[Array, " slot"]
    ) -> tuple[Int[Array, " time"], Bool[Array, ""]]:
        """Replace the goal in all messages, and cut the transcript after the message by which it is packed."""
        places = jnp.arange(transcript.shape[0])
        relabeled, is_packed = transcript, transcript == self.packed_token
        packed = jnp.where(goal == self.blank_token, goal, goal + self.offset)
        for i in range(self.size):
            relabeled = jnp.where(jnp.roll(transcript == self.goal_token, i + 1), goal[i], relabeled)
            is_packed &= jnp.roll(transcript, -i - 1) == packed[i]
        is_packed &= goal[0] != self.blank_token
        message_end = jnp.argmax(is_packed) + self.size + 2  # the response cue is its last word
        return jnp.where(~is_packed.any() | (places < message_end), relabeled, -1), is_packed.any()


class PackingState(eqx.Module):
    """State of one episode: which things are wanted, and which are packed."""

    goal: Bool[Array, "*episodes thing"]
    packed: Bool[Array, "*episodes thing"]


class PackingTask(eqx.Module):
    """Packing task: pack one to ``size`` of ``num_things`` things (at most eight), one in each turn.

    ``want tent map _ have in-map _ _ >`` is answered by ``tent <end>``. The goal is drawn uniformly from all sets of
    one to ``size`` things; packing it earns 1 and ends the episode, as does a full bag. The demonstrator packs the
    first thing that is missing, except in a share ``demonstrator_noise`` of its responses, which are random.
    """

    num_things: int = eqx.field(static=True, default=6)
    size: int = eqx.field(static=True, default=3)
    demonstrator_noise: float = 1.0

    @property
    def goals(self) -> Bool[np.ndarray, "goal thing"]:
        """All sets of one to ``size`` things, as masks."""
        sets = [s for size in range(self.size) for s in itertools.combinations(range(self.num_things), size + 1)]
        return np.array([[thing in s for thing in range(self.num_things)] for s in sets])

    @property
    def task_spec(self) -> TaskSpec:
        """Things, packed things, a blank and three more words; messages have equal numbers of tokens."""
        things, length = THINGS[: self.num_things], 3 + 2 * self.size
        words = word_vocabulary((RESPONSE_CUE, "want", "have", BLANK, *things, *(f"in-{thing}" for thing in things)))
        return TaskSpec("text:packing", words, self.size, 2, length, length, choices=things)

    @property
    def goal_relabeler(self) -> PackingGoalRelabeler:
        """Goals are sets of things, named in every message."""
        want, have, blank = self.task_spec.encode(f"want have {BLANK}").tolist()
        return PackingGoalRelabeler(want, have, blank, self.size, self.num_things)

    def init(self, key: Key[Array, ""]) -> tuple[PackingState, Int[Array, " opening"]]:
        """A goal, and an empty bag."""
        goal = jax.random.choice(fold(key, "goal"), jnp.asarray(self.goals))
        state = PackingState(goal, jnp.zeros_like(goal))
        return state, self._describe(state)

    def step(
        self, state: PackingState, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[PackingState, TaskStep]:
        """Pack a thing, if the response is one."""
        spec = self.task_spec
        is_thing = response[0] == spec.encode_word(THINGS[0]) + jnp.arange(self.num_things)
        packed = state.packed | (is_thing & (response[1] == spec.vocabulary.eos_tokens[0]))
        reached, new_state = (packed == state.goal).all(), PackingState(state.goal, packed)
        over = reached | (packed.sum() >= self.size)
        return new_state, TaskStep(self._describe(new_state), reached.astype("float32"), over)

    def demonstrator_response(self, state: PackingState, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The first thing that is missing, or any."""
        spec = self.task_spec
        is_noise = jax.random.uniform(fold(key, "noise")) < self.demonstrator_noise
        random_thing = jax.random.randint(fold(key, "thing"), (), 0, self.num_things, "int32")
        thing = jnp.where(is_noise, random_thing, jnp.argmax(state.goal & ~state.packed))
        token = spec.encode_word(THINGS[0]) + thing
        return jnp.stack([token, jnp.asarray(spec.vocabulary.eos_tokens[0])]).astype("int32")

    def _describe(self, state: PackingState) -> Int[Array, " message"]:
        spec, things = self.task_spec, jnp.arange(self.num_things)
        blank = spec.encode_word(BLANK)

        def tokens(things_in: Bool[Array, " thing"], first: int) -> Int[Array, " slot"]:
            ordered = jnp.sort(jnp.where(things_in, first + things, spec.vocabulary.size))[: self.size]
            return jnp.where(ordered < spec.vocabulary.size, ordered, blank)

        first = spec.encode_word(THINGS[0])
        wanted, packed = tokens(state.goal, first), tokens(state.packed, first + self.num_things)
        words = (spec.encode("want"), wanted, spec.encode("have"), packed, spec.encode(RESPONSE_CUE))
        return jnp.concatenate([jnp.asarray(word) for word in words]).astype("int32")


PACKING, PACKING_EXPERT = (TextEnv(PackingTask(demonstrator_noise=noise)) for noise in (1.0, 0.0))
"""At most three of six things, 41 goals; and the same with an expert demonstrator."""

PAIRS, PAIRS_EXPERT = (TextEnv(PackingTask(size=2, demonstrator_noise=noise)) for noise in (1.0, 0.0))
"""One or two of six things, 21 goals; and the same with an expert demonstrator."""
