"""Every method that has a critic, small and quick, with settings under which it learns the probes to 2%."""

import dataclasses

from thespis.core.feeds import Replay, Rollouts
from thespis.learners.temperature import FixedTemperature
from thespis.methods.online.a2c import A2C
from thespis.methods.online.ddpg import DDPG
from thespis.methods.online.dqn import DQN
from thespis.methods.online.ppo import PPO
from thespis.methods.online.sac import SAC
from thespis.methods.online.td3 import TD3
from thespis.nets.body import GRU

ROLLOUTS = Rollouts(length=32, envs=8)
REPLAY = Replay(capacity=4_000, batch=64, warmup=64, envs=8)
WINDOWS = dataclasses.replace(REPLAY, length=3)

_BASE = {"learning_rate": 1e-2, "discount": 0.9, "hidden": (16,)}
_ON = _BASE | {"feed": ROLLOUTS}
_OFF = _BASE | {"feed": REPLAY}
_QUICK = {"target_every": 20, "epsilon_updates": 300.0}

METHODS = {
    "a2c": A2C(**_ON | {"learning_rate": 2e-3}, trace=0.9),
    "ppo": PPO(**_ON | {"learning_rate": 3e-3}, epochs=4),
    "ppo-gru": PPO(**_ON, epochs=4, memory=GRU(16)),
    "dqn": DQN(**_OFF, **_QUICK),
    "dqn-3-step": DQN(**_BASE, **_QUICK, feed=WINDOWS),
    "dqn-duelling": DQN(**_OFF, **_QUICK, duelling=True),
    "ddpg": DDPG(**_OFF, target_rate=0.1),
    "td3": TD3(**_OFF, target_rate=0.1),
    "sac": SAC(**_OFF, target_rate=0.1, temperature=FixedTemperature(0.0)),
}
"""Under their names in the tests."""

STEPS = {"a2c": 400_000, "ppo": 80_000, "ppo-gru": 40_000}
"""Environment steps per seed; 16,000 for the others."""


def tuned(method: str, probe: str):
    """The method for a probe and its number of steps: where chance decides, small steps average it out."""
    chosen, steps = METHODS[method], STEPS.get(method, 16_000)
    if probe == "picture":  # convolutions are slow, and this world is easy
        return dataclasses.replace(chosen, learning_rate=1e-3), 10_000
    if probe.startswith("coin"):
        slow = {"learning_rate": 3e-4}
        if method.startswith("ppo") or method == "a2c":
            return dataclasses.replace(chosen, **slow), 400_000
        slow["feed"] = dataclasses.replace(chosen.feed, batch=256, capacity=40_000)
        return dataclasses.replace(chosen, **slow), 100_000
    return chosen, steps
