"""Minari datasets on disk as columns. Nothing is downloaded."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import numpy as np

from thespis.core.errors import UserError, missing_extra
from thespis.core.records import EnvSpec
from thespis.core.spaces import map_space
from thespis.data.transitions import Columns, flatten_columns
from thespis.envs.space_conversion import from_gymnasium

MinariData = tuple[EnvSpec, Columns, dict[str, Any]]


def is_minari_dataset(directory: Path) -> bool:
    """Whether ``directory``, or its ``data`` folder in Minari's layout, is a Minari dataset."""
    return _find_data_dir(directory) is not None


def read_minari(directory: Path) -> MinariData:
    """Spec, columns and metadata of a Minari dataset. Raises ``UserError`` if Minari cannot read it."""
    return _convert(str(directory), lambda minari: minari.MinariDataset(_find_data_dir(directory)))


def load_local_minari(name: str) -> MinariData:
    """As :func:`read_minari`, for a local dataset by its Minari name, under ``MINARI_DATASETS_PATH``."""

    def opening(minari: Any) -> Any:
        directory = minari.storage.get_dataset_path(name)
        if not (directory / "data").exists():
            raise UserError(_missing_message(name, directory, sorted(minari.list_local_datasets())))
        return minari.load_dataset(name, download=False)

    return _convert(f"minari:{name}", opening)


def _missing_message(name: str, directory: Path, local: list[str]) -> str:
    root = Path(*directory.parts[: len(directory.parts) - len(Path(name).parts)])
    near = difflib.get_close_matches(name, local, 3, 0.4)
    hint = f"; did you mean {' or '.join(near)}, which is there?" if near else ""
    return (
        f"there is no Minari dataset {name} in {root}, and nothing is downloaded by itself: fetch it once with "
        f"`minari download {name}` (`minari list remote` shows all names){hint}"
    )


def _find_data_dir(directory: Path) -> Path | None:
    for candidate in (directory, directory / "data"):
        if (candidate / "metadata.json").exists():
            return candidate
    return None


def _convert(path: str, opening: Any) -> MinariData:
    try:
        import minari
    except ImportError:
        raise missing_extra("minari", "data") from None
    try:
        dataset = opening(minari)
        spaces = dataset.observation_space, dataset.action_space
        episodes = [_episode_columns(*spaces, episode) for episode in dataset.iterate_episodes()]
    except ImportError as error:  # Minari's storage formats have dependencies of their own
        raise missing_extra(error.name or "a library of minari", "data") from None
    except UserError:
        raise
    except Exception as error:  # whatever a damaged file causes
        raise UserError(f"Minari cannot read {path}: {type(error).__name__}: {_first_line(error)}") from error
    if not episodes:
        raise UserError(f"the Minari dataset {path} has no episodes")
    columns = {name: np.concatenate([episode[name] for episode in episodes]) for name in episodes[0]}
    env = dataset.env_spec.id if dataset.env_spec else "unknown"
    spec = EnvSpec(f"gymnasium:{env}", from_gymnasium(spaces[0]), from_gymnasium(spaces[1]))
    returns = [float(np.sum(episode["reward"], dtype="float64")) for episode in episodes]
    return (
        spec,
        columns,
        {"env": spec.name, "minari": dataset.id, "episodes": len(episodes), "returns": returns},
    )


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else "no reason given"


def _episode_columns(observation_space: Any, action_space: Any, episode: Any) -> Columns:
    """The columns of one episode. Minari stores one observation more than steps: the true final one."""
    observations = _from_minari_values(observation_space, episode.observations)
    actions = _from_minari_values(action_space, episode.actions)
    space, length = from_gymnasium(observation_space), len(episode.rewards)
    truncated = np.array(episode.truncations, bool)
    truncated[-1] |= not episode.terminations[-1]  # a recording that was cut short
    return {
        **flatten_columns(space, "observation", map_space(lambda _, x: x[:length], space, observations)),
        **flatten_columns(space, "next_observation", map_space(lambda _, x: x[1:], space, observations)),
        **flatten_columns(from_gymnasium(action_space), "action", actions),
        "reward": np.asarray(episode.rewards),
        "terminated": np.asarray(episode.terminations, bool),
        "truncated": truncated,
    }


def _from_minari_values(space: Any, values: Any) -> Any:
    """Values of a Gymnasium space in our layout: choices start at 0 and are flattened into one vector."""
    import gymnasium.spaces as g

    match space:
        case g.Dict():
            return {name: _from_minari_values(part, values[name]) for name, part in space.spaces.items()}
        case g.Tuple():
            return tuple(_from_minari_values(part, value) for part, value in zip(space.spaces, values, strict=True))
        case g.Discrete():
            return np.asarray(values) - space.start
        case g.MultiDiscrete():
            return (np.asarray(values) - space.start).reshape(len(values), -1)
        case g.MultiBinary():
            return np.asarray(values).reshape(len(values), -1)
    return np.asarray(values)
