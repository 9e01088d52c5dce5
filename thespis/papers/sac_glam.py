"""SAC-GLAM: improving online RL for LLM agents with soft actor-critic and hindsight relabelling."""

from __future__ import annotations

from typing import Any

from thespis.core.feeds import Replay, Rollouts
from thespis.evidence.speaking import TALKER
from thespis.learners.hindsight import Hindsight
from thespis.learners.temperature import FixedTemperature
from thespis.methods.language.sac_glam import SACGLAM
from thespis.methods.online.ppo import PPO
from thespis.methods.online.sac import SAC

_STEPS, _TURNS = 6_000, 6
_SIZES: dict[str, Any] = TALKER | {"model": "blank"}
_SAC = SAC(
    discount=0.95, learning_rate=1e-3, temperature=FixedTemperature(0.02), hidden=(64,),
    feed=Replay(capacity=_STEPS, batch=32, warmup=512, every=2, length=_TURNS, envs=8),
)  # fmt: skip
_PPO = PPO(
    discount=0.95, learning_rate=1e-3, trace=0.95, entropy_weight=0.01, hidden=(64,), epochs=4, minibatch=64,
    feed=Rollouts(length=2 * _TURNS, envs=16),
)  # fmt: skip


def _sac(hindsight: Hindsight) -> SACGLAM:
    return SACGLAM(**_SIZES, method=_SAC, hindsight=hindsight, patience=50)
