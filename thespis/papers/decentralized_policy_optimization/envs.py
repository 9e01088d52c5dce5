"""Random cooperative stochastic games, so small that the exact return of any joint policy can be computed."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.records import AgentOutcome, EnvSpec, TimeStep
from thespis.core.spaces import AgentGroup, Box, Discrete, dict_space


class StochasticGameState(eqx.Module):
    """State of one episode: state of the game, and number of steps taken."""

    state: Int[Array, ""]
    time: Int[Array, ""]


class StochasticGameModel(eqx.Module):
    """Model of a stochastic game: rewards and transition probabilities of joint actions.

    In the index of a joint action the first agent's action is the most significant digit.
    """

    rewards: Float[Array, "state joint"]
    transition_probs: Float[Array, "state joint state"]


class StochasticGame(eqx.Module):
    """Cooperative stochastic game of ``num_agents`` agents, for ``time_limit`` steps.

    Agents observe the state, one-hot, and act at once with a shared reward. Rewards are uniform in [0, 1] for every
    state and joint action, so the best action of one agent depends on all others. Transition probabilities are drawn
    from a Dirichlet distribution of concentration 0.2, so that few next states are likely. The first state is uniform.
    ``game_seed`` selects the game.
    """

    game_seed: int = eqx.field(static=True, default=0)
    num_agents: int = eqx.field(static=True, default=3)
    num_actions: int = eqx.field(static=True, default=4)
    num_states: int = eqx.field(static=True, default=6)
    time_limit: int = eqx.field(static=True, default=20)

    @property
    def spec(self) -> EnvSpec:
        """Specification of the environment: its spaces and its time limit."""
        observations, actions = (
            dict_space(agent=Box((self.num_states,), 0.0, 1.0)),
            dict_space(agent=Discrete(self.num_actions)),
        )
        name = f"stochastic-game-{self.game_seed}"
        return EnvSpec(
            name, observations, actions, time_limit=self.time_limit, groups=(AgentGroup("agent", self.num_agents),)
        )

    def model(self) -> StochasticGameModel:
        """Rewards and transition probabilities of the game. They are constants in a compiled program."""
        rewards, transition_probs = _sample_model(self.game_seed, self.num_states, self.num_actions**self.num_agents)
        return StochasticGameModel(jnp.asarray(rewards), jnp.asarray(transition_probs))

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[StochasticGameState, TimeStep]:
        """Draws the first state uniformly."""
        state = StochasticGameState(jax.random.randint(key, (), 0, self.num_states), jnp.zeros((), "int32"))
        return state, self._time_step(state, jnp.zeros(()))

    def step(
        self, state: StochasticGameState, action: dict[str, Int[Array, " agent"]], key: Key[Array, ""]
    ) -> tuple[StochasticGameState, TimeStep]:
        """Plays one joint action."""
        model, digits = self.model(), self.num_actions ** jnp.arange(self.num_agents - 1, -1, -1)
        joint = jnp.sum(action["agent"] * digits)
        next_state = jax.random.categorical(key, jnp.log(model.transition_probs[state.state, joint])).astype("int32")
        after = StochasticGameState(next_state, state.time + 1)
        return after, self._time_step(after, model.rewards[state.state, joint])

    def _time_step(self, position: StochasticGameState, reward: Float[Array, ""]) -> TimeStep:
        observation = jnp.broadcast_to(
            jax.nn.one_hot(position.state, self.num_states), (self.num_agents, self.num_states)
        )
        truncated: Bool[Array, ""] = position.time >= self.time_limit
        terminated, alive = jnp.zeros(self.num_agents, bool), jnp.ones(self.num_agents, bool)
        outcomes = {"agent": AgentOutcome(jnp.broadcast_to(reward, (self.num_agents,)), terminated)}
        return TimeStep(
            {"agent": observation},
            reward,
            jnp.zeros((), bool),
            truncated,
            alive={"agent": alive},
            agent_outcomes=outcomes,
        )

    def expected_return(self, policies: Float[Array, "agent state choice"]) -> Float[Array, ""]:
        """Exact expected return of an episode in which each agent follows its own policy."""
        model = self.model()
        joint_policy = functools.reduce(
            lambda a, b: (a[:, :, None] * b[:, None]).reshape(self.num_states, -1), policies
        )
        rewards, transitions = (
            jnp.sum(joint_policy * model.rewards, -1),
            jnp.einsum("sj,sjt->st", joint_policy, model.transition_probs),
        )
        values = jax.lax.fori_loop(
            0, self.time_limit, lambda _, v: rewards + transitions @ v, jnp.zeros(self.num_states)
        )
        return jnp.mean(values)

    def optimal_return(self) -> Float[Array, ""]:
        """Exact expected return of the optimal joint policy, by backward induction."""
        model = self.model()
        backup = lambda _, v: jnp.max(model.rewards + model.transition_probs @ v, axis=-1)  # noqa: E731
        return jnp.mean(jax.lax.fori_loop(0, self.time_limit, backup, jnp.zeros(self.num_states)))


@functools.cache
def _sample_model(game: int, states: int, joint: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(game)
    rewards, transition_probs = rng.uniform(size=(states, joint)), rng.dirichlet(np.full(states, 0.2), (states, joint))
    return rewards.astype("float32"), transition_probs.astype("float32")


STOCHASTIC_GAME_1, STOCHASTIC_GAME_2 = StochasticGame(game_seed=1), StochasticGame(game_seed=2)
"""Two more games."""
