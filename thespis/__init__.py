"""Thespis: an actor acts, a critic evaluates, a learner improves.

Public names are imported when first used, so that ``import thespis`` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PUBLIC = {
    "A2C": "thespis.methods.online.a2c",
    "BC": "thespis.methods.imitation.bc",
    "DDPG": "thespis.methods.online.ddpg",
    "DQN": "thespis.methods.online.dqn",
    "DSAC": "thespis.methods.online.dsac",
    "From": "thespis.runs.state_addresses",
    "Frozen": "thespis.feedback.frozen",
    "IMPALA": "thespis.methods.online.impala",
    "NStepQ": "thespis.methods.online.n_step_q",
    "PPO": "thespis.methods.online.ppo",
    "SAC": "thespis.methods.online.sac",
    "SACV": "thespis.methods.online.sac_v",
    "TD3": "thespis.methods.online.td3",
    "Run": "thespis.evaluation.run",
    "UserError": "thespis.core.errors",
    "load": "thespis.evaluation.run",
    "resume": "thespis.api",
    "sweep": "thespis.sweeps.sweep",
    "train": "thespis.api",
    "train_stages": "thespis.api",
    "tune": "thespis.sweeps.tune",
}

__all__ = [
    "A2C",
    "BC",
    "DDPG",
    "DQN",
    "DSAC",
    "IMPALA",
    "PPO",
    "SAC",
    "SACV",
    "TD3",
    "From",
    "Frozen",
    "NStepQ",
    "Run",
    "UserError",
    "load",
    "resume",
    "sweep",
    "train",
    "train_stages",
    "tune",
]

if TYPE_CHECKING:
    from thespis.api import load, resume, train, train_stages
    from thespis.core.errors import UserError
    from thespis.evaluation.run import Run
    from thespis.feedback.frozen import Frozen
    from thespis.methods.imitation.bc import BC
    from thespis.methods.online.a2c import A2C
    from thespis.methods.online.ddpg import DDPG
    from thespis.methods.online.dqn import DQN
    from thespis.methods.online.dsac import DSAC
    from thespis.methods.online.impala import IMPALA
    from thespis.methods.online.n_step_q import NStepQ
    from thespis.methods.online.ppo import PPO
    from thespis.methods.online.sac import SAC
    from thespis.methods.online.sac_v import SACV
    from thespis.methods.online.td3 import TD3
    from thespis.runs.state_addresses import From
    from thespis.sweeps.sweep import sweep
    from thespis.sweeps.tune import tune


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'thespis' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
