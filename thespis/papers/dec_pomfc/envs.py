"""Swarms of turning agents on a torus: Kuramoto oscillators and Vicsek particles, and the mean-field control of both.

Kuramoto oscillators stay in place, Vicsek particles move. Agent ``i`` at ``x_i`` with heading ``theta_i`` turns by
``w_i + max_turn u_i`` plus noise, then moves by ``speed`` in the direction of its heading; ``w_i`` is its own drift,
drawn anew for every episode and not observed. It observes the agents within ``neighbor_radius``, itself included, as
one vector: their mean heading relative to its own. The shared reward is the order parameter of the whole swarm,
``|mean_j exp(i theta_j)|`` in [0, 1]. The alignment that Kuramoto and Vicsek et al. prescribe as a law is learned here.

Mean-field control is a swarm as a single-agent environment whose action is the decision rule of all members. A decision
rule gives, at each of ``m`` points of the members' observation space, a mean turn and the standard deviation of turns.
Each member interpolates the rule at its own observation and samples its turn: it needs no information but the rule. The
agent observes the clock alone, so rules can be distributed in advance; its critic observes the mean field, the share of
members near each of some points in the space of headings and positions. :class:`RBFKernels` represents rule and field
smoothly; with :class:`HistogramBins` both jump when a member moves into another cell.

Source: Cui et al., 2024 (arXiv:2307.06175), for the adapted models and the mean-field control; Kuramoto, 1975, and
Vicsek et al., 1995, for the original models.

Differs from the paper: numbers and points are not theirs. Not verified: their agent may observe the mean field too.
"""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.core.records import AgentOutcome, EnvSpec, TimeStep
from thespis.core.spaces import AgentGroup, Box, dict_space
from thespis.runtime.keys import fold


class SwarmState(eqx.Module):
    """State of one episode: positions in [0, 1), headings (rad), drifts (rad per step), and number of steps taken."""

    positions: Float[Array, "agent 2"]
    headings: Float[Array, " agent"]
    drifts: Float[Array, " agent"]
    time: Int[Array, ""]


