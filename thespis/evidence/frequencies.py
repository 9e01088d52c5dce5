"""How well a trained actor does that looks less often than it did while it learnt."""

from __future__ import annotations

import functools
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from thespis.core.contracts import Method, Mode
from thespis.envs import registry
from thespis.envs.compiled.held import Held
from thespis.envs.host.compiled import AsHost
from thespis.evaluation.play import play
from thespis.evidence.measures import Measure
from thespis.trained import Run

LENGTHS = (1, 4, 8, 12, 16)
"""Steps between two looks, to half of the most that Patel and Siegelmann average over: they take 1, 2, 4, 6 to 30."""


@runtime_checkable
class Sequencing(Protocol):
    """A method whose actor decides several actions at one look."""

    def deciding(self, every: int) -> Any:
        """The same method, its actor looking once in ``every`` steps."""
        ...


def frequency_averaged_score(lengths: tuple[int, ...] = LENGTHS, episodes: int = 10) -> Measure:
    """Greedy return averaged over how often the actor looks: the area under its curve over ``lengths``, by trapezoids.

    Between two looks a method that decides sequences plays them, any other one holds its action. Compiled worlds only;
    a :class:`Held` one is played as the world that it is made of. The Frequency-Averaged Score of Patel and Siegelmann
    (2025) but for its scale: theirs is shifted and divided per world so that a best return is 1, which changes no order
    within a world. ``episodes`` for each length.
    """

    def of(run: Run) -> Float[np.ndarray, " seed"]:
        returns = np.stack([returns_looking(run, every, episodes) for every in lengths])
        return np.trapezoid(returns, lengths, axis=0) / (lengths[-1] - lengths[0])

    return Measure(f"return averaged over 1 look in {lengths[0]} to {lengths[-1]} steps", of)


def return_looking(every: int, episodes: int = 20) -> Measure:
    """Mean greedy return of an actor that looks once in ``every`` steps."""
    return Measure(f"return of 1 look in {every} steps", lambda run: returns_looking(run, every, episodes))


@functools.cache
def returns_looking(run: Run, every: int, episodes: int) -> Float[np.ndarray, " seed"]:
    """Of each seed, the mean greedy return of ``episodes`` episodes in which it looks once in ``every`` steps."""
    world: Any = registry.compiled(run.config["env"])
    world = world.world if isinstance(world, Held) else world
    method: Method = run.method
    if isinstance(method, Sequencing):
        method = method.deciding(every)
    else:
        world = Held(world, every)
    seeds = run.config["seeds"]
    worlds = AsHost(world, episodes * len(seeds))
    return play(method, run.states, worlds, seeds, Mode.EXPLOIT, stream="looking").returns.mean(axis=1)
