"""Trains in mazes with jaxued's own example script, and plays the test mazes as it does: one JSON file.

python by_jaxued.py CHECKOUT CURRICULUM STEPS OUT.json --seed 0

``CHECKOUT`` is a clone of jaxued, whose examples are not part of its package. Its script is run as it is; what it would
send to Weights & Biases is kept here, and the size of the mazes and the test mazes are replaced, as they are constants
there. Runs in an environment of its own: jaxued, flax, distrax, orbax-checkpoint, and no wandb.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
import types
from pathlib import Path
from typing import Any

from task import (
    CAPACITY,
    LEARNING_RATE,
    NUM_EPOCHS,
    NUM_MINIBATCHES,
    NUM_STEPS,
    NUM_TRAIN_ENVS,
    SIZE,
    WALLS,
    read_mazes,
)

FLAGS = {
    "dr": ("maze_dr", []),
    "plr": ("maze_plr", ["exploratory_grad_updates"]),
    "robust-plr": ("maze_plr", []),
    "accel": ("maze_plr", ["use_accel"]),
}


class Config(dict):
    """A dictionary whose entries are attributes too."""

    __getattr__ = dict.get


def stub_wandb(rows: list[dict[str, Any]]) -> types.ModuleType:
    """A module that appends what is logged to ``rows``."""
    module = types.ModuleType("wandb")

    def init(config: dict[str, Any], **_: Any) -> None:
        module.config = Config(config)  # type: ignore[attr-defined]

    def log(values: dict[str, Any]) -> None:
        scalars = ("num_env_steps", "return/mean", "solve_rate/mean")
        rows.append({name: float(values[name]) for name in scalars} | {"clock": time.perf_counter()})
        print(json.dumps(rows[-1]), flush=True)

    ignore = lambda *_, **__: None  # noqa: E731
    vars(module).update(init=init, log=log, define_metric=ignore, Image=ignore, Video=ignore)
    return module


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("checkout", type=Path)
    parser.add_argument("curriculum", choices=FLAGS)
    parser.add_argument("steps", type=int)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--points", type=int, default=10)
    args = parser.parse_args()
    sys.path[:0] = [str(args.checkout / "src"), str(args.checkout / "examples")]
    rows: list[dict[str, Any]] = []
    sys.modules["wandb"] = stub_wandb(rows)
    script, flags = FLAGS[args.curriculum]
    example = importlib.import_module(script)
    level = importlib.import_module("jaxued.environments.maze.level")
    mazes = {f"test-{i}": "\n".join(rows) for i, rows in enumerate(read_mazes())}
    level.prefabs.update(mazes)
    make_maze = example.Maze
    example.Maze = lambda max_height, max_width, **rest: make_maze(max_height=SIZE, max_width=SIZE, **rest)
    num_updates = args.steps // (NUM_STEPS * NUM_TRAIN_ENVS)
    config = {
        "project": "mazes",
        "run_name": "mazes",
        "group_name": "mazes",
        "seed": args.seed,
        "mode": "train",
        "checkpoint_save_interval": 0,
        "max_number_of_checkpoints": 1,
        "eval_freq": max(num_updates // args.points, 1),
        "eval_num_attempts": 10,
        "eval_levels": list(mazes),
        "lr": LEARNING_RATE,
        "max_grad_norm": 0.5,
        "num_updates": num_updates,
        "num_steps": NUM_STEPS,
        "num_train_envs": NUM_TRAIN_ENVS,
        "num_minibatches": NUM_MINIBATCHES,
        "gamma": 0.995,
        "epoch_ppo": NUM_EPOCHS,
        "clip_eps": 0.2,
        "gae_lambda": 0.98,
        "entropy_coeff": 1e-3,
        "critic_coeff": 0.5,
        "score_function": "MaxMC",
        "exploratory_grad_updates": False,
        "level_buffer_capacity": CAPACITY,
        "replay_prob": 0.8,
        "staleness_coeff": 0.3,
        "temperature": 0.3,
        "topk_k": 4,
        "minimum_fill_ratio": 0.5,
        "prioritization": "rank",
        "buffer_duplicate_check": True,
        "use_accel": False,
        "num_edits": 5,
        "agent_view_size": 5,
        "n_walls": WALLS,
    }
    began = time.perf_counter()
    example.main(config | dict.fromkeys(flags, True), project="mazes")
    first, last = rows[0], rows[-1]
    speed = (last["num_env_steps"] - first["num_env_steps"]) / (last["clock"] - first["clock"])
    result = {"theirs": args.curriculum, "seed": args.seed, "steps_per_second": speed, "points": rows}
    args.out.write_text(json.dumps(result | {"seconds": time.perf_counter() - began}) + "\n")


if __name__ == "__main__":
    main()
