"""Trains a hovering policy from scratch: ``ours.py TASK SEED DIRECTORY``; differences to the paper are in its page."""

import sys

import thespis
from thespis.papers.learning_to_fly.paper import PAPER

ENVS = {"published": "Quadrotor", "l2f": "DECKS_QUADROTOR"}
assert PAPER.full is not None
ARM = PAPER.full.arms[0]
STEPS = PAPER.full.steps
WARMUP, EVERY = ARM.method.feed.learning_starts, ARM.method.feed.num_envs
"""Steps per environment before the first update, and between updates; there are ``EVERY`` environments."""

if __name__ == "__main__":
    task, seed, directory = sys.argv[1:]
    thespis.train(
        ARM.method,
        env=f"thespis.papers.learning_to_fly.envs:{ENVS[task]}",
        steps=STEPS,
        seeds=[int(seed)],
        curriculum=ARM.options["curriculum"],
        episodes=1,
        evaluate_every=0,
        out=directory,
    )
