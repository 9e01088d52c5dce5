"""How well those play a game who have learnt it from all of its seats: exactly, and against players at random."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.envs.host.compiled import AsHost
from thespis.envs.registry import compiled
from thespis.evaluation.exploitability import judge_method
from thespis.evaluation.play import play
from thespis.evidence.measures import Measure
from thespis.learners.crowd import EachAlone
from thespis.trained import Run


def exploitability(world: str) -> Measure:
    """What best replies win in ``world`` beyond the policy drawn from; the mean over seats, 0 in equilibrium."""

    def of(run: Run) -> Float[np.ndarray, " seed"]:
        game = compiled(run.config["env"]).spec.game
        if game is None:
            raise UserError(f"{run.config['env']} is no game: nobody can be exploited in it")
        return np.array([judged.exploitability for judged in judge_method(run.method, run.states, game)])

    return Measure(f"exploitability in {world}", of, larger_is_better=False, world=world)


def share_won(world: str, learnt: str, episodes: int = 300) -> Measure:
    """Share of games that return more than 0 in ``world``, one of a single agent, by greedy play of who has learnt in
    ``learnt``.
    """

    def of(run: Run) -> Float[np.ndarray, " seed"]:
        method, states, seeds = run.method, run.states, run.config["seeds"]
        if isinstance(method, EachAlone):
            (states,), method = states.of.values(), method.method
        worlds: Any = AsHost(compiled(world), episodes * len(seeds))
        return (play(method, states, worlds, seeds, Mode.EXPLOIT, stream="elsewhere").returns > 0).mean(axis=1)

    return Measure(f"share of games won in {world}", of, world=learnt)
