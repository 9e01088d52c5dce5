"""Household: something is to be put somewhere, maybe clean, hot or cold; it must be found first.

``put hot apple in drawer at table cup >`` tells the task, where the agent is and what is there. Then it says
``go stove``, ``open drawer``, ``take cup``, ``put cup``, ``clean cup`` (at the sink), ``heat cup`` (at the stove) or
``cool cup`` (at the fridge), each with ``<end>``. Only what lies where one is can be seen and taken; drawer, cabinet
and fridge are ``closed`` until they are opened, and then stay open; hands hold one thing. A thing is what was last
done to it. What cannot be done is answered ``nothing happens >``. Only the task done earns anything: 1, at once.

The demonstrator searches the places in a fixed order, goes by what it has seen, and does what is asked for, but
``wandering`` of its turns are any command. After ALFWorld (Shridhar et al., 2021); differs: eight places, four things,
generated anew for every episode, commands of two words, no lamps and no pairs of things.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from thespis.core.keys import fold, key_of
from thespis.core.vocabulary import END, closed
from thespis.envs.text.reading import before_end
from thespis.envs.text.task import ASK, Heard, Manners, message

PLACES = ("table", "shelf", "desk", "sink", "stove", "drawer", "cabinet", "fridge")
THINGS = ("apple", "bread", "cup", "egg", "knife", "plate", "potato", "spoon")
STATES = ("clean", "hot", "cold")
"""What :data:`TREATMENTS` make of a thing."""
TREATMENTS = ("clean", "heat", "cool")
VERBS = ("go", "open", "take", "put", *TREATMENTS)
_SHUT = np.array([place in ("drawer", "cabinet", "fridge") for place in PLACES])
_WHERE = np.array([PLACES.index(place) for place in ("sink", "stove", "fridge")])
_PRESENT = 4
_HELD, _ABSENT = len(PLACES), len(PLACES) + 1


class Home(eqx.Module):
    """Where the agent is and each thing (behind the places: held, not there), what was last done to it (0: nothing,
    then :data:`TREATMENTS`), which places are open, which were seen, the goal: thing, what it is to be, place; and how
    many steps towards it were made so far."""

    at: Int[Array, "*episodes"]
    where: Int[Array, "*episodes thing"]
    treated: Int[Array, "*episodes thing"]
    opened: Bool[Array, "*episodes place"]
    seen: Bool[Array, "*episodes place"]
    goal: Int[Array, "*episodes 3"]
    rung: Int[Array, "*episodes"]


class Household(eqx.Module):
    """``turns``: commands until an episode is over; ``wandering``: how many of the demonstrator's are any; ``places``:
    how many of :data:`PLACES` there are, from 2, so that what is done at those behind them is never asked for;
    ``hints``: what is paid, once, for holding the thing that is asked for, and for making it what it is to be;
    ``homes``: how many beginnings there are, so that other ones can be played in afterwards (0: any).
    """

    turns: int = eqx.field(static=True, default=20)
    wandering: float = 0.5
    places: int = eqx.field(static=True, default=len(PLACES))
    hints: float = 0.0
    homes: int = eqx.field(static=True, default=0)

    @property
    def manners(self) -> Manners:
        """Verbs, places, things and what they may be."""
        more = (ASK, "at", "in", "closed", "have", "nothing", "happens")
        words = closed((*more, *VERBS, *STATES, *PLACES, *THINGS))
        return Manners("text:household", words, self.turns, utterance=3, opening=12, answer=7)

    def begin(self, key: Key[Array, ""]) -> tuple[Home, Int[Array, " opening"]]:
        """Four things anywhere, of which one is to be elsewhere."""
        told, places = self.manners, self.places
        if self.homes:
            key = key_of(jax.random.randint(fold(key, "home"), (), 0, self.homes))
        here = jax.random.permutation(fold(key, "things"), len(THINGS))[:_PRESENT]
        lie = jax.random.randint(fold(key, "places"), (_PRESENT,), 0, places)
        where = jnp.full(len(THINGS), _ABSENT).at[here].set(lie)
        at = jax.random.randint(fold(key, "at"), (), 0, places)
        state = jax.random.randint(fold(key, "state"), (), 0, int((places > _WHERE).sum()) + 1)
        goal = jnp.stack([here[0], state, (lie[0] + jax.random.randint(fold(key, "goal"), (), 1, places)) % places])
        opened = jnp.asarray(~_SHUT)
        seen, none = opened & (jnp.arange(len(PLACES)) == at), jnp.zeros((), "int32")
        home = Home(at, where, jnp.zeros(len(THINGS), "int32"), opened, seen, goal, none)
        be = jnp.where(state == 0, -1, jnp.asarray(told.ids(" ".join(STATES)))[state - 1])
        task = told.ids("put"), be, told.id(THINGS[0]) + goal[0], told.ids("in"), told.id(PLACES[0]) + goal[2]
        return home, message(told.opening, *task, self._view(home))

    def hear(self, state: Home, said: Int[Array, " utterance"], key: Key[Array, ""]) -> tuple[Home, Heard]:
        """What a command does."""
        told = self.manners
        spoken, length = before_end(told, said)
        place, thing = spoken[1] - told.id(PLACES[0]), spoken[1] - told.id(THINGS[0])
        to_place, to_thing = (place >= 0) & (place < self.places), (thing >= 0) & (thing < len(THINGS))
        place, thing = jnp.clip(place, 0, self.places - 1), jnp.clip(thing, 0, len(THINGS) - 1)
        verbs = (spoken[0] == told.ids(" ".join(VERBS))) & (length == 2)
        goes, opens = verbs[0] & to_place, verbs[1] & to_place & (place == state.at) & ~state.opened[state.at]
        near, held = to_thing & state.opened[state.at], to_thing & (state.where[thing] == _HELD)
        takes = verbs[2] & near & (state.where[thing] == state.at) & ~(state.where == _HELD).any()
        puts, treats = verbs[3] & near & held, verbs[4:] & held & (state.at == _WHERE)
        treatment = 1 + jnp.argmax(treats)
        at = jnp.where(goes, place, state.at)
        lies = jnp.where(takes, _HELD, jnp.where(puts, at, state.where[thing]))
        where, opened = state.where.at[thing].set(lies), state.opened.at[at].set(state.opened[at] | opens)
        treated = state.treated.at[thing].set(jnp.where(treats.any(), treatment, state.treated[thing]))
        wanted, is_ = state.goal[1], treated[state.goal[0]]
        reached = (where[state.goal[0]] == _HELD) * (1 + ((wanted > 0) & (is_ == wanted)))
        rung = jnp.maximum(state.rung, reached)
        home = Home(at, where, treated, opened, state.seen.at[at].set(opened[at]), state.goal, rung)
        done = puts & self._done(home)
        named, state_ids = told.id(THINGS[0]) + thing, jnp.asarray(told.ids(" ".join(STATES)))
        answer = message(told.answer, told.ids(f"nothing happens {ASK}"))
        answer = jnp.where(goes | opens | puts, self._view(home), answer)
        answer = jnp.where(takes, message(told.answer, told.ids("have"), named, told.ids(ASK)), answer)
        changed = message(told.answer, named, state_ids[treatment - 1], told.ids(ASK))
        answer = jnp.where(treats.any(), changed, answer)
        reward = done.astype("float32") + self.hints * (rung - state.rung)
        return home, Heard(jnp.where(done, -1, answer), reward, done)

    def expert(self, state: Home, key: Key[Array, ""]) -> Int[Array, " utterance"]:
        """A step of the search or of the task; or any verb with any place or thing that it goes with."""
        told = self.manners
        verb = jax.random.randint(fold(key, "verb"), (), 0, len(VERBS))
        place = jax.random.randint(fold(key, "place"), (), 0, self.places)
        thing = jax.random.randint(fold(key, "thing"), (), 0, len(THINGS))
        wanders = jax.random.uniform(fold(key, "wander")) < self.wandering
        command = jnp.where(wanders, jnp.stack([verb, jnp.where(verb < 2, place, thing)]), self._next(state))
        noun = jnp.where(command[0] < 2, told.id(PLACES[0]), told.id(THINGS[0])) + command[1]
        return message(told.utterance, jnp.asarray(told.ids(" ".join(VERBS)))[command[0]], noun, told.ids(END))

    def _next(self, state: Home) -> Int[Array, "2"]:
        """What to do next, verb and place or thing, by what has been seen."""
        go, open_, take, put, treat = range(5)
        thing, wanted, place = state.goal
        held = state.where == _HELD
        holds, where = held[thing], jnp.clip(state.where[thing], 0, len(PLACES) - 1)
        due = (wanted > 0) & (state.treated[thing] != wanted)
        found = state.seen[where]
        search = jnp.where(state.seen[state.at], jnp.argmin(state.seen[: self.places]), state.at)
        target = jnp.where(found, where, search)
        target = jnp.where(holds, jnp.where(due, jnp.asarray(_WHERE)[wanted - 1], place), target)
        target = jnp.where(held.any() & ~holds, state.at, target)  # another thing is put down where one stands
        opens = ~state.opened[state.at] & ~(holds & due)
        act = jnp.where(holds & due, treat + wanted - 1, jnp.where(held.any(), put, take))
        object_ = jnp.where(held.any() & ~holds, jnp.argmax(held), thing)
        here = jnp.where(opens, jnp.stack([jnp.array(open_), state.at]), jnp.stack([act, object_]))
        return jnp.where(target == state.at, here, jnp.stack([jnp.array(go), target]))

    def _done(self, home: Home) -> Bool[Array, ""]:
        thing, wanted, place = home.goal
        return (home.where[thing] == place) & ((wanted == 0) | (home.treated[thing] == wanted))

    def _view(self, home: Home) -> Int[Array, " answer"]:
        """Where the agent is, and what it sees there."""
        told, opened = self.manners, home.opened[home.at]
        lies = (home.where == home.at) & opened
        things = jnp.where(lies, told.id(THINGS[0]) + np.arange(len(THINGS)), -1)
        shut = jnp.where(opened, -1, told.id("closed"))
        return message(told.answer, told.ids("at"), told.id(PLACES[0]) + home.at, shut, things, told.ids(ASK))
