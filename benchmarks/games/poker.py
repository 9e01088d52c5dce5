"""How exploitable mirror descent is after how long: trained as ``thespis train mmd`` does, judged by OpenSpiel.

    python benchmarks/games/poker.py train kuhn_poker runs/kuhn --seeds 3     # goes on where it was interrupted
    python benchmarks/games/poker.py judge kuhn_poker runs/kuhn --seeds 3     # writes benchmarks/results/

The policy of every information state is written into a table of OpenSpiel's, which says how much best replies win on
average. Time is that of training all seeds, compiled once: on the clock and of all cores together.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from pathlib import Path

import jax
import kept
import numpy as np
import pyspiel

from thespis.assembly import METHOD_STATE, method_states_like
from thespis.core.contracts import Mode
from thespis.core.feeds import Rollouts
from thespis.core.game_trees import game_tree
from thespis.envs import registry
from thespis.evaluation.exploitability import ask
from thespis.learners.anchors import Magnet
from thespis.learners.crowd import EachAlone
from thespis.learners.gradient import Falling
from thespis.methods.games.mmd import MMD, mirror_descent
from thespis.runs import checkpoint

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from spiel import PAIRS, as_theirs  # which of our information states is which of OpenSpiel's

RESULTS = Path(__file__).parents[1] / "results"


@dataclasses.dataclass(frozen=True)
class Work:
    """What is trained for how many steps of each seed, and how often it is looked at."""

    method: MMD
    steps: int
    every: float


LARGE = dataclasses.replace(
    mirror_descent(), hidden=(128, 128), learning_rate=Falling(1e-3, 1_600.0), max_gradient_norm=5.0, minibatch=2048,
    anchor=Magnet(uniform=0.4, inertia=20.0), feed=Rollouts(length=32, envs=256),
)  # fmt: skip
WORK = {
    "kuhn_poker": Work(MMD(), 3_000_000, 15.0),
    "leduc_holdem": Work(MMD(LARGE, decay=0.998, magnet=None), 16_000_000, 90.0),
}


def judge(name: str, out: Path, seeds: list[int]) -> None:
    """Judge every checkpoint that was kept."""
    method, world = EachAlone(WORK[name].method), registry.compiled(f"pgx:{name}")
    tree, pair = game_tree(world.game), PAIRS[name]
    theirs, like = pair.load(), method_states_like(method, world.spec, seeds)
    table = jax.jit(lambda state: ask(method, state, tree, Mode.SAMPLE))
    curve = []
    for at in kept.times(out):
        states, _ = checkpoint.load(kept.beside(out) / f"{at['step']:.0f}.ckpt", like, METHOD_STATE)
        found = []
        for i in range(len(seeds)):
            rows = np.asarray(table(jax.tree.map(lambda x, i=i: x[i], states)), "float64")
            rows = np.where(tree.legal, rows, 0.0)
            policy = as_theirs(pair, tree, rows / rows.sum(axis=1, keepdims=True))
            found.append(pyspiel.exploitability(theirs, policy))
        curve.append(at | {"exploitability": found})
        print(json.dumps(curve[-1]), flush=True)
    told = {"game": name, "seeds": seeds, "method": repr(method), "cores": os.cpu_count(), "curve": curve}
    (RESULTS / f"mmd-{name.replace('_', '-')}.json").write_text(json.dumps(told, indent=1) + "\n")


def main() -> None:
    """Train or judge."""
    parser = argparse.ArgumentParser(description="Train mirror descent in poker, and have OpenSpiel judge it.")
    parser.add_argument("what", choices=("train", "judge"))
    parser.add_argument("game", choices=WORK)
    parser.add_argument("out", type=Path, help="directory of the run")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds are trained")
    asked = parser.parse_args()
    work, seeds = WORK[asked.game], list(range(asked.seeds))
    if asked.what == "judge":
        judge(asked.game, asked.out, seeds)
    else:
        kept.train(work.method, f"pgx:{asked.game}", work.steps, seeds, asked.out, work.every)


if __name__ == "__main__":
    main()
