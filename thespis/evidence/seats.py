"""How well those play a game who have learnt it from all of its seats: exactly, and against players at random."""

from __future__ import annotations

import jax
import numpy as np
from jaxtyping import Float

from thespis.core.errors import UserError
from thespis.envs.registry import compiled
from thespis.evaluation.at_random import against_random
from thespis.evaluation.exploitability import judge_method
from thespis.evidence.measures import Measure
from thespis.trained import Run


def exploitability(world: str) -> Measure:
    """What best replies win in ``world`` beyond the policy drawn from; the mean over seats, 0 in equilibrium."""

    def of(run: Run) -> Float[np.ndarray, " seed"]:
        game = compiled(run.config["env"]).spec.game
        if game is None:
            raise UserError(f"{run.config['env']} is no game: nobody can be exploited in it")
        return np.array([judged.exploitability for judged in judge_method(run.method, run.states, game)])

    return Measure(f"exploitability in {world}", of, larger_is_better=False, world=world)


def share_won(world: str) -> Measure:
    """Share of games that are won in ``world`` by greedy play against any legal choice: exact, the mean over seats."""

    def of(run: Run) -> Float[np.ndarray, " seed"]:
        duel = compiled(world)
        seats = range(duel.spec.groups[0].count)
        each = [jax.tree.map(lambda x, i=i: x[i], run.states) for i in range(len(run.config["seeds"]))]
        return np.array([np.mean([against_random(run.method, s, duel, seat).won for seat in seats]) for s in each])

    return Measure(f"share of games won in {world}", of, world=world)
