"""Exploitability of magnetic mirror descent in poker over training time, computed by OpenSpiel.

    python benchmarks/games/poker.py train kuhn_poker runs/kuhn --seeds 3     # resumes an interrupted run
    python benchmarks/games/poker.py judge kuhn_poker runs/kuhn --seeds 3     # writes benchmarks/results/

Training is that of ``thespis train mmd``. The policy is converted to a tabular policy of OpenSpiel, which computes its
exploitability. Time is that of training all seeds, after compilation: wall clock and CPU time of all cores.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from pathlib import Path

import checkpoint_copies
import jax
import numpy as np
import pyspiel

from thespis.core.contracts import Mode
from thespis.data.feeds import Rollouts
from thespis.envs import registry
from thespis.envs.games.game_tree import build_game_tree
from thespis.evaluation.exploitability import method_probabilities
from thespis.learners.multi_agent.independent_learners import IndependentLearners
from thespis.learners.on_policy.policy_regularizers import MagnetKL
from thespis.learners.optim.optimizers import InverseSqrtSchedule
from thespis.methods.games.mmd import MMD, default_ppo
from thespis.runs import checkpoint
from thespis.training.assembly import METHOD_STATE_PATH, method_state_shapes

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from openspiel_games import PAIRS, to_openspiel  # the correspondence of information states

RESULTS = Path(__file__).parents[1] / "results"


@dataclasses.dataclass(frozen=True)
class Work:
    """Method, steps per seed, and seconds between checkpoint copies."""

    method: MMD
    steps: int
    every: float


LARGE = dataclasses.replace(
    default_ppo(),
    hidden_sizes=(128, 128),
    learning_rate=InverseSqrtSchedule(1e-3, 1_600.0),
    max_grad_norm=5.0,
    minibatch_size=2048,
    policy_regularizer=MagnetKL(uniform_coef=0.4, kl_coef=20.0),
    feed=Rollouts(num_steps=32, num_envs=256),
)
WORK = {
    "kuhn_poker": Work(MMD(), 3_000_000, 15.0),
    "leduc_holdem": Work(MMD(LARGE, ema_decay=0.998, magnet_coef=None), 16_000_000, 90.0),
}


def judge(name: str, out: Path, seeds: list[int]) -> None:
    """Evaluate all copied checkpoints."""
    method, env = IndependentLearners(WORK[name].method), registry.make_compiled(f"pgx:{name}")
    tree, game = build_game_tree(env.game), PAIRS[name]
    openspiel_game, shapes = game.load(), method_state_shapes(method, env.spec, seeds)
    table = jax.jit(lambda state: method_probabilities(method, state, tree, Mode.SAMPLE))
    curve = []
    for entry in checkpoint_copies.times(out):
        states, _ = checkpoint.load(
            checkpoint_copies.copies_dir(out) / f"{entry['step']:.0f}.ckpt", shapes, METHOD_STATE_PATH
        )
        exploitabilities = []
        for i in range(len(seeds)):
            rows = np.asarray(table(jax.tree.map(lambda x, i=i: x[i], states)), "float64")
            rows = np.where(tree.action_mask, rows, 0.0)
            policy = to_openspiel(game, tree, rows / rows.sum(axis=1, keepdims=True))
            exploitabilities.append(pyspiel.exploitability(openspiel_game, policy))
        curve.append(entry | {"exploitability": exploitabilities})
        print(json.dumps(curve[-1]), flush=True)
    result = {"game": name, "seeds": seeds, "method": repr(method), "cores": os.cpu_count(), "curve": curve}
    (RESULTS / f"mmd-{name.replace('_', '-')}.json").write_text(json.dumps(result, indent=1) + "\n")


def main() -> None:
    """Train or evaluate."""
    parser = argparse.ArgumentParser(
        description="Train mirror descent in poker and compute its exploitability by OpenSpiel."
    )
    parser.add_argument("what", choices=("train", "judge"))
    parser.add_argument("game", choices=WORK)
    parser.add_argument("out", type=Path, help="directory of the run")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    args = parser.parse_args()
    work, seeds = WORK[args.game], list(range(args.seeds))
    if args.what == "judge":
        judge(args.game, args.out, seeds)
    else:
        checkpoint_copies.train(work.method, f"pgx:{args.game}", work.steps, seeds, args.out, work.every)


if __name__ == "__main__":
    main()
