"""Small experiments in stages, and the data that they learn from, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np

from thespis.core.laws.random_samples import random_transitions
from thespis.data.datasets import transitions_to_columns, write_dataset
from thespis.envs import registry

SHORT = {"episodes": 2, "checkpoint_seconds": 0.0, "evaluate_every": 0}
ON_POLICY = {"num_steps": 16, "hidden_sizes": "8", "num_epochs": 1, "activation": "relu"}


def write_data(env: str, directory: Path) -> str:
    """Write random steps of an environment as a dataset."""
    spec = registry.make_compiled(env).spec
    columns = random_transitions(spec, np.random.default_rng(1), 60, 1)
    steps = jax.tree.map(lambda x: np.asarray(x)[:, 0], columns)
    metadata = {"env": spec.name, "observation": spec.observation_space, "action": spec.action_space}
    write_dataset(directory, transitions_to_columns(spec, steps), metadata)
    return str(directory)


def clone_then_improve(data: str, **changes: Any) -> list[dict[str, Any]]:
    """Behavior cloning, then PPO from its actor."""
    settings = {"hidden_sizes": "8", "batch_size": 4}
    clone = {"name": "clone", "method": "bc", "data": data, "steps": 12, "settings": settings, "report_every": 4}
    improve = {"name": "improve", "method": "ppo", "steps": 128, "envs": 2, "settings": ON_POLICY, "report_every": 32}
    improve |= {"start": {"method.network.body": "previous", "method.network.policy_head": "clone"}}
    return [{"env": "probe:maze"} | SHORT | stage for stage in (clone, improve | changes)]


def explore_then_exploit(**changes: Any) -> list[dict[str, Any]]:
    """PPO with RND's bonus, then PPO with the trained bonus, frozen."""
    explore = {"name": "explore", "method": "ppo", "feedback": "rnd", "settings": ON_POLICY, "report_every": 32}
    exploit = explore | {"name": "exploit", "feedback": "frozen:previous"}
    shared = {"env": "probe:maze", "steps": 64, "envs": 2} | SHORT
    return [shared | stage for stage in (explore, exploit | changes)]


def offline_then_online(data: str, **changes: Any) -> list[dict[str, Any]]:
    """SAC on a dataset, then with all of its states in the environment, with the dataset mixed into the replay."""
    settings = {"hidden_sizes": "8", "batch_size": 8, "learning_starts": 64, "feed.num_updates": 1}
    offline = {"name": "offline", "data": data, "steps": 10, "settings": settings, "report_every": 5}
    online = {"name": "online", "steps": 64 * 4, "envs": 64, "settings": settings | {"feed.demos": data}}
    online |= {"start": {"method": "previous"}, "report_every": 64}
    shared = {"method": "sac", "env": "probe:match-continuous"} | SHORT
    return [shared | stage for stage in (offline, online | changes)]
