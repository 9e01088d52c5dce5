"""The dataset of the cases that learn from one: steps of a fixed noisy policy, the same numbers every time."""

from __future__ import annotations

import shutil
from pathlib import Path

import gymnasium
import numpy as np

from thespis.core.spaces import Box
from thespis.data.columns import Columns
from thespis.data.datasets import ABOUT, write_dataset


def dataset(folder: Path, env: str, rows: int) -> Path:
    """The directory of the dataset below ``folder``, made if it is not there."""
    home = folder / f"{env}-{rows}"
    if not (home / ABOUT).exists():
        print(f"making {rows:,} steps of {env}", flush=True)
        shutil.rmtree(home, ignore_errors=True)  # what was interrupted
        columns = play(env, rows)
        spaces = {
            "observation": Box(columns["observation"].shape[1:]),
            "action": Box(columns["action"].shape[1:], -1.0, 1.0),
        }
        write_dataset(home, columns, {"env": env} | spaces)
    return home


def play(env: str, rows: int) -> Columns:
    """So many steps, in single precision: a squashed linear policy with noise, something that can be imitated."""
    world, random = gymnasium.make(env), np.random.default_rng(0)
    names = ("observation", "action", "reward", "next_observation", "terminated", "truncated")
    found: dict[str, list] = {name: [] for name in names}
    size, width = world.observation_space.shape[0], world.action_space.shape[0]
    weights = random.normal(size=(width, size)) / np.sqrt(size)
    seen, _ = world.reset(seed=0)
    for _ in range(rows):
        action = np.clip(np.tanh(weights @ seen) + 0.1 * random.normal(size=width), -1, 1).astype("float32")
        following, reward, terminated, truncated, _ = world.step(action)
        for name, value in zip(names, (seen, action, reward, following, terminated, truncated), strict=True):
            found[name].append(value)
        seen = world.reset()[0] if terminated or truncated else following
    kinds = {"terminated": bool, "truncated": bool}
    return {name: np.asarray(values, kinds.get(name, "float32")) for name, values in found.items()}
