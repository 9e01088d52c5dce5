"""Multi-agent probes: they test value mixing, action masks, absent agents and general-sum rewards."""

from __future__ import annotations

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.records import AgentOutcome, EnvSpec, TimeStep
from thespis.core.spaces import AgentGroup, Box, Discrete, dict_space
from thespis.envs.probes.probe import KnownValue, ProbeState, start_time


class TwoStepGameProbe(eqx.Module):
    """Two-step cooperative matrix game (Rashid et al., 2018, section 6): two agents, two actions each, state one-hot.

    The first agent's first action decides which game is played next: one that always pays 7, or one that pays 8 if both
    choose 1, 0 if both choose 0, else 1. Under a uniformly random policy, a sum of values cannot represent that 8 is
    possible. At the first step the second agent has no choice (in the paper it has one without consequence).
    """

    name: str = eqx.field(static=True, default="two-step")

    @property
    def spec(self) -> EnvSpec:
        """Specification of the environment: its spaces and its time limit."""
        observations, actions = dict_space(pair=Box((4,), 0.0, 1.0)), dict_space(pair=Discrete(2))
        return EnvSpec(f"probe:{self.name}", observations, actions, True, groups=(AgentGroup("pair", 2),))

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[ProbeState, TimeStep]:
        """Starts at the choice between the two games."""
        return ProbeState(start_time(), start_time()), self._time_step(start_time(), jnp.zeros(()))

    def step(
        self, state: ProbeState, action: dict[str, Int[Array, " agent"]], key: Key[Array, ""]
    ) -> tuple[ProbeState, TimeStep]:
        """Plays one of the two steps; ``cue`` is the game."""
        first, second = action["pair"][0], action["pair"][1]
        payoff = jnp.asarray([[0.0, 1.0], [1.0, 8.0]])[first, second]
        reward = jnp.where(state.cue == 1, 7.0, payoff)
        game = jnp.where(state.time == 0, 1 + first, 3)
        return ProbeState(state.time + 1, game), self._time_step(game, jnp.where(state.time == 0, 0.0, reward))

    def _time_step(self, game: Int[Array, ""], reward: Array) -> TimeStep:
        over = game == 3
        observation = {"pair": jnp.broadcast_to(jax.nn.one_hot(game, 4), (2, 4))}
        outcomes = {"pair": AgentOutcome(jnp.broadcast_to(reward, (2,)), jnp.zeros(2, bool))}
        alive = {"pair": jnp.broadcast_to(~over, (2,))}
        legal = {"pair": jnp.array([[True, True], [False, True]]) | (game > 0)}
        return TimeStep(observation, reward, over, jnp.zeros((), bool), legal, alive=alive, agent_outcomes=outcomes)

    def known_values(self, discount: float) -> list[KnownValue]:
        """8 at the end, if the first agent chooses the second game and then both choose 1."""
        states = [np.tile(np.eye(4, dtype="float32")[i], (2, 1)) for i in range(3)]
        both = {"pair": np.ones(2, "int32")}
        return [KnownValue({"pair": states[0]}, 8.0 * discount, both), KnownValue({"pair": states[2]}, 8.0, both)]


class ChangingAgentsProbe(eqx.Module):
    """Two-step probe of agents that leave and join: two ``hand`` agents and one ``eye``.

    The first hand leaves after one step and the second then joins. Each present agent observes a cue, one-hot, and adds
    1 to the shared reward if its action matches the cue: for a hand the action of that number, for the eye 0 for cue 0
    and 2 for cue 1. The eye may take two of its three actions; the illegal one adds 10, so a leaking action mask shows
    as a value that is too high. So does counting an agent that has left.
    """

    name: str = eqx.field(static=True, default="shifts")

    @property
    def spec(self) -> EnvSpec:
        """Specification of the environment: its spaces and its time limit."""
        observations = dict_space(eye=Box((3,), 0.0, 1.0), hand=Box((2,), 0.0, 1.0))
        actions = dict_space(eye=Discrete(3), hand=Discrete(2))
        return EnvSpec(
            f"probe:{self.name}", observations, actions, True, groups=(AgentGroup("eye", 1), AgentGroup("hand", 2))
        )

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[ProbeState, TimeStep]:
        """Draws a cue for each agent at random."""
        state = ProbeState(start_time(), jax.random.bernoulli(key, 0.5, (3,)).astype("int32"))
        return state, self._time_step(state, jnp.zeros(3))

    def step(self, state: ProbeState, action: dict[str, Array], key: Key[Array, ""]) -> tuple[ProbeState, TimeStep]:
        """Plays one step; the second is the last."""
        actions = jnp.concatenate([action["eye"], action["hand"]])
        matches = (actions == jnp.array([2, 1, 1]) * state.cue).astype("float32")
        illegal = ~jnp.take(self._action_masks(state)["eye"][0], actions[0])
        rewards = jnp.where(illegal & (jnp.arange(3) == 0), 10.0, matches)
        return ProbeState(state.time + 1, state.cue), self._time_step(
            ProbeState(state.time + 1, state.cue), rewards * _alive(state)
        )

    def _action_masks(self, state: ProbeState) -> dict[str, Array]:
        eye, alive = jnp.array([[True, True, False], [False, True, True]])[state.cue[0]], _alive(state)
        noop = jnp.arange(3) == 0  # the only action of absent agents
        return {"eye": jnp.where(alive[0], eye, noop)[None], "hand": alive[1:, None] | noop[:2]}

    def _time_step(self, state: ProbeState, paid: Float[Array, " agents"]) -> TimeStep:
        alive, over = _alive(state), state.time == 2
        cues = jax.nn.one_hot(state.cue, 2) * alive[:, None]
        observation = {"eye": jnp.append(cues[0], state.time == 1)[None], "hand": cues[1:]}
        left, reward = jnp.array([False, True, False]) & (state.time == 1), jnp.sum(paid)
        outcomes = {name: AgentOutcome(jnp.broadcast_to(reward, x.shape), x) for name, x in _by_group(left).items()}
        no = jnp.zeros((), bool)
        return TimeStep(
            observation, reward, over, no, self._action_masks(state), alive=_by_group(alive), agent_outcomes=outcomes
        )

    def known_values(self, discount: float) -> list[KnownValue]:
        """2 at each of the two steps; absent agents can only choose action 0."""
        values = []
        for time, *cues in itertools.product(range(2), repeat=4):
            alive = np.array([1, time == 0, time == 1], "int32")
            features = np.eye(2, dtype="float32")[cues] * alive[:, None].astype("float32")
            observation = {"eye": np.append(features[0], np.float32(time))[None], "hand": features[1:]}
            actions = (np.array([2, 1, 1]) * cues * alive).astype("int32")
            if not cues[1 + (time == 0)]:  # an absent agent's cue is hidden: one entry for both cues
                values.append(
                    KnownValue(
                        observation, 2.0 + (1 - time) * 2.0 * discount, {"eye": actions[:1], "hand": actions[1:]}
                    )
                )
        return values


