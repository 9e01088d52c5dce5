"""Raw episodes of a single Gymnasium environment without any adapter, with every returned value."""

from __future__ import annotations

import copy
import dataclasses
import time
import zlib
from typing import Any

import numpy as np
from gymnasium import spaces as g

from thespis.cli.doctor_checks.check import TimeBudget
from thespis.cli.doctor_checks.episode_checks import MAX_STEPS, Episode, flatten_observation


class GymnasiumAPIError(Exception):
    """A returned value does not have the form of Gymnasium's API."""


@dataclasses.dataclass(frozen=True)
class RawStep:
    """Values returned by ``reset`` (the rest ``None``) or ``step``; observation and mask are copies."""

    observation: Any
    reward: Any = None
    terminated: Any = None
    truncated: Any = None
    info: Any = None
    overwritten: bool = False

    @property
    def fingerprint(self) -> int:
        """A checksum of the returned values."""
        parts = [np.asarray(x) for x in observation_leaves(self.observation)]
        parts += [np.asarray(x, "float64") for x in (self.reward, self.terminated, self.truncated) if x is not None]
        return zlib.crc32(b"".join(part.tobytes() for part in parts))


@dataclasses.dataclass
class RawEpisode:
    """Steps of one episode; ``error`` is the exception's text if the environment raised one."""

    steps: list[RawStep]
    error: str | None = None
    ended: bool = False

    @property
    def fingerprints(self) -> list[int]:
        """Checksums of all steps."""
        return [step.fingerprint for step in self.steps]


def record_episode(env: Any, seed: int | None, policy: Any, max_steps: int, budget: TimeBudget) -> RawEpisode:
    """Record one episode of at most ``max_steps`` steps with actions from ``policy(t, mask)``."""
    episode = RawEpisode([])
    try:
        observation, info = check_reset_result(env.reset(seed=seed))
        episode.steps.append(RawStep(copy.deepcopy(observation), info=_copy_info(info)))
        for t in range(max_steps):
            previous, copied = observation, episode.steps[-1].observation
            result = check_step_result(env.step(policy(t, info.get("action_mask"))))
            observation, reward, terminated, truncated, info = result
            overwritten = not observations_equal(previous, copied)
            episode.steps.append(
                RawStep(copy.deepcopy(observation), reward, terminated, truncated, _copy_info(info), overwritten)
            )
            episode.ended = bool(terminated) or bool(truncated)
            if episode.ended or not budget.seconds_left:
                break
    except GymnasiumAPIError as error:
        episode.error = str(error)
    except Exception as error:
        location = f"step {len(episode.steps)}" if episode.steps else "reset"
        episode.error = f"{location} raised {type(error).__name__}: {error}"
    return episode


def _copy_info(info: dict) -> dict:
    names = ("action_mask", "final_observation", "final_obs")
    return {name: copy.deepcopy(info[name]) for name in names if name in info}


def check_reset_result(result: Any) -> tuple[Any, dict]:
    """The result of ``reset``; raises :class:`GymnasiumAPIError` for a wrong form."""
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
        raise GymnasiumAPIError("reset must return (observation, info)")
    return result


def check_step_result(result: Any) -> tuple[Any, Any, Any, Any, dict]:
    """The result of ``step``; raises :class:`GymnasiumAPIError` for a wrong form."""
    if not (isinstance(result, tuple) and len(result) == 5 and isinstance(result[4], dict)):
        raise GymnasiumAPIError("step must return (observation, reward, terminated, truncated, info)")
    return result


def observation_leaves(value: Any) -> list[Any]:
    """Leaves of an observation, dictionaries in order of names."""
    if isinstance(value, dict):
        return [leaf for name in sorted(value) for leaf in observation_leaves(value[name])]
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in observation_leaves(part)]
    return [value]


def observations_equal(first: Any, second: Any) -> bool:
    """Whether two observations have equal numbers (NaN equals NaN)."""
    pairs = zip(observation_leaves(first), observation_leaves(second), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


def random_policy(space: Any, seed: int) -> Any:
    """A policy ``(t, mask) -> action`` that samples legal actions uniformly, the same ones for the same ``seed``."""
    seeded_space = copy.deepcopy(space)
    seeded_space.seed(seed)
    return lambda t, mask: sample_action(seeded_space, mask)


def sample_action(space: Any, mask: Any) -> Any:
    """One legal action of a ``gymnasium`` space."""
    match space:
        case g.Dict():
            return {name: sample_action(part, mask and mask.get(name)) for name, part in space.spaces.items()}
        case g.Tuple():
            return tuple(sample_action(part, mask and mask[i]) for i, part in enumerate(space.spaces))
        case g.Discrete() if mask is not None:
            return space.sample(np.asarray(mask, "int8"))
        case g.MultiDiscrete() if mask is not None:
            return space.sample(tuple(np.asarray(piece, "int8") for piece in split_mask(space, mask)))
    return space.sample()


def split_mask(space: g.MultiDiscrete, mask: Any) -> list[np.ndarray]:
    """One mask per choice, from a tuple of masks or from concatenated masks."""
    if isinstance(mask, tuple | list):
        return [np.asarray(piece) for piece in mask]
    return np.split(np.asarray(mask).ravel(), np.cumsum(space.nvec.ravel())[:-1])


def random_episodes(env: Any, first_seed: int, max_episodes: int, budget: TimeBudget) -> list[Episode]:
    """Up to ``max_episodes`` episodes of random play as numbers, within the time budget."""
    episodes: list[Episode] = []
    while len(episodes) < max_episodes and budget.seconds_left:
        seed = first_seed + len(episodes)
        episode = record_episode(env, seed, random_policy(env.action_space, seed), MAX_STEPS, budget)
        if episode.error or len(episode.steps) < 2:
            break
        last = episode.steps[-1]
        episodes.append(
            Episode(
                np.stack([flatten_observation(observation_leaves(step.observation)) for step in episode.steps]),
                np.array([step.reward for step in episode.steps[1:]], "float64").ravel(),
                bool(last.terminated),
                bool(last.truncated),
                {"final_observation", "final_obs"} & set(last.info),
            )
        )
    return episodes


def steps_per_second(env: Any, seconds: float) -> float:
    """Steps per second under random actions, resets included."""
    policy, count, info = random_policy(env.action_space, 0), 0, env.reset(seed=0)[1]
    start = time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        _, _, terminated, truncated, info = env.step(policy(0, info.get("action_mask")))
        count += 1
        if terminated or truncated:
            info = env.reset()[1]
    return count / elapsed
