"""Measures of quadrotor trials: returns under dynamics and rewards that differ from training."""

from __future__ import annotations

import dataclasses
import functools

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from thespis.core.contracts import Mode
from thespis.envs.registry import make_compiled
from thespis.evaluation.baseline import RandomPolicy
from thespis.evaluation.rollout import RolloutResult
from thespis.evaluation.run import Run
from thespis.evidence.measures import Measure, final_return, play_in
from thespis.papers.learning_to_fly.envs import Quadrotor, QuadrotorParams
from thespis.papers.learning_to_fly.planar import PlanarParams, PlanarQuadrotor

NUM_EPISODES = 100
"""Evaluation episodes per seed."""


@dataclasses.dataclass(frozen=True)
class DynamicsShift:
    """Dynamics shift of the quadrotor: scaled mass, scaled rotor lag, and optionally other reward weights.

    ``reward_weights`` are those of position, velocity and action; ``None``: as in training.
    """

    mass_scale: float = 1.0
    rotor_lag_scale: float = 1.0
    reward_weights: tuple[float, float, float] | None = None

    def apply(self, flight: QuadrotorParams) -> QuadrotorParams:
        """The parameters of a flight with the changes applied."""
        craft = flight.airframe
        changed = (
            craft.mass * self.mass_scale,
            craft.rise_time * self.rotor_lag_scale,
            craft.fall_time * self.rotor_lag_scale,
        )
        flight = eqx.tree_at(lambda f: (f.airframe.mass, f.airframe.rise_time, f.airframe.fall_time), flight, changed)
        if self.reward_weights is None:
            return flight
        weights = tuple(jnp.float32(w) for w in self.reward_weights)
        return eqx.tree_at(lambda f: (f.reward.position, f.reward.velocity, f.reward.action), flight, weights)

    def mean_returns(self, run: Run) -> Float[np.ndarray, " seed"]:
        """Mean greedy return of every seed of a finished run under the changed dynamics."""
        env = make_compiled(run.config["env"])
        assert isinstance(env, Quadrotor)
        base = env.make_params
        env = dataclasses.replace(env, make_params=lambda: self.apply(base()))
        return play_in(run, env, NUM_EPISODES, Mode.EXPLOIT, "unknown").episode_returns.mean(axis=1)


def dynamics_shift_return(mass_scale: float = 1.2, rotor_lag_scale: float = 1.3) -> Measure:
    """Mean greedy return with higher mass and slower rotors than in training."""
    return Measure(
        f"greedy return with {mass_scale:g} of the mass and {rotor_lag_scale:g} of the rotors' lag",
        DynamicsShift(mass_scale, rotor_lag_scale).mean_returns,
    )


FINAL_WEIGHTS = 40.0, 1.0, 1.0
"""Weights of position, velocity and action at the end of the authors' curriculum, with which they evaluate."""


def strict_reward_return() -> Measure:
    """Mean greedy return under the reward weights at the end of the authors' curriculum."""
    return Measure("greedy return under the final weights", DynamicsShift(reward_weights=FINAL_WEIGHTS).mean_returns)


def planar_strict_return(mode: str = "greedy") -> Measure:
    """Mean return of the planar quadrotor under the final weights; ``mode``: ``greedy`` or ``random``."""
    return Measure(
        f"{mode} return under the final weights",
        lambda run: planar_strict_flights(run, mode == "random").episode_returns.mean(axis=1),
    )


def strictness_loss() -> Measure:
    """Return of greedy flights under the initial weights minus that under the final ones, as a share of the highest.

    Large where a policy stays up, but not in place.
    """

    def shares(run: Run) -> Float[np.ndarray, " seed"]:
        spec = make_compiled(run.config["env"]).spec
        assert spec.time_limit is not None
        highest = float(spec.params.reward.constant) * spec.time_limit
        return (final_return().compute(run) - planar_strict_return().compute(run)) / highest

    return Measure("share of the highest return that the final weights take", shares, larger_is_better=False)


@functools.cache
def planar_strict_flights(run: Run, random_play: bool = False) -> RolloutResult:
    """Flights of every seed under the final weights, greedy or of uniformly random actions."""
    env = make_compiled(run.config["env"])
    assert isinstance(env, PlanarQuadrotor)
    base = env.make_params
    env = dataclasses.replace(env, make_params=lambda: with_final_weights(base()))
    if random_play:
        policy, states = RandomPolicy(env.spec.action_space, env.spec.groups), np.arange(len(run.config["seeds"]))
        return play_in(run, env, NUM_EPISODES, Mode.SAMPLE, "strict", method=policy, states=states)
    return play_in(run, env, NUM_EPISODES, Mode.EXPLOIT, "strict")


def with_final_weights(flight: PlanarParams) -> PlanarParams:
    """The parameters of a flight with the reward weights at the end of the authors' curriculum."""
    weights = tuple(jnp.float32(w) for w in FINAL_WEIGHTS)
    return eqx.tree_at(lambda f: (f.reward.position, f.reward.velocity, f.reward.action), flight, weights)