class Swarm(eqx.Module):
    """One group, ``agent``, of ``num_agents`` agents that turn to align their headings.

    Each observes two numbers in [-1, 1] and the elapsed fraction of the episode, and acts with one number in [-1, 1].
    Episodes are truncated after ``time_limit`` steps. ``speed`` and ``neighbor_radius`` are in sides of the torus;
    ``max_turn``, ``drift_std`` and ``noise_std`` are in rad per step.
    """

    speed: float = eqx.field(static=True, default=0.05)
    drift_std: float = eqx.field(static=True, default=0.0)
    neighbor_radius: float = eqx.field(static=True, default=0.25)
    max_turn: float = eqx.field(static=True, default=0.5)
    noise_std: float = eqx.field(static=True, default=0.1)
    num_agents: int = eqx.field(static=True, default=50)
    time_limit: int = eqx.field(static=True, default=50)

    @property
    def spec(self) -> EnvSpec:
        """Specification of the environment: its spaces and its time limit."""
        spaces = dict_space(agent=Box((3,), -1.0, 1.0)), dict_space(agent=Box((1,), -1.0, 1.0))
        return EnvSpec("swarm", *spaces, time_limit=self.time_limit, groups=(AgentGroup("agent", self.num_agents),))

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[SwarmState, TimeStep]:
        """Draws positions and headings uniformly."""
        swarm_state = self.init_swarm(key)
        return swarm_state, self._time_step(swarm_state, jnp.zeros(()))

    def step(self, state: SwarmState, action: dict[str, Float[Array, "agent 1"]], key: Key[Array, ""]):
        """All agents turn, then all move."""
        swarm_state = self.move(state, action["agent"][:, 0], key)
        return swarm_state, self._time_step(swarm_state, order_parameter(swarm_state))

    def init_swarm(self, key: Key[Array, ""]) -> SwarmState:
        """A new swarm with random positions, headings and drifts."""
        positions = jax.random.uniform(fold(key, "place"), (self.num_agents, 2))
        headings = jax.random.uniform(fold(key, "heading"), (self.num_agents,), minval=-jnp.pi, maxval=jnp.pi)
        drifts = self.drift_std * jax.random.normal(fold(key, "drift"), (self.num_agents,))
        return SwarmState(positions, headings, drifts, jnp.zeros((), "int32"))

    def move(self, state: SwarmState, turns: Float[Array, " agent"], key: Key[Array, ""]) -> SwarmState:
        """The swarm one step later; ``turns`` are clipped to [-1, 1]."""
        noise = self.noise_std * jax.random.normal(key, (self.num_agents,))
        headings = state.headings + state.drifts + self.max_turn * jnp.clip(turns, -1.0, 1.0) + noise
        directions = jnp.stack([jnp.cos(headings), jnp.sin(headings)], axis=1)
        positions = (state.positions + self.speed * directions) % 1.0
        return SwarmState(positions, headings, state.drifts, state.time + 1)

    def local_observations(self, state: SwarmState) -> Float[Array, "agent 2"]:
        """Mean heading of the neighbors in each agent's frame: ``(1, 0)`` if aligned with it; norm at most 1."""
        distances = jnp.abs(state.positions[:, None] - state.positions[None])
        distances = jnp.minimum(distances, 1.0 - distances)
        near = jnp.sum(distances**2, axis=-1) <= self.neighbor_radius**2
        relative_headings = state.headings[None] - state.headings[:, None]
        vectors = jnp.stack([jnp.cos(relative_headings), jnp.sin(relative_headings)], axis=-1)
        return jnp.sum(vectors * near[..., None], axis=1) / jnp.sum(near, axis=1)[:, None]

    def elapsed_fraction(self, state: SwarmState) -> Float[Array, ""]:
        """Elapsed fraction of the episode."""
        return state.time / self.time_limit

    def is_truncated(self, state: SwarmState) -> Array:
        """Whether the episode is truncated here."""
        return state.time >= self.time_limit

    def _time_step(self, flock: SwarmState, paid: Float[Array, ""]) -> TimeStep:
        clock = jnp.broadcast_to(self.elapsed_fraction(flock), (self.num_agents, 1))
        observation, terminated = (
            jnp.concatenate([jnp.clip(self.local_observations(flock), -1.0, 1.0), clock], axis=1),
            jnp.zeros(self.num_agents, bool),
        )
        outcomes = {"agent": AgentOutcome(jnp.broadcast_to(paid, (self.num_agents,)), terminated)}
        return TimeStep(
            {"agent": observation},
            paid,
            terminated[0],
            self.is_truncated(flock),
            alive={"agent": ~terminated},
            agent_outcomes=outcomes,
        )


def order_parameter(state: SwarmState) -> Float[Array, ""]:
    """Order parameter: the degree to which all headings agree, in [0, 1]."""
    return jnp.hypot(jnp.mean(jnp.cos(state.headings)), jnp.mean(jnp.sin(state.headings)))


KURAMOTO = Swarm(speed=0.0, drift_std=0.1)
"""Oscillators that stay in place, each with its own frequency."""
VICSEK = Swarm()
"""Particles that move and have no drift."""


MIN_LOG_STD, MAX_LOG_STD = math.log(0.02), 0.0
"""Smallest and largest logarithm of the standard deviation of turns."""


class RBFKernels(eqx.Module):
    """Nadaraya-Watson weights: each point is weighted by a normal density of standard deviation ``bandwidth``."""

    bandwidth: float = eqx.field(static=True, default=0.25)

    def weights(self, x: Float[Array, " d"], points: Float[Array, "m d"]) -> Float[Array, " m"]:
        """Weight of each point at ``x``; the weights sum to 1."""
        return jax.nn.softmax(-0.5 * _squared_distances(x, points) / self.bandwidth**2)


class HistogramBins(eqx.Module):
    """Nearest-point weights: a table of cells."""

    def weights(self, x: Float[Array, " d"], points: Float[Array, "m d"]) -> Float[Array, " m"]:
        """1 for the nearest point, 0 for the others."""
        return jax.nn.one_hot(jnp.argmin(_squared_distances(x, points)), len(points))


