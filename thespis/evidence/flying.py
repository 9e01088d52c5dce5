"""What trials with the quadrotor share: how its flights are scored in air that training did not know."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from thespis.core.contracts import Mode
from thespis.envs.compiled.flights import Flight
from thespis.envs.compiled.quadrotor import Quadrotor
from thespis.envs.host.compiled import AsHost
from thespis.envs.registry import compiled
from thespis.evaluation.play import play
from thespis.evidence.measures import Measure
from thespis.trained import Run

FLIGHTS = 100
"""Per seed."""


@dataclasses.dataclass(frozen=True)
class Unknown:
    """Flights with a craft so many times as heavy, whose rotors are so many times as slow to follow, and the reward as
    strict as ``strict`` says: weights of position, velocity and action.
    """

    mass: float = 1.0
    lag: float = 1.0
    strict: tuple[float, float, float] | None = None

    def of(self, flight: Flight) -> Flight:
        """A flight changed so."""
        craft = flight.airframe
        changed = craft.mass * self.mass, craft.rise * self.lag, craft.fall * self.lag
        flight = eqx.tree_at(lambda f: (f.airframe.mass, f.airframe.rise, f.airframe.fall), flight, changed)
        if self.strict is None:
            return flight
        weights = tuple(jnp.float32(w) for w in self.strict)
        return eqx.tree_at(lambda f: (f.reward.position, f.reward.velocity, f.reward.action), flight, weights)

    def returns(self, run: Run) -> Float[np.ndarray, " seed"]:
        """Mean greedy return of every seed of a finished run."""
        world = compiled(run.config["env"])
        assert isinstance(world, Quadrotor)
        base = world.flight
        world = dataclasses.replace(world, flight=lambda: self.of(base()))
        seeds = run.config["seeds"]
        worlds = AsHost(world, FLIGHTS * len(seeds))
        return play(run.method, run.states, worlds, seeds, Mode.EXPLOIT, stream="unknown").returns.mean(axis=1)


def held_out_return(mass: float = 1.2, lag: float = 1.3) -> Measure:
    """Mean greedy return with a heavier craft and slower rotors than in training."""
    return Measure(
        f"greedy return with {mass:g} of the mass and {lag:g} of the rotors' lag", Unknown(mass, lag).returns
    )


def strict_return() -> Measure:
    """Mean greedy return under the weights at which the authors' curriculum ends."""
    return Measure("greedy return under the final weights", Unknown(strict=(40.0, 1.0, 1.0)).returns)
