"""Trains a hovering policy from nothing: ``ours.py TASK SEED DIRECTORY``. What differs from the paper stands in it."""

import sys

import thespis
from thespis.papers.learning_to_fly import PAPER

WORLDS = {"published": "Quadrotor", "l2f": "DECKED"}
ARM = PAPER.miniature.arms[0]
STEPS = PAPER.miniature.steps
WARMUP, EVERY = ARM.method.feed.warmup, ARM.method.feed.envs
"""Steps of one craft before the first update, and between two updates; the craft are ``EVERY`` too."""

if __name__ == "__main__":
    task, seed, directory = sys.argv[1:]
    thespis.train(
        ARM.method,
        env=f"thespis.envs.compiled.quadrotor:{WORLDS[task]}",
        steps=STEPS,
        seeds=[int(seed)],
        curriculum=ARM.options["curriculum"],
        episodes=1,
        out=directory,
    )
