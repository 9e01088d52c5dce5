"""Whether a Gymnasium environment answers as its spaces promise. Each check reads recorded, untouched answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces as g

from thespis.cli.doctor_checks.actions import bounds, masks
from thespis.cli.doctor_checks.check import Check, Clock, Failed, Warned, look
from thespis.cli.doctor_checks.raw import Recording, at_random, record
from thespis.cli.doctor_checks.spaces import describe, limits, parts, short, space_leaves
from thespis.core.errors import UserError
from thespis.envs.spaces import from_gymnasium

_STEPS = 300


def check_answers(env: Any, clock: Clock) -> list[Check]:
    """All checks that look at single answers, the most elementary first."""
    checks = [look("spaces", _spaces, env)]
    if checks[0].passed is False:
        return checks
    told = [record(env, seed, at_random(env.action_space, seed), _STEPS, clock) for seed in range(3)]
    questions: list[tuple[str, Callable[[Any, list[Recording]], str]]] = [
        ("reset and step", _protocol),
        ("observation shape", _shape),
        ("observation dtype", _dtype),
        ("observation values", _finite),
        ("observation bounds", _bounds),
        ("reward", _reward),
        ("reward values", _reward_values),
        ("end flags", _flags),
        ("action mask", masks),
    ]
    for name, question in questions:
        checks.append(look(name, question, env, told))
        if name == "observation shape" and checks[-1].passed is False:
            return checks  # nothing can be said of the numbers in it
    checks.append(look("action bounds", bounds, env, clock))
    checks.append(look("aliasing", _aliasing, env, told))
    return checks


def _spaces(env: Any) -> str:
    for what in ("observation_space", "action_space"):
        space = getattr(env, what, None)
        if space is None:
            raise Failed(f"the environment has no {what}: set it in __init__, from gymnasium.spaces")
        try:
            from_gymnasium(space)
        except UserError as error:
            raise Failed(f"{what}: {error}") from error
    for space in space_leaves(env.action_space):
        if isinstance(space, g.Box) and not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise Warned(f"the action space {space} has infinite bounds: sac, td3 and ddpg need finite ones")
        if isinstance(space, g.Box) and (space.low >= space.high).any():
            raise Failed(f"the action space {space} has a lower bound that is not below the upper one")
    return f"observation {short(env.observation_space)}, action {short(env.action_space)}"


def _protocol(env: Any, told: list[Recording]) -> str:
    for recording in told:
        if recording.error:
            raise Failed(recording.error)
    return f"{sum(len(recording.answers) for recording in told)} answers, no exception"


def _each(env: Any, told: list[Recording]) -> Any:
    """``(where, name, space, value)`` of every part of every observation."""
    for recording in told:
        for t, answer in enumerate(recording.answers):
            where = "reset" if t == 0 else f"step {t}"
            for name, space, value in parts("observation", env.observation_space, answer.observation):
                yield where, name, space, value


def _shape(env: Any, told: list[Recording]) -> str:
    for where, name, space, value in _each(env, told):
        if np.shape(value) != space.shape:
            raise Failed(f"{where} returned {name} of shape {np.shape(value)}; its space declares {space.shape}")
    return "as declared"


def _dtype(env: Any, told: list[Recording]) -> str:
    loose = None
    for where, name, space, value in _each(env, told):
        found, wanted = np.asarray(value).dtype, np.dtype(space.dtype)
        if found == wanted or (wanted.kind in "iu" and found.kind in "iu" and not isinstance(space, g.Box)):
            continue
        text = f"{where} returned {name} of dtype {found}; its space declares {wanted}"
        if not np.can_cast(found, wanted, "same_kind") and found.kind != "b":
            raise Failed(f"{text}: cast it with .astype(np.{wanted}), or declare {found}")
        loose = loose or f"{text} (it is cast)"
    if loose:
        raise Warned(loose)
    return "as declared"


def _finite(env: Any, told: list[Recording]) -> str:
    for where, name, _, value in _each(env, told):
        array = np.asarray(value)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise Failed(f"{where} returned {name} holding {array[~np.isfinite(array)].flat[0]}")
    return "no NaN, no infinity"


def _bounds(env: Any, told: list[Recording]) -> str:
    for where, name, space, value in _each(env, told):
        low, high = limits(space)
        array = np.asarray(value, "float64")
        slack = 1e-5 * np.maximum(1.0, np.minimum(np.abs(low), np.abs(high)))
        outside = (array < low - slack) | (array > high + slack)
        if outside.any():
            at = tuple(int(i) for i in np.argwhere(outside)[0])
            raise Failed(
                f"{where} returned {name}{list(at) if at else ''} = {array[at]:g}, outside its declared range "
                f"[{np.broadcast_to(low, array.shape)[at]:g}, {np.broadcast_to(high, array.shape)[at]:g}]: clip it, or "
                "widen the space"
            )
    return "within the declared space"


def _reward(env: Any, told: list[Recording]) -> str:
    for recording in told:
        for t, answer in enumerate(recording.answers[1:], 1):
            if np.shape(answer.reward) != () or np.asarray(answer.reward).dtype.kind not in "fiub":
                raise Failed(
                    f"step {t} returned the reward {describe(answer.reward)}: return one number, float(reward)"
                )
    return "one number a step"


def _reward_values(env: Any, told: list[Recording]) -> str:
    for recording in told:
        for t, answer in enumerate(recording.answers[1:], 1):
            value = np.asarray(answer.reward)
            if value.dtype.kind in "fiub" and not np.isfinite(value).all():
                raise Failed(f"step {t} returned the reward {value}: find the division or logarithm that makes it")
    return "all finite"


def _flags(env: Any, told: list[Recording]) -> str:
    for recording in told:
        for t, answer in enumerate(recording.answers[1:], 1):
            for name in ("terminated", "truncated"):
                flag = getattr(answer, name)
                if not isinstance(flag, bool | np.bool_):
                    raise Failed(f"step {t} returned {name} = {describe(flag)}: return a bool")
    return "terminated and truncated are bools"


def _aliasing(env: Any, told: list[Recording]) -> str:
    for recording in told:
        for t, answer in enumerate(recording.answers[1:], 1):
            if answer.overwritten:
                raise Failed(
                    f"step {t} overwrote the observation that was returned before it: return a copy, "
                    "observation.copy(), or every stored observation changes afterwards"
                )
    return "returned observations stay as they are"
