"""What the small trials of continuous control share, so that arms and papers differ in what they are about alone.

Worlds are compiled, episodes have 200 steps, nets two layers of 64 units, minibatches 64 samples. With a discount of
0.97 what lies 152 steps ahead weighs less than 1%, so that values can be compared with what followed.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.core.feeds import Replay, Rollouts
from thespis.envs.compiled.reacher import Reacher
from thespis.learners.temperature import TunedTemperature
from thespis.methods.online.ddpg import DDPG
from thespis.methods.online.ppo import PPO
from thespis.methods.online.sac import SAC

WORLDS = ("gymnax:Pendulum-v1", "thespis.envs.compiled.swing_up:SwingUp")
ROBOTS = ("gymnasium:Hopper-v5", "gymnasium:Walker2d-v5", "gymnasium:HalfCheetah-v5")
PADDED = Reacher(padding=8)
"""Two joints, and eight numbers of an action that do nothing."""
STEPS = 15_000
"""Per seed, with an update a step after the first 1,000."""
LONG = 1_000_000
"""Steps of a full-size trial, per seed."""

SMALL: dict[str, Any] = {
    "hidden": (64, 64),
    "learning_rate": 1e-3,
    "discount": 0.97,
    "feed": Replay(batch=64, warmup=1_000),
}
LARGE: dict[str, Any] = {"learning_rate": 3e-4, "feed": Replay(batch=256, warmup=10_000)}

QUICK = TunedTemperature(learning_rate=1e-3)
"""A temperature that moves as fast as the nets, as in the paper."""
SMALL_DDPG = DDPG(**SMALL)
SMALL_SAC = SAC(**SMALL, temperature=QUICK)
SMALL_PPO = PPO(discount=0.97, feed=Rollouts(length=128, envs=8))
LARGE_DDPG = dataclasses.replace(DDPG(**LARGE), learning_rate=1e-3)
LARGE_SAC = SAC(**LARGE)
LARGE_PPO = PPO(feed=Rollouts(length=2048, envs=1))
