"""Datasets for offline benchmark cases: steps of a fixed noisy policy, the same numbers every time."""

from __future__ import annotations

import shutil
from pathlib import Path

import gymnasium
import numpy as np

from thespis.core.spaces import Box
from thespis.data.columns import Columns
from thespis.data.datasets import METADATA_FILE, write_dataset


def dataset(folder: Path, env: str, rows: int) -> Path:
    """The directory of the dataset in ``folder``, written if it does not exist."""
    home = folder / f"{env}-{rows}"
    if not (home / METADATA_FILE).exists():
        print(f"making {rows:,} steps of {env}", flush=True)
        shutil.rmtree(home, ignore_errors=True)  # an interrupted attempt
        columns = play(env, rows)
        spaces = {
            "observation": Box(columns["observation"].shape[1:]),
            "action": Box(columns["action"].shape[1:], -1.0, 1.0),
        }
        write_dataset(home, columns, {"env": env} | spaces)
    return home


def play(env: str, rows: int) -> Columns:
    """Columns of ``rows`` steps in single precision, by a squashed linear policy with noise."""
    environment, rng = gymnasium.make(env), np.random.default_rng(0)
    names = ("observation", "action", "reward", "next_observation", "terminated", "truncated")
    columns: dict[str, list] = {name: [] for name in names}
    size, width = environment.observation_space.shape[0], environment.action_space.shape[0]
    weights = rng.normal(size=(width, size)) / np.sqrt(size)
    obs, _ = environment.reset(seed=0)
    for _ in range(rows):
        action = np.clip(np.tanh(weights @ obs) + 0.1 * rng.normal(size=width), -1, 1).astype("float32")
        next_obs, reward, terminated, truncated, _ = environment.step(action)
        for name, value in zip(names, (obs, action, reward, next_obs, terminated, truncated), strict=True):
            columns[name].append(value)
        obs = environment.reset()[0] if terminated or truncated else next_obs
    kinds = {"terminated": bool, "truncated": bool}
    return {name: np.asarray(values, kinds.get(name, "float32")) for name, values in columns.items()}
