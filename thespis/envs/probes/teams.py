"""Worlds of several agents in which the right thing must be done together: they test mixing, masks and who is there."""

from __future__ import annotations

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.agents import Group
from thespis.core.records import Each, EnvSpec, TimeStep
from thespis.core.spaces import Box, Discrete, dict_space
from thespis.envs.probes.probe import Known, Place, zero


class TwoStep(eqx.Module):
    """Two agents, two steps, two choices each; all see the state, one-hot (Rashid et al., 2018, section 6).

    The first agent's first choice decides which game is played next: one that pays 7 whatever is done, or one that pays
    8 if both choose 1, 0 if both choose 0, else 1. Played at random, a sum of values cannot tell that 8 is to be had.
    At the first step the second agent has no choice (in the paper it is one without consequence).
    """

    name: str = eqx.field(static=True, default="two-step")

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits."""
        seen, done = dict_space(pair=Box((4,), 0.0, 1.0)), dict_space(pair=Discrete(2))
        return EnvSpec(f"probe:{self.name}", seen, done, True, groups=(Group("pair", 2),))

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[Place, TimeStep]:
        """The choice between two games."""
        return Place(zero(), zero()), self._answer(zero(), jnp.zeros(()))

    def step(
        self, state: Place, action: dict[str, Int[Array, " agent"]], key: Key[Array, ""]
    ) -> tuple[Place, TimeStep]:
        """One of the two steps; ``cue`` is the game."""
        mine, other = action["pair"][0], action["pair"][1]
        together = jnp.asarray([[0.0, 1.0], [1.0, 8.0]])[mine, other]
        paid = jnp.where(state.cue == 1, 7.0, together)
        game = jnp.where(state.time == 0, 1 + mine, 3)
        return Place(state.time + 1, game), self._answer(game, jnp.where(state.time == 0, 0.0, paid))

    def _answer(self, game: Int[Array, ""], reward: Array) -> TimeStep:
        over = game == 3
        seen = {"pair": jnp.broadcast_to(jax.nn.one_hot(game, 4), (2, 4))}
        each = {"pair": Each(jnp.broadcast_to(reward, (2,)), jnp.zeros(2, bool))}
        alive = {"pair": jnp.broadcast_to(~over, (2,))}
        legal = {"pair": jnp.array([[True, True], [False, True]]) | (game > 0)}
        return TimeStep(seen, reward, over, jnp.zeros((), bool), legal, alive=alive, each=each)

    def known(self, discount: float) -> list[Known]:
        """8 at the end, if the first agent chooses the second game and then both choose 1."""
        places = [np.tile(np.eye(4, dtype="float32")[i], (2, 1)) for i in range(3)]
        both = {"pair": np.ones(2, "int32")}
        return [Known({"pair": places[0]}, 8.0 * discount, both), Known({"pair": places[2]}, 8.0, both)]


class Shifts(eqx.Module):
    """Two hands and an eye, two steps: the first hand goes after the first step, the second comes for the second one.

    Each that is there is shown a cue, one-hot, and adds 1 to what all are paid if it does what the cue asks for: a hand
    the choice of that number, an eye 0 at the first and 2 at the second. An eye may take two of its three choices; the
    illegal one adds 10, so that a leaking mask shows as a value that is too high, as does one who has gone.
    """

    name: str = eqx.field(static=True, default="shifts")

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits."""
        seen = dict_space(eye=Box((3,), 0.0, 1.0), hand=Box((2,), 0.0, 1.0))
        done = dict_space(eye=Discrete(3), hand=Discrete(2))
        return EnvSpec(f"probe:{self.name}", seen, done, True, groups=(Group("eye", 1), Group("hand", 2)))

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[Place, TimeStep]:
        """A cue for each by chance."""
        state = Place(zero(), jax.random.bernoulli(key, 0.5, (3,)).astype("int32"))
        return state, self._answer(state, jnp.zeros(3))

    def step(self, state: Place, action: dict[str, Array], key: Key[Array, ""]) -> tuple[Place, TimeStep]:
        """One step; the second is the last."""
        done = jnp.concatenate([action["eye"], action["hand"]])
        right = (done == jnp.array([2, 1, 1]) * state.cue).astype("float32")
        illegal = ~jnp.take(self._masks(state)["eye"][0], done[0])
        paid = jnp.where(illegal & (jnp.arange(3) == 0), 10.0, right)
        return Place(state.time + 1, state.cue), self._answer(Place(state.time + 1, state.cue), paid * _there(state))

    def _masks(self, state: Place) -> dict[str, Array]:
        eye, there = jnp.array([[True, True, False], [False, True, True]])[state.cue[0]], _there(state)
        only = jnp.arange(3) == 0  # left to those who are not there
        return {"eye": jnp.where(there[0], eye, only)[None], "hand": there[1:, None] | only[:2]}

    def _answer(self, state: Place, paid: Float[Array, " agents"]) -> TimeStep:
        there, over = _there(state), state.time == 2
        cues = jax.nn.one_hot(state.cue, 2) * there[:, None]
        seen = {"eye": jnp.append(cues[0], state.time == 1)[None], "hand": cues[1:]}
        gone, reward = jnp.array([False, True, False]) & (state.time == 1), jnp.sum(paid)
        each = {name: Each(jnp.broadcast_to(reward, x.shape), x) for name, x in _by_group(gone).items()}
        no = jnp.zeros((), bool)
        return TimeStep(seen, reward, over, no, self._masks(state), alive=_by_group(there), each=each)

    def known(self, discount: float) -> list[Known]:
        """2 at each of the two steps; those who are not there can but do 0."""
        found = []
        for time, *cues in itertools.product(range(2), repeat=4):
            there = np.array([1, time == 0, time == 1], "int32")
            shown = np.eye(2, dtype="float32")[cues] * there[:, None].astype("float32")
            seen = {"eye": np.append(shown[0], np.float32(time))[None], "hand": shown[1:]}
            done = (np.array([2, 1, 1]) * cues * there).astype("int32")
            if not cues[1 + (time == 0)]:  # of who is not there nothing is shown: one for both cues
                found.append(Known(seen, 2.0 + (1 - time) * 2.0 * discount, {"eye": done[:1], "hand": done[1:]}))
        return found