class GeneralSumProbe(eqx.Module):
    """One-step general-sum game: a ``runner`` and two ``guard`` agents each choose a number; the sides' rewards differ.

    Guards observe a target of 1 or -1. Both earn 1 minus the squared distance of their sum from it, minus a tenth of
    the sum of their squares: each does best with target / 2.1. The runner observes 1 or -1 too, and earns 1 minus the
    squared distance of its action from half of that. The episode's return counts the guards' reward.
    """

    name: str = eqx.field(static=True, default="meeting")

    @property
    def spec(self) -> EnvSpec:
        """Specification of the environment: its spaces and its time limit."""
        observations = dict_space(guard=Box((2,), -1.0, 1.0), runner=Box((1,), -1.0, 1.0))
        actions = dict_space(guard=Box((1,), -1.0, 1.0), runner=Box((1,), -1.0, 1.0))
        return EnvSpec(
            f"probe:{self.name}", observations, actions, groups=(AgentGroup("guard", 2), AgentGroup("runner", 1))
        )

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[ProbeState, TimeStep]:
        """Draws a target for each side at random."""
        cue = jax.random.rademacher(key, (2,), "float32")
        return ProbeState(start_time(), cue), self._time_step(cue, jnp.zeros(2), jnp.zeros((), bool))

    def step(self, state: ProbeState, action: dict[str, Array], key: Key[Array, ""]) -> tuple[ProbeState, TimeStep]:
        """Pays both sides and ends the episode."""
        guards, runner = action["guard"][:, 0], action["runner"][0, 0]
        errors = jnp.sum(guards) - state.cue[0], runner - 0.5 * state.cue[1]
        rewards = jnp.stack([1.0 - errors[0] ** 2 - 0.1 * jnp.sum(guards**2), 1.0 - errors[1] ** 2])
        return ProbeState(state.time + 1, state.cue), self._time_step(state.cue, rewards, jnp.ones((), bool))

    def _time_step(self, cue: Float[Array, 2], paid: Float[Array, 2], over: Array) -> TimeStep:
        first = jnp.broadcast_to(cue[0], (2, 1))
        observation = {"guard": jnp.concatenate([first, -first], axis=1), "runner": cue[1:, None]}
        not_terminated = {"guard": jnp.zeros(2, bool), "runner": jnp.zeros(1, bool)}
        outcomes = {
            "guard": AgentOutcome(jnp.broadcast_to(paid[0], (2,)), not_terminated["guard"]),
            "runner": AgentOutcome(paid[1:], not_terminated["runner"]),
        }
        alive = {name: jnp.broadcast_to(~over, x.shape) for name, x in not_terminated.items()}
        return TimeStep(observation, paid[0], over, jnp.zeros((), bool), alive=alive, agent_outcomes=outcomes)

    def known_values(self, discount: float) -> list[KnownValue]:
        """Values where the gradient of both rewards is 0."""
        share, values = 1 / 2.1, []
        for guard, runner in itertools.product((-1.0, 1.0), repeat=2):
            observation = {"guard": np.tile([guard, -guard], (2, 1)), "runner": np.array([[runner]])}
            actions = {"guard": np.full((2, 1), share * guard), "runner": np.array([[runner / 2]])}
            observation, actions = (
                {name: x.astype("float32") for name, x in tree.items()} for tree in (observation, actions)
            )
            values.append(KnownValue(observation, 1.0 - (2 * share - 1) ** 2 - 0.2 * share**2, actions))
        return values


def _alive(state: ProbeState) -> Bool[Array, " agents"]:
    return jnp.stack([state.time < 2, state.time < 1, state.time == 1])


def _by_group(values: Array) -> dict[str, Array]:
    return {"eye": values[:1], "hand": values[1:]}
