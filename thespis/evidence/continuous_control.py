"""Shared settings of small continuous-control trials, so that arms and papers differ only in their subject.

Environments are compiled, episodes have 200 steps, networks two layers of 64 units, minibatches 64 samples. With a
discount of 0.97 rewards 152 steps ahead have a weight below 1%, so that values can be compared with realised returns.
"""

from __future__ import annotations

from typing import Any

from thespis.data.feeds import Replay, Rollouts
from thespis.envs.compiled.reacher import Reacher
from thespis.evidence.paired_verdict import plan_looks
from thespis.learners.off_policy.temperature import TunedTemperature
from thespis.methods.online.ddpg import DDPG
from thespis.methods.online.ppo import PPO
from thespis.methods.online.sac import SAC

SMALL_ENVS = ("gymnax:Pendulum-v1", "thespis.envs.compiled.swing_up:SwingUp")
MUJOCO_ENVS = ("gymnasium:Hopper-v5", "gymnasium:Walker2d-v5", "gymnasium:HalfCheetah-v5")
PADDED_REACHER = Reacher(num_dummy_actions=8)
"""Reacher with two joints and eight action dimensions without effect."""
SMALL_STEPS = 15_000
"""Steps of a small trial per seed, with one update per step after the first 1,000."""
SHORT_STEPS = 10_000
"""Steps of a small trial on the bench of off-policy control, per seed: SAC is on its way there, and not at its end."""
LARGE_STEPS = 1_000_000
"""Steps of a full-size trial, per seed."""
EARLY_STEPS = 100_000
"""Steps of a full-size trial by protocol 2, per seed: as many as its pairs can have on two cores."""
EARLY_LOOKS = plan_looks((6,))
"""Six pairs, the least that can decide."""

SMALL_SETTINGS: dict[str, Any] = {
    "hidden_sizes": (64, 64),
    "learning_rate": 1e-3,
    "discount": 0.97,
    "feed": Replay(batch_size=64, learning_starts=1_000),
}
LARGE_SETTINGS: dict[str, Any] = {"learning_rate": 3e-4, "feed": Replay(batch_size=256, learning_starts=10_000)}


def with_critic_learning_rate(settings: dict[str, Any]) -> dict[str, Any]:
    """The same settings for DDPG and DSAC, whose critic has its own learning rate."""
    return {"critic_learning_rate" if name == "learning_rate" else name: value for name, value in settings.items()}


FAST_TEMPERATURE = TunedTemperature(learning_rate=1e-3)
"""A temperature with the same learning rate as the networks, as in the paper."""
SMALL_SAC = SAC(**SMALL_SETTINGS, temperature=FAST_TEMPERATURE)
SHORT_SETTINGS: dict[str, Any] = {
    "hidden_sizes": (32, 32),
    "learning_rate": 3e-3,
    "discount": 0.97,
    "feed": Replay(batch_size=32, learning_starts=1_000),
}
"""Settings for :data:`SHORT_STEPS`: small networks and batches, for time. SAC with a learning rate of 3e-3 is ahead of
SAC with 1e-3, on seeds 1,100 to 1,109 of the reacher with noisy rewards."""
SHORT_SAC = SAC(**SHORT_SETTINGS, temperature=FAST_TEMPERATURE)
LARGE_DDPG = DDPG(**with_critic_learning_rate(LARGE_SETTINGS | {"learning_rate": 1e-3}))
LARGE_SAC = SAC(**LARGE_SETTINGS)
LARGE_PPO = PPO(feed=Rollouts(num_steps=2048, num_envs=1))