class Meeting(eqx.Module):
    """One step: a ``runner`` and two ``guards`` each choose a number, and the two sides are paid unlike each other.

    Guards are shown 1 or -1, and are both paid 1 less the squared distance of their sum from it, and less a tenth of
    their squares: each does best with 1 / 2.1 of it. The runner is shown 1 or -1 too, and is paid 1 less the squared
    distance from half of that. The run counts what guards are paid.
    """

    name: str = eqx.field(static=True, default="meeting")

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits."""
        seen = dict_space(guard=Box((2,), -1.0, 1.0), runner=Box((1,), -1.0, 1.0))
        done = dict_space(guard=Box((1,), -1.0, 1.0), runner=Box((1,), -1.0, 1.0))
        return EnvSpec(f"probe:{self.name}", seen, done, groups=(Group("guard", 2), Group("runner", 1)))

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[Place, TimeStep]:
        """A place for each side by chance."""
        cue = jax.random.rademacher(key, (2,), "float32")
        return Place(zero(), cue), self._answer(cue, jnp.zeros(2), jnp.zeros((), bool))

    def step(self, state: Place, action: dict[str, Array], key: Key[Array, ""]) -> tuple[Place, TimeStep]:
        """The verdict."""
        guards, runner = action["guard"][:, 0], action["runner"][0, 0]
        apart = jnp.sum(guards) - state.cue[0], runner - 0.5 * state.cue[1]
        paid = jnp.stack([1.0 - apart[0] ** 2 - 0.1 * jnp.sum(guards**2), 1.0 - apart[1] ** 2])
        return Place(state.time + 1, state.cue), self._answer(state.cue, paid, jnp.ones((), bool))

    def _answer(self, cue: Float[Array, 2], paid: Float[Array, 2], over: Array) -> TimeStep:
        first = jnp.broadcast_to(cue[0], (2, 1))
        seen = {"guard": jnp.concatenate([first, -first], axis=1), "runner": cue[1:, None]}
        none = {"guard": jnp.zeros(2, bool), "runner": jnp.zeros(1, bool)}
        each = {"guard": Each(jnp.broadcast_to(paid[0], (2,)), none["guard"]), "runner": Each(paid[1:], none["runner"])}
        alive = {name: jnp.broadcast_to(~over, x.shape) for name, x in none.items()}
        return TimeStep(seen, paid[0], over, jnp.zeros((), bool), alive=alive, each=each)

    def known(self, discount: float) -> list[Known]:
        """Where the slope of what is paid is 0."""
        part, found = 1 / 2.1, []
        for guard, runner in itertools.product((-1.0, 1.0), repeat=2):
            seen = {"guard": np.tile([guard, -guard], (2, 1)), "runner": np.array([[runner]])}
            done = {"guard": np.full((2, 1), part * guard), "runner": np.array([[runner / 2]])}
            seen, done = ({name: x.astype("float32") for name, x in values.items()} for values in (seen, done))
            found.append(Known(seen, 1.0 - (2 * part - 1) ** 2 - 0.2 * part**2, done))
        return found


def _there(state: Place) -> Bool[Array, " agents"]:
    return jnp.stack([state.time < 2, state.time < 1, state.time == 1])


def _by_group(values: Array) -> dict[str, Array]:
    return {"eye": values[:1], "hand": values[1:]}
