"""Trains a hovering policy from nothing: ``ours.py TASK SEED DIRECTORY``. What differs from the paper stands in it."""

import sys

import thespis
from thespis.core.feeds import Replay
from thespis.curricula.annealing import for_hovering
from thespis.curricula.domain_randomisation import DomainRandomisation
from thespis.methods.online.td3 import TD3

WORLDS = {"published": "Quadrotor", "l2f": "DECKED"}
STEPS, WARMUP, EVERY = 300_000, 15_000, 20
"""Steps of one craft in the end, before the first update, and between two updates; the craft are ``EVERY`` too."""

METHOD = TD3(
    hidden=(64, 64),
    learning_rate=1e-3,
    feed=Replay(capacity=STEPS, batch=256, warmup=WARMUP, length=3, envs=EVERY),
)
SMALLER = DomainRandomisation((("reward.scale", 0.05, 0.05), ("reward.constant", 0.2, 0.2)))

if __name__ == "__main__":
    task, seed, directory = sys.argv[1:]
    thespis.train(
        METHOD,
        env=f"thespis.envs.compiled.quadrotor:{WORLDS[task]}",
        steps=STEPS,
        seeds=[int(seed)],
        curriculum=for_hovering(SMALLER),
        episodes=1,
        out=directory,
    )
