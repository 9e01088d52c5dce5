"""Household task: find an object, treat it if asked (clean, hot or cold), and put it in a place.

``put hot apple in drawer at table cup >`` states the task, where the agent is and what is there. Commands are
``go stove``, ``open drawer``, ``take cup``, ``put cup``, ``clean cup`` (at the sink), ``heat cup`` (at the stove) and
``cool cup`` (at the fridge), each followed by ``<end>``. Only things at the agent's place can be seen and taken.
Drawer, cabinet and fridge are ``closed`` until they are opened, and then stay open. The agent holds one thing at a
time. A thing is in the state of its last treatment. A command that cannot be executed is answered by
``nothing happens >``. Only completing the task earns a reward: 1, at once.

The demonstrator searches the places in a fixed order, remembers what it has seen, and does what is asked for, but a
share ``demonstrator_noise`` of its turns are random commands. After ALFWorld (Shridhar et al., 2021). Differs from it:
eight places and four things, generated anew for every episode, commands of two words, no lamps and no pairs of things.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from thespis.core.spaces import END, word_vocabulary
from thespis.envs.text.task import RESPONSE_CUE, TaskSpec, TaskStep, cut_at_eos, pack_tokens
from thespis.runtime.keys import fold, seed_key

PLACES = ("table", "shelf", "desk", "sink", "stove", "drawer", "cabinet", "fridge")
THINGS = ("apple", "bread", "cup", "egg", "knife", "plate", "potato", "spoon")
STATES = ("clean", "hot", "cold")
"""States of a thing after each of :data:`TREATMENTS`."""
TREATMENTS = ("clean", "heat", "cool")
VERBS = ("go", "open", "take", "put", *TREATMENTS)
_INITIALLY_CLOSED = np.array([place in ("drawer", "cabinet", "fridge") for place in PLACES])
_TREATMENT_PLACES = np.array([PLACES.index(place) for place in ("sink", "stove", "fridge")])
_NUM_PRESENT = 4
_HELD, _ABSENT = len(PLACES), len(PLACES) + 1


class HouseholdState(eqx.Module):
    """State of a household episode.

    ``agent_place``: the place of the agent. ``thing_places``: the place of each thing; the indices after the places
    mean held, and absent. ``treatments``: the last treatment of each thing (0: none, then :data:`TREATMENTS`).
    ``opened_places`` and ``seen_places``: which places are open, and which were seen. ``goal``: thing, required
    treatment, place. ``progress``: the number of subgoals reached so far.
    """

    agent_place: Int[Array, "*episodes"]
    thing_places: Int[Array, "*episodes thing"]
    treatments: Int[Array, "*episodes thing"]
    opened_places: Bool[Array, "*episodes place"]
    seen_places: Bool[Array, "*episodes place"]
    goal: Int[Array, "*episodes 3"]
    progress: Int[Array, "*episodes"]


class Household(eqx.Module):
    """Household task: find an object, treat it if asked (clean, hot or cold), and put it in a place.

    ``max_turns``: commands until the episode is over. ``demonstrator_noise``: the share of the demonstrator's commands
    that are random. ``num_places``: how many of :data:`PLACES` exist (at least 2); treatments at missing places are
    never asked for. ``subgoal_reward``: what is paid, once, for holding the thing of the goal, and for its treatment.
    ``num_layouts``: the number of distinct initial states, so that others can be kept for evaluation (0: unlimited).
    """

    max_turns: int = eqx.field(static=True, default=20)
    demonstrator_noise: float = 0.5
    num_places: int = eqx.field(static=True, default=len(PLACES))
    subgoal_reward: float = 0.0
    num_layouts: int = eqx.field(static=True, default=0)

    @property
    def task_spec(self) -> TaskSpec:
        """Verbs, places, things and their states."""
        other_words = (RESPONSE_CUE, "at", "in", "closed", "have", "nothing", "happens")
        words = word_vocabulary((*other_words, *VERBS, *STATES, *PLACES, *THINGS))
        return TaskSpec(
            "text:household", words, self.max_turns, max_response_tokens=3, max_opening_tokens=12, max_message_tokens=7
        )

    def init(self, key: Key[Array, ""]) -> tuple[HouseholdState, Int[Array, " opening"]]:
        """Four things at random places, of which one has to be moved to another place."""
        spec, num_places = self.task_spec, self.num_places
        if self.num_layouts:
            key = seed_key(jax.random.randint(fold(key, "home"), (), 0, self.num_layouts))
        present = jax.random.permutation(fold(key, "things"), len(THINGS))[:_NUM_PRESENT]
        places = jax.random.randint(fold(key, "places"), (_NUM_PRESENT,), 0, num_places)
        thing_places = jnp.full(len(THINGS), _ABSENT).at[present].set(places)
        agent_place = jax.random.randint(fold(key, "at"), (), 0, num_places)
        state = jax.random.randint(fold(key, "state"), (), 0, int((num_places > _TREATMENT_PLACES).sum()) + 1)
        goal = jnp.stack(
            [present[0], state, (places[0] + jax.random.randint(fold(key, "goal"), (), 1, num_places)) % num_places]
        )
        is_open = jnp.asarray(~_INITIALLY_CLOSED)
        visible, zero = is_open & (jnp.arange(len(PLACES)) == agent_place), jnp.zeros((), "int32")
        household = HouseholdState(
            agent_place, thing_places, jnp.zeros(len(THINGS), "int32"), is_open, visible, goal, zero
        )
        state_token = jnp.where(state == 0, -1, jnp.asarray(spec.encode(" ".join(STATES)))[state - 1])
        task = (
            spec.encode("put"),
            state_token,
            spec.encode_word(THINGS[0]) + goal[0],
            spec.encode("in"),
            spec.encode_word(PLACES[0]) + goal[2],
        )
        return household, pack_tokens(spec.max_opening_tokens, *task, self._describe(household))

    def step(
        self, state: HouseholdState, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[HouseholdState, TaskStep]:
        """Execute the command that the agent wrote."""
        spec = self.task_spec
        tokens, length = cut_at_eos(spec, response)
        place, thing = tokens[1] - spec.encode_word(PLACES[0]), tokens[1] - spec.encode_word(THINGS[0])
        to_place, to_thing = (place >= 0) & (place < self.num_places), (thing >= 0) & (thing < len(THINGS))
        place, thing = jnp.clip(place, 0, self.num_places - 1), jnp.clip(thing, 0, len(THINGS) - 1)
        verbs = (tokens[0] == spec.encode(" ".join(VERBS))) & (length == 2)
        goes, opens = (
            verbs[0] & to_place,
            verbs[1] & to_place & (place == state.agent_place) & ~state.opened_places[state.agent_place],
        )
        near, is_held = (
            to_thing & state.opened_places[state.agent_place],
            to_thing & (state.thing_places[thing] == _HELD),
        )
        takes = (
            verbs[2] & near & (state.thing_places[thing] == state.agent_place) & ~(state.thing_places == _HELD).any()
        )
        puts, treats = verbs[3] & near & is_held, verbs[4:] & is_held & (state.agent_place == _TREATMENT_PLACES)
        treatment = 1 + jnp.argmax(treats)
        agent_place = jnp.where(goes, place, state.agent_place)
        new_place = jnp.where(takes, _HELD, jnp.where(puts, agent_place, state.thing_places[thing]))
        thing_places, opened = (
            state.thing_places.at[thing].set(new_place),
            state.opened_places.at[agent_place].set(state.opened_places[agent_place] | opens),
        )
        treated = state.treatments.at[thing].set(jnp.where(treats.any(), treatment, state.treatments[thing]))
        goal_treatment, goal_thing_treatment = state.goal[1], treated[state.goal[0]]
        reached = (thing_places[state.goal[0]] == _HELD) * (
            1 + ((goal_treatment > 0) & (goal_thing_treatment == goal_treatment))
        )
        progress = jnp.maximum(state.progress, reached)
        new_state = HouseholdState(
            agent_place,
            thing_places,
            treated,
            opened,
            state.seen_places.at[agent_place].set(opened[agent_place]),
            state.goal,
            progress,
        )
        done = puts & self._is_done(new_state)
        thing_token, state_tokens = spec.encode_word(THINGS[0]) + thing, jnp.asarray(spec.encode(" ".join(STATES)))
        message = pack_tokens(spec.max_message_tokens, spec.encode(f"nothing happens {RESPONSE_CUE}"))
        message = jnp.where(goes | opens | puts, self._describe(new_state), message)
        message = jnp.where(
            takes,
            pack_tokens(spec.max_message_tokens, spec.encode("have"), thing_token, spec.encode(RESPONSE_CUE)),
            message,
        )
        changed = pack_tokens(
            spec.max_message_tokens, thing_token, state_tokens[treatment - 1], spec.encode(RESPONSE_CUE)
        )
        message = jnp.where(treats.any(), changed, message)
        reward = done.astype("float32") + self.subgoal_reward * (progress - state.progress)
        return new_state, TaskStep(jnp.where(done, -1, message), reward, done)

    def demonstrator_response(self, state: HouseholdState, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The next command of the search or of the task, or a random verb with a random place or thing."""
        spec = self.task_spec
        verb = jax.random.randint(fold(key, "verb"), (), 0, len(VERBS))
        place = jax.random.randint(fold(key, "place"), (), 0, self.num_places)
        thing = jax.random.randint(fold(key, "thing"), (), 0, len(THINGS))
        is_noise = jax.random.uniform(fold(key, "wander")) < self.demonstrator_noise
        command = jnp.where(is_noise, jnp.stack([verb, jnp.where(verb < 2, place, thing)]), self._next_command(state))
        noun = jnp.where(command[0] < 2, spec.encode_word(PLACES[0]), spec.encode_word(THINGS[0])) + command[1]
        return pack_tokens(
            spec.max_response_tokens, jnp.asarray(spec.encode(" ".join(VERBS)))[command[0]], noun, spec.encode(END)
        )

    def _next_command(self, state: HouseholdState) -> Int[Array, "2"]:
        """The next command, as verb and place or thing, from what has been seen."""
        go, open_, take, put, treat = range(5)
        thing, goal_treatment, place = state.goal
        is_held = state.thing_places == _HELD
        holds, thing_place = is_held[thing], jnp.clip(state.thing_places[thing], 0, len(PLACES) - 1)
        needs_treatment = (goal_treatment > 0) & (state.treatments[thing] != goal_treatment)
        is_seen = state.seen_places[thing_place]
        search = jnp.where(
            state.seen_places[state.agent_place], jnp.argmin(state.seen_places[: self.num_places]), state.agent_place
        )
        target = jnp.where(is_seen, thing_place, search)
        target = jnp.where(
            holds, jnp.where(needs_treatment, jnp.asarray(_TREATMENT_PLACES)[goal_treatment - 1], place), target
        )
        target = jnp.where(is_held.any() & ~holds, state.agent_place, target)  # put down another thing right here
        opens = ~state.opened_places[state.agent_place] & ~(holds & needs_treatment)
        verb = jnp.where(holds & needs_treatment, treat + goal_treatment - 1, jnp.where(is_held.any(), put, take))
        object_ = jnp.where(is_held.any() & ~holds, jnp.argmax(is_held), thing)
        local_command = jnp.where(opens, jnp.stack([jnp.array(open_), state.agent_place]), jnp.stack([verb, object_]))
        return jnp.where(target == state.agent_place, local_command, jnp.stack([jnp.array(go), target]))

    def _is_done(self, home: HouseholdState) -> Bool[Array, ""]:
        thing, treatment, place = home.goal
        return (home.thing_places[thing] == place) & ((treatment == 0) | (home.treatments[thing] == treatment))

    def _describe(self, home: HouseholdState) -> Int[Array, " message"]:
        """A message with the agent's place and what it sees there."""
        spec, is_open = self.task_spec, home.opened_places[home.agent_place]
        is_visible = (home.thing_places == home.agent_place) & is_open
        things = jnp.where(is_visible, spec.encode_word(THINGS[0]) + np.arange(len(THINGS)), -1)
        closed = jnp.where(is_open, -1, spec.encode_word("closed"))
        return pack_tokens(
            spec.max_message_tokens,
            spec.encode("at"),
            spec.encode_word(PLACES[0]) + home.agent_place,
            closed,
            things,
            spec.encode(RESPONSE_CUE),
        )
