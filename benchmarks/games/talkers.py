"""A small language model learns games of words by talking to itself, with and without means of seats as baselines.

    python benchmarks/games/talkers.py noughts --seed 0                   # 47 minutes of a busy core
    python benchmarks/games/talkers.py poker --seed 0 --means             # writes benchmarks/results/talkers-poker.json

It begins as a decoder of one or two layers that was taught legal moves, and learns by SPIRAL with a critic of turns.
``noughts``: the shares of tic-tac-toe that greedy play wins, draws and loses against a player at random, all games
counted, the mean over both seats. ``poker``: what best replies win in Kuhn's poker beyond what is drawn from the model.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import thespis
from thespis.core.feeds import Episodes
from thespis.envs.registry import compiled
from thespis.evaluation.at_random import against_random
from thespis.evidence.seats import exploitability
from thespis.learners.credit import TurnCritic
from thespis.learners.experience import AsPlayed, BySeat
from thespis.learners.gradient import Annealed
from thespis.methods.language.spiral import Spiral

RESULTS = Path(__file__).parents[1] / "results"
GAMES = 64


def learner(updates: int, entropy: float, layers: int, means: bool) -> Spiral:
    """SPIRAL with a critic; one step on the games of an update, of a size that falls to nothing."""
    return Spiral(
        model="tiny", layers=layers, width=64, lesson=1_000, credit=TurnCritic(), value_weight=0.1,
        entropy_weight=entropy, learning_rate=Annealed(1e-3, float(updates)), minibatch=2 * GAMES,
        experience=BySeat() if means else AsPlayed(), feed=Episodes(envs=GAMES),
    )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Work:
    """A world, its turns, and how it is learnt."""

    world: str
    turns: int
    updates: int
    entropy: float
    layers: int


WORK = {
    "noughts": Work("text:tictactoe-duel", 9, 40_000, 0.3, 2),
    "poker": Work("text:kuhn-duel", 3, 6_000, 0.2, 1),
}


def judged(game: str, run: Any) -> dict[str, float]:
    """What a run of one seed is worth."""
    if game == "poker":
        return {"exploitability": float(exploitability(WORK[game].world).of(run)[0])}
    world, state = compiled(WORK[game].world), jax.tree.map(lambda x: x[0], run.states)
    fortunes = [dataclasses.asdict(against_random(run.method, state, world, seat)) for seat in range(2)]
    return {fate: float(np.mean([each[fate] for each in fortunes])) for fate in fortunes[0]}


def main() -> None:
    """Train a seed and add its figures to those of the others."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("game", choices=WORK)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--means", action="store_true", help="take a running mean of its seat from what a game has won")
    asked = parser.parse_args()
    work, began = WORK[asked.game], time.perf_counter()
    method = learner(work.updates, work.entropy, work.layers, asked.means)
    with tempfile.TemporaryDirectory() as kept:
        steps = work.updates * GAMES * work.turns
        run = thespis.train(method, work.world, steps=steps, seeds=[asked.seed], out=Path(kept) / "run")
        found = {"seed": asked.seed, "means": asked.means} | judged(asked.game, run)
    found |= {"minutes": round((time.perf_counter() - began) / 60, 1)}
    print(json.dumps(found), flush=True)
    path = RESULTS / f"talkers-{asked.game}.json"
    told = json.loads(path.read_text()) if path.exists() else {"work": dataclasses.asdict(work), "runs": []}
    others = [run for run in told["runs"] if (run["seed"], run["means"]) != (asked.seed, asked.means)]
    told["runs"] = sorted([*others, found], key=lambda run: (run["means"], run["seed"]))
    path.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
