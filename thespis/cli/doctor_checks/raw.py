"""Plays a single Gymnasium environment exactly as its author wrote it, and keeps every answer."""

from __future__ import annotations

import copy
import dataclasses
import time
import zlib
from typing import Any

import numpy as np
from gymnasium import spaces as g

from thespis.cli.doctor_checks.check import Clock
from thespis.cli.doctor_checks.episodes import LONGEST, Episode, features


class NotGymnasium(Exception):
    """An answer is not of the form that Gymnasium asks for."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """One answer of ``reset`` (the rest ``None``) or ``step``; observation and mask are copies."""

    observation: Any
    reward: Any = None
    terminated: Any = None
    truncated: Any = None
    info: Any = None
    overwritten: bool = False

    @property
    def print(self) -> int:
        """A number that tells this answer from another one."""
        parts = [np.asarray(x) for x in leaves(self.observation)]
        parts += [np.asarray(x, "float64") for x in (self.reward, self.terminated, self.truncated) if x is not None]
        return zlib.crc32(b"".join(part.tobytes() for part in parts))


@dataclasses.dataclass
class Recording:
    """Answers of one episode, and what stopped it: ``error`` is the exception's text if the world raised."""

    answers: list[Answer]
    error: str | None = None
    ended: bool = False

    @property
    def prints(self) -> list[int]:
        """Of every answer."""
        return [answer.print for answer in self.answers]


def record(env: Any, seed: int | None, choose: Any, limit: int, clock: Clock) -> Recording:
    """One episode of at most ``limit`` steps; ``choose(t, mask)`` gives the actions."""
    told = Recording([])
    try:
        observation, info = pair(env.reset(seed=seed))
        told.answers.append(Answer(copy.deepcopy(observation), info=_kept(info)))
        for t in range(limit):
            before, held = observation, told.answers[-1].observation
            answer = five(env.step(choose(t, info.get("action_mask"))))
            observation, reward, terminated, truncated, info = answer
            overwritten = not same(before, held)
            told.answers.append(
                Answer(copy.deepcopy(observation), reward, terminated, truncated, _kept(info), overwritten)
            )
            told.ended = bool(terminated) or bool(truncated)
            if told.ended or not clock.left:
                break
    except NotGymnasium as error:
        told.error = str(error)
    except Exception as error:
        where = f"step {len(told.answers)}" if told.answers else "reset"
        told.error = f"{where} raised {type(error).__name__}: {error}"
    return told


def _kept(info: dict) -> dict:
    known = ("action_mask", "final_observation", "final_obs")
    return {name: copy.deepcopy(info[name]) for name in known if name in info}


def pair(answer: Any) -> tuple[Any, dict]:
    """The answer of ``reset``."""
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict)):
        raise NotGymnasium("reset must return (observation, info)")
    return answer


def five(answer: Any) -> tuple[Any, Any, Any, Any, dict]:
    """The answer of ``step``."""
    if not (isinstance(answer, tuple) and len(answer) == 5 and isinstance(answer[4], dict)):
        raise NotGymnasium("step must return (observation, reward, terminated, truncated, info)")
    return answer


def leaves(value: Any) -> list[Any]:
    """Parts of an observation, dicts by name."""
    if isinstance(value, dict):
        return [leaf for name in sorted(value) for leaf in leaves(value[name])]
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in leaves(part)]
    return [value]


def same(one: Any, other: Any) -> bool:
    """Whether two observations hold the same numbers (NaN equals NaN)."""
    pairs = zip(leaves(one), leaves(other), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


def at_random(space: Any, seed: int) -> Any:
    """``choose`` that draws legal actions uniformly, always the same ones for one ``seed``."""
    drawn = copy.deepcopy(space)
    drawn.seed(seed)
    return lambda t, mask: draw(drawn, mask)


def draw(space: Any, mask: Any) -> Any:
    """One legal action of a ``gymnasium`` space."""
    match space:
        case g.Dict():
            return {name: draw(part, mask and mask.get(name)) for name, part in space.spaces.items()}
        case g.Tuple():
            return tuple(draw(part, mask and mask[i]) for i, part in enumerate(space.spaces))
        case g.Discrete() if mask is not None:
            return space.sample(np.asarray(mask, "int8"))
        case g.MultiDiscrete() if mask is not None:
            return space.sample(tuple(np.asarray(piece, "int8") for piece in split_mask(space, mask)))
    return space.sample()


def split_mask(space: g.MultiDiscrete, mask: Any) -> list[np.ndarray]:
    """One mask per choice, from a tuple of masks or from masks laid end to end."""
    if isinstance(mask, tuple | list):
        return [np.asarray(piece) for piece in mask]
    return np.split(np.asarray(mask).ravel(), np.cumsum(space.nvec.ravel())[:-1])


def episodes(env: Any, first_seed: int, most: int, clock: Clock) -> list[Episode]:
    """Up to ``most`` episodes of random play as numbers, in the time that is left."""
    found: list[Episode] = []
    while len(found) < most and clock.left:
        seed = first_seed + len(found)
        told = record(env, seed, at_random(env.action_space, seed), LONGEST, clock)
        if told.error or len(told.answers) < 2:
            break
        last = told.answers[-1]
        found.append(
            Episode(
                np.stack([features(leaves(answer.observation)) for answer in told.answers]),
                np.array([answer.reward for answer in told.answers[1:]], "float64").ravel(),
                bool(last.terminated),
                bool(last.truncated),
                {"final_observation", "final_obs"} & set(last.info),
            )
        )
    return found


def steps_per_second(env: Any, seconds: float) -> float:
    """How fast the world steps under random actions, restarts included."""
    choose, count, info = at_random(env.action_space, 0), 0, env.reset(seed=0)[1]
    began = time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds:
        _, _, terminated, truncated, info = env.step(choose(0, info.get("action_mask")))
        count += 1
        if terminated or truncated:
            info = env.reset()[1]
    return count / spent
