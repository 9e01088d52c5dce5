"""Self-play of a small language model in text games by SPIRAL, with and without baselines per player.

    python benchmarks/games/lm_self_play.py tictactoe --seed 0            # 47 minutes of a busy core
    python benchmarks/games/lm_self_play.py kuhn --seed 0 --means         # writes results/lm-self-play-kuhn.json

The model is a decoder of one or two layers, pretrained on legal moves; SPIRAL trains it with a turn-level critic.
``tictactoe``: exact probabilities that greedy play wins, draws and loses against uniformly random play, averaged over
both players. ``kuhn``: exploitability of the sampled policy in Kuhn poker.
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
from thespis.data.feeds import Episodes
from thespis.envs.registry import make_compiled
from thespis.evaluation.vs_random import evaluate_vs_random
from thespis.evidence.measures import exploitability
from thespis.learners.language.advantage_estimators import TurnGAE
from thespis.learners.language.rollout_transforms import PlayerBaseline
from thespis.learners.optim.optimizers import LinearSchedule
from thespis.papers.spiral.method import SPIRAL

RESULTS = Path(__file__).parents[1] / "results"
GAMES = 64


def learner(updates: int, entropy: float, layers: int, means: bool) -> SPIRAL:
    """SPIRAL with a critic, one gradient step per update, and a learning rate that falls linearly to 0."""
    return SPIRAL(
        model="tiny",
        num_layers=layers,
        hidden_size=64,
        num_pretrain_steps=1_000,
        advantage_estimator=TurnGAE(),
        vf_coef=0.1,
        ent_coef=entropy,
        learning_rate=LinearSchedule(1e-3, float(updates)),
        minibatch_size=2 * GAMES,
        rollout_transform=PlayerBaseline() if means else None,
        feed=Episodes(num_envs=GAMES),
    )


@dataclasses.dataclass(frozen=True)
class Work:
    """An environment, its number of turns, and training settings."""

    env: str
    turns: int
    updates: int
    entropy: float
    layers: int


WORK = {
    "tictactoe": Work("text:tictactoe-duel", 9, 40_000, 0.3, 2),
    "kuhn": Work("text:kuhn-duel", 3, 6_000, 0.2, 1),
}


def evaluate(game: str, run: Any) -> dict[str, float]:
    """Evaluation of a run of one seed."""
    if game == "kuhn":
        return {"exploitability": float(exploitability(WORK[game].env).compute(run)[0])}
    env, state = make_compiled(WORK[game].env), jax.tree.map(lambda x: x[0], run.states)
    outcomes = [dataclasses.asdict(evaluate_vs_random(run.method, state, env, player)) for player in range(2)]
    return {name: float(np.mean([outcome[name] for outcome in outcomes])) for name in outcomes[0]}


def main() -> None:
    """Train one seed and add its results to the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("game", choices=WORK)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--means", action="store_true", help="subtract a running mean per player from returns")
    args = parser.parse_args()
    work, start = WORK[args.game], time.perf_counter()
    method = learner(work.updates, work.entropy, work.layers, args.means)
    with tempfile.TemporaryDirectory() as folder:
        steps = work.updates * GAMES * work.turns
        run = thespis.train(method, work.env, steps=steps, seeds=[args.seed], out=Path(folder) / "run")
        result = {"seed": args.seed, "means": args.means} | evaluate(args.game, run)
    result |= {"minutes": round((time.perf_counter() - start) / 60, 1)}
    print(json.dumps(result), flush=True)
    path = RESULTS / f"lm-self-play-{args.game}.json"
    results = json.loads(path.read_text()) if path.exists() else {"work": dataclasses.asdict(work), "runs": []}
    others = [run for run in results["runs"] if (run["seed"], run["means"]) != (args.seed, args.means)]
    results["runs"] = sorted([*others, result], key=lambda run: (run["means"], run["seed"]))
    path.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