class MeanFieldEnv(eqx.Module):
    """A swarm whose members all act by one decision rule: see the module.

    Actions are ``2 m`` numbers in [-1, 1]: the mean turn at each point, and the logarithm of the standard deviation,
    scaled to ``MIN_LOG_STD`` to ``MAX_LOG_STD``. ``points_per_axis`` is the number of points along each axis of the
    members' observations. The field has ``num_heading_bins`` headings by ``num_place_bins`` times ``num_place_bins``
    positions.
    """

    swarm: Swarm = eqx.field(default=VICSEK)
    discretization: RBFKernels | HistogramBins = eqx.field(default=RBFKernels())
    points_per_axis: int = eqx.field(static=True, default=5)
    num_heading_bins: int = eqx.field(static=True, default=8)
    num_place_bins: int = eqx.field(static=True, default=2)

    @property
    def spec(self) -> EnvSpec:
        """Specification of the environment: its spaces and its time limit."""
        field, rule = (
            Box((self.num_heading_bins * self.num_place_bins**2,), 0.0, 1.0),
            Box((2 * self.points_per_axis**2,), -1.0, 1.0),
        )
        return EnvSpec(
            "mean-field", Box((1,), 0.0, 1.0), rule, time_limit=self.swarm.time_limit, privileged_space=field
        )

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[SwarmState, TimeStep]:
        """Starts a new swarm."""
        swarm_state = self.swarm.init_swarm(key)
        return swarm_state, self._time_step(swarm_state, jnp.zeros(()))

    def step(
        self, state: SwarmState, action: Float[Array, " rule"], key: Key[Array, ""]
    ) -> tuple[SwarmState, TimeStep]:
        """Every member samples its turn from the rule, then all move."""
        turns = self.sample_turns(state, action, fold(key, "turns"))
        swarm_state = self.swarm.move(state, turns, fold(key, "move"))
        return swarm_state, self._time_step(swarm_state, order_parameter(swarm_state))

    def sample_turns(
        self, state: SwarmState, action: Float[Array, " rule"], key: Key[Array, ""]
    ) -> Float[Array, " agent"]:
        """Each member's turn, sampled from the rule at its own observation."""
        points = _grid(jnp.linspace(-1.0, 1.0, self.points_per_axis), jnp.linspace(-1.0, 1.0, self.points_per_axis))
        weights = jax.vmap(lambda observation: self.discretization.weights(observation, points))(
            self.swarm.local_observations(state)
        )
        mean, scaled_log_std = jnp.split(jnp.clip(action, -1.0, 1.0), 2)
        log_std = MIN_LOG_STD + (MAX_LOG_STD - MIN_LOG_STD) * (scaled_log_std + 1.0) / 2.0
        return weights @ mean + jnp.exp(weights @ log_std) * jax.random.normal(key, state.headings.shape)

    def mean_field(self, state: SwarmState) -> Float[Array, " points"]:
        """Share of members near each point, ``[heading, first place, second place]`` flattened."""
        heading = 2 * jnp.pi * jnp.arange(self.num_heading_bins) / self.num_heading_bins
        place = 2 * jnp.pi * (jnp.arange(self.num_place_bins) + 0.5) / self.num_place_bins
        angles = jnp.concatenate([state.headings[:, None], 2 * jnp.pi * state.positions], axis=1)
        points = _to_circles(_grid(heading, place, place))
        return jnp.mean(jax.vmap(lambda x: self.discretization.weights(x, points))(_to_circles(angles)), axis=0)

    def _time_step(self, flock: SwarmState, paid: Float[Array, ""]) -> TimeStep:
        clock, no = self.swarm.elapsed_fraction(flock)[None], jnp.zeros((), bool)
        return TimeStep(clock, paid, no, self.swarm.is_truncated(flock), privileged=self.mean_field(flock))


def _squared_distances(x: Float[Array, " d"], points: Float[Array, "m d"]) -> Float[Array, " m"]:
    return jnp.sum((points - x) ** 2, axis=-1)


def _grid(*axes: Float[Array, " _"]) -> Float[Array, "m d"]:
    return jnp.stack(jnp.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


def _to_circles(angles: Float[Array, "n d"]) -> Float[Array, "n 2*d"]:
    """Maps angles to points on circles, so that distances respect periodicity."""
    return jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], axis=-1)


KURAMOTO_BY_KERNELS, KURAMOTO_BY_HISTOGRAM = MeanFieldEnv(KURAMOTO), MeanFieldEnv(KURAMOTO, HistogramBins())
VICSEK_BY_KERNELS, VICSEK_BY_HISTOGRAM = MeanFieldEnv(VICSEK), MeanFieldEnv(VICSEK, HistogramBins())
