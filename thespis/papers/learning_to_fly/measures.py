"""Measures of quadrotor trials: returns under dynamics and rewards that differ from training."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from thespis.core.contracts import Mode
from thespis.envs.host.wrapper import HostWrapper
from thespis.envs.registry import make_compiled
from thespis.evaluation.rollout import play_episodes
from thespis.evaluation.run import Run
from thespis.evidence.measures import Measure
from thespis.papers.learning_to_fly.envs import Quadrotor, QuadrotorParams

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
        seeds = run.config["seeds"]
        envs = HostWrapper(env, NUM_EPISODES * len(seeds))
        return play_episodes(run.method, run.states, envs, seeds, Mode.EXPLOIT, stream="unknown").episode_returns.mean(
            axis=1
        )


def dynamics_shift_return(mass_scale: float = 1.2, rotor_lag_scale: float = 1.3) -> Measure:
    """Mean greedy return with higher mass and slower rotors than in training."""
    return Measure(
        f"greedy return with {mass_scale:g} of the mass and {rotor_lag_scale:g} of the rotors' lag",
        DynamicsShift(mass_scale, rotor_lag_scale).mean_returns,
    )


def strict_reward_return() -> Measure:
    """Mean greedy return under the reward weights at the end of the authors' curriculum."""
    return Measure("greedy return under the final weights", DynamicsShift(reward_weights=(40.0, 1.0, 1.0)).mean_returns)
