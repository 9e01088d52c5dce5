"""Errand task: find a thing that lies in one of a few places, and bring it to another place.

``put cup in oven >`` states the errand. Commands are the name of a place (go there), ``take`` and ``drop``, each
followed by ``<end>``. The reply says what lies at the agent's place (``cup >`` or ``empty >``), ``held >`` after the
thing was taken, and ``nothing >`` after a command that cannot be executed. The agent begins outside of all places.
Completing the errand earns a reward of 1 at once, and nothing else is rewarded.

The demonstrator looks into all places in a fixed order until it finds the thing, but a share ``demonstrator_noise`` of
its commands are random. After ALFWorld (Shridhar et al., 2021). Differs from it: one thing, commands of one word, and
nothing to open, to clean, to heat or to light.
"""

from __future__ import annotations

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from thespis.core.spaces import word_vocabulary
from thespis.envs.text.task import RESPONSE_CUE, TaskSpec, TaskStep, pack_tokens
from thespis.runtime.keys import fold

PLACES = ("shelf", "desk", "sink", "oven", "box")
THINGS = ("apple", "book", "cup", "fork", "key", "lamp")
TAKE, DROP = "take", "drop"
_HELD = len(PLACES)


class ErrandState(eqx.Module):
    """State of an errand: indices of thing, target and places.

    ``thing_place`` is the number of places where the thing is held; ``agent_place`` is -1 outside of all places.
    """

    thing: Int[Array, "*episodes"]
    target: Int[Array, "*episodes"]
    thing_place: Int[Array, "*episodes"]
    agent_place: Int[Array, "*episodes"]
    visited: Bool[Array, "*episodes place"]


class Errand(eqx.Module):
    """Errand task with ``max_turns`` commands.

    ``demonstrator_noise``: the share of the demonstrator's commands that are random. ``split``: which errands there
    are, by thing, place and target: all, two of three (seen), or the others (unseen).
    """

    max_turns: int = eqx.field(static=True, default=9)
    demonstrator_noise: float = 0.5
    split: Literal["all", "seen", "unseen"] = eqx.field(static=True, default="all")

    @property
    def task_spec(self) -> TaskSpec:
        """Places, things, two other commands and five words of the environment."""
        words = word_vocabulary((RESPONSE_CUE, "put", "in", "empty", "held", "nothing", TAKE, DROP, *PLACES, *THINGS))
        return TaskSpec("text:errand", words, self.max_turns, 2, max_opening_tokens=5, max_message_tokens=2)

    def init(self, key: Key[Array, ""]) -> tuple[ErrandState, Int[Array, " opening"]]:
        """A random errand of the split; the thing never lies where it is to be brought."""
        errands = jnp.asarray([errand for errand in all_errands() if self.split in ("all", split_of(*errand))])
        thing, place, target = errands[jax.random.randint(fold(key, "errand"), (), 0, len(errands))]
        spec, visited = self.task_spec, jnp.zeros(len(PLACES), bool)
        opening = pack_tokens(
            spec.max_opening_tokens,
            spec.encode("put"),
            spec.encode_word(THINGS[0]) + thing,
            spec.encode("in"),
            spec.encode_word(PLACES[0]) + target,
            spec.encode(RESPONSE_CUE),
        )
        return ErrandState(thing, target, place, jnp.full((), -1, place.dtype), visited), opening

    def step(
        self, state: ErrandState, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[ErrandState, TaskStep]:
        """Go, take or drop, if the response is a command that can be executed."""
        spec, command = self.task_spec, response[0]
        first_place, first_thing = spec.encode_word(PLACES[0]), spec.encode_word(THINGS[0])
        ends = response[1] == spec.vocabulary.eos_tokens[0]
        goes = ends & (command >= first_place) & (command < first_place + len(PLACES))
        takes = ends & (command == spec.encode_word(TAKE)) & (state.agent_place == state.thing_place)
        is_inside = state.agent_place >= 0
        drops = ends & (command == spec.encode_word(DROP)) & (state.thing_place == _HELD) & is_inside
        agent_place = jnp.where(goes, command - first_place, state.agent_place)
        thing_place = jnp.where(takes, _HELD, jnp.where(drops, agent_place, state.thing_place))
        visited = state.visited | (goes & (jnp.arange(len(PLACES)) == agent_place))
        done = drops & (agent_place == state.target)
        contents = jnp.where(thing_place == agent_place, first_thing + state.thing, spec.encode_word("empty"))
        word = jnp.where(goes | drops, contents, spec.encode_word("nothing"))
        word = jnp.where(takes, spec.encode_word("held"), word)
        message = pack_tokens(spec.max_message_tokens, word, spec.encode(RESPONSE_CUE))
        new_state = ErrandState(state.thing, state.target, thing_place, agent_place, visited)
        return new_state, TaskStep(jnp.where(done, -1, message), done.astype("float32"), done)

    def demonstrator_response(self, state: ErrandState, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The next command of the search or of the way to the target, or any command."""
        spec = self.task_spec
        first_place, first_command = spec.encode_word(PLACES[0]), spec.encode_word(TAKE)
        is_held = state.thing_place == _HELD
        is_found = state.visited[jnp.minimum(state.thing_place, _HELD - 1)]
        search = jnp.where(is_found, state.thing_place, jnp.argmin(state.visited))
        place = jnp.where(is_held, state.target, search)
        command = jnp.where(is_held, spec.encode_word(DROP), first_command)
        command = jnp.where(state.agent_place == place, command, first_place + place)
        is_noise = jax.random.uniform(fold(key, "wander")) < self.demonstrator_noise
        noise = first_command + jax.random.randint(fold(key, "command"), (), 0, 2 + len(PLACES))
        command = jnp.where(is_noise, noise, command)
        return jnp.stack([command, jnp.full((), spec.vocabulary.eos_tokens[0], command.dtype)])


def all_errands() -> list[tuple[int, int, int]]:
    """All errands: indices of thing, place and target."""
    num_places = len(PLACES)
    triples = ((i, j, k) for i in range(len(THINGS)) for j in range(num_places) for k in range(num_places))
    return [triple for triple in triples if triple[1] != triple[2]]


def split_of(thing: int, place: int, target: int) -> Literal["seen", "unseen"]:
    """The split that an errand belongs to: ``unseen`` is a third, in which every thing, place and target occurs."""
    return "unseen" if (thing + place + target) % 3 == 0 else "seen"
