"""Datasets of d3rlpy in HDF5, as columns: ``ReplayBuffer.dump`` of version 2, and ``MDPDataset.dump`` of version 1.

Version 2 (format "2.1") has a data set per episode and part: ``observations_0``, ``actions_0``, ``rewards_0``,
``terminated_0`` (one flag), and so on to ``num_episodes``; parts of tuple observations are ``observations_0_1``. The
first axis is the step; rewards are ``[step, 1]``. An episode that is not terminated was cut off, and its last step has
no next observation. Source: ``d3rlpy/dataset/io.py`` (``dump``, ``load``) and ``components.py``
(``Episode.serialize``) of takuseno/d3rlpy 2.8.1.

Version 1 has one data set per part over all steps: ``observations``, ``actions``, ``rewards``, ``terminals``
(termination) and ``episode_terminals`` (any end of an episode). Source: ``MDPDataset.dump`` in ``dataset.pyx`` of
takuseno/d3rlpy 1.1.1, and ``load_v1`` in ``io.py`` above. D4RL's files have ``timeouts`` in place of
``episode_terminals``, and are read too.

d3rlpy itself is not needed, only h5py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from thespis.core.errors import UserError, missing_extra
from thespis.data.columns import Columns

SUFFIXES = (".h5", ".hdf5")


def read_d3rlpy(path: Path) -> Columns:
    """The columns of a d3rlpy file, by our names. Raises ``UserError`` if it is not one, or of an unknown version."""
    try:
        import h5py
    except ImportError:
        raise missing_extra("h5py", "data") from None
    try:
        with h5py.File(path, "r") as file:
            if "num_episodes" in file:
                return _read_episodes(file, path)
            if "observations" in file:
                return _read_steps(file)
            names = ", ".join(sorted(file)[:8]) or "nothing"
    except (OSError, KeyError, ValueError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"cannot read {path}: {reason}") from error
    raise UserError(f"{path} is no dataset of d3rlpy: it has neither num_episodes nor observations, but {names}")


def _read_episodes(file: Any, path: Path) -> Columns:
    version = _text(file["version"][()]) if "version" in file else "unknown"
    if version != "2.1":
        raise UserError(f"{path} is of d3rlpy's format {version!r}; 2.1 and those of version 1 are read: dump it again")
    pieces: dict[str, list[np.ndarray]] = {}
    for i in range(int(file["num_episodes"][()])):
        episode = _parts(file, "observations", i, "observation") | _parts(file, "actions", i, "action")
        episode["reward"] = file[f"rewards_{i}"][()]
        ends = np.arange(len(episode["reward"])) == len(episode["reward"]) - 1
        terminated = bool(file[f"terminated_{i}"][()])
        episode |= {"terminated": ends & terminated, "truncated": ends & (not terminated)}
        for name, values in episode.items():
            pieces.setdefault(name, []).append(values)
    if not pieces:
        raise UserError(f"{path} has no episodes")
    return {name: np.concatenate(values) for name, values in pieces.items()}


def _parts(file: Any, key: str, episode: int, ours: str) -> Columns:
    """One array, or the arrays of a tuple: ``key_3``, or ``key_3_0``, ``key_3_1`` ..."""
    if f"{key}_{episode}" in file:
        return {ours: file[f"{key}_{episode}"][()]}
    columns, j = {}, 0
    while f"{key}_{episode}_{j}" in file:
        columns[f"{ours}/{j}"] = file[f"{key}_{episode}_{j}"][()]
        j += 1
    return columns


def _read_steps(file: Any) -> Columns:
    names = {"observations": "observation", "actions": "action", "rewards": "reward", "terminals": "terminated"}
    columns = {ours: np.asarray(file[theirs][()]) for theirs, ours in names.items()}
    terminated = np.ravel(columns["terminated"]) != 0
    if "next_observations" in file:
        columns["next_observation"] = file["next_observations"][()]
    ends = next((np.ravel(file[name][()]) for name in ("episode_terminals", "timeouts") if name in file), terminated)
    return columns | {"terminated": terminated, "truncated": (ends != 0) & ~terminated}


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
