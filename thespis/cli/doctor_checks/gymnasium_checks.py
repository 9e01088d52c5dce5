"""Checks of a Gymnasium environment: spaces, observations, rewards, flags, action masks and actions at the bounds.

Observations, rewards and flags are compared with the environment's spaces, on recorded raw steps. Other functions
traverse spaces with their values, and format both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from gymnasium import spaces as g

from thespis.cli.doctor_checks.check import CheckFailure, CheckResult, CheckWarning, TimeBudget, run_check
from thespis.cli.doctor_checks.gymnasium_rollout import (
    RawEpisode,
    random_policy,
    record_episode,
    sample_action,
    split_mask,
)
from thespis.core.errors import UserError
from thespis.envs.space_conversion import from_gymnasium


def iter_leaves(name: str, space: Any, value: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield ``(name, space, value)`` of every leaf. Raises :class:`CheckFailure` if a part is missing."""
    match space:
        case g.Dict():
            if not isinstance(value, dict) or set(value) != set(space.spaces):
                raise CheckFailure(
                    f"{name} is {format_value(value)}; its space declares a dict of {', '.join(space.spaces)}"
                )
            for part in space.spaces:
                yield from iter_leaves(f"{name}[{part!r}]", space[part], value[part])
        case g.Tuple():
            if not isinstance(value, tuple) or len(value) != len(space.spaces):
                raise CheckFailure(
                    f"{name} is {format_value(value)}; its space declares a tuple of {len(space.spaces)}"
                )
            for i, part in enumerate(space.spaces):
                yield from iter_leaves(f"{name}[{i}]", part, value[i])
        case _:
            yield name, space, value


def space_bounds(space: Any) -> tuple[Any, Any]:
    """Lowest and highest values of a leaf space."""
    match space:
        case g.Box():
            return space.low.astype("float64"), space.high.astype("float64")
        case g.Discrete():
            return float(space.start), float(space.start + space.n - 1)
        case g.MultiDiscrete():
            return space.start.astype("float64"), (space.start + space.nvec - 1).astype("float64")
    return 0.0, 1.0  # MultiBinary


def space_leaves(space: Any) -> list[Any]:
    """The leaf spaces of a space."""
    if isinstance(space, g.Dict | g.Tuple):
        parts = space.spaces.values() if isinstance(space, g.Dict) else space.spaces
        return [leaf for part in parts for leaf in space_leaves(part)]
    return [space]


def format_space(space: Any) -> str:
    """A space as a short text."""
    match space:
        case g.Box():
            return f"Box{list(space.shape)} {space.dtype}"
        case g.Dict():
            return f"Dict({', '.join(space.spaces)})"
    return str(space)


def format_value(value: Any) -> str:
    """A value as a short text with its type."""
    text = repr(value)
    return f"{text if len(text) < 60 else text[:57] + '...'} ({type(value).__name__})"


_BOUND_STEPS = 10


def check_action_masks(env: Any, episodes: list[RawEpisode]) -> str:
    """Check that action masks are always present, have the right size, and allow at least one action."""
    has_mask = ["action_mask" in step.info for episode in episodes for step in episode.steps]
    if not any(has_mask):
        return "no masks"
    for episode in episodes:
        for t, step in enumerate(episode.steps):
            if t == len(episode.steps) - 1 and episode.ended:
                continue  # no action follows
            location = "reset" if t == 0 else f"step {t}"
            if "action_mask" not in step.info:
                raise CheckFailure(
                    f"{location} returned no info['action_mask'], but other steps do: return one every time"
                )
            _check_mask(env.action_space, step.info["action_mask"], location)
    return f"{sum(has_mask)} masks, each with a legal action"


def _check_mask(space: Any, mask: Any, where: str) -> None:
    match space:
        case g.Dict() | g.Tuple():
            parts = space.spaces.items() if isinstance(space, g.Dict) else enumerate(space.spaces)
            for name, part in parts:
                _check_mask(part, mask.get(name) if isinstance(mask, dict) else mask[name], where)
        case g.Discrete() | g.MultiDiscrete():
            sizes = [int(space.n)] if isinstance(space, g.Discrete) else [int(n) for n in space.nvec.ravel()]
            total = sum(np.size(piece) for piece in mask) if isinstance(mask, tuple | list) else np.size(mask)
            if total != sum(sizes):
                raise CheckFailure(
                    f"{where} returned an action_mask of {total} entries; {format_space(space)} needs {sum(sizes)}"
                )
            pieces = [np.asarray(mask)] if isinstance(space, g.Discrete) else split_mask(space, mask)
            if not all(np.any(piece) for piece in pieces):
                raise CheckFailure(
                    f"{where} returned an action_mask that forbids every action although the episode continues: "
                    "allow one, or end the episode there"
                )


def check_action_bounds(env: Any, budget: TimeBudget) -> str:
    """Check that the lowest and the highest actions are accepted and lead to finite observations and rewards."""
    boxes = [space for space in space_leaves(env.action_space) if isinstance(space, g.Box)]
    masked = "action_mask" in record_episode(env, 0, random_policy(env.action_space, 0), 0, budget).steps[0].info
    choices = [space for space in space_leaves(env.action_space) if not isinstance(space, g.Box)]
    if masked and not boxes:
        return "not checked: masks forbid some choices"
    for bound in ("low", "high"):
        episode = record_episode(
            env, 0, lambda t, mask, bound=bound: _extreme_action(env.action_space, bound, mask), _BOUND_STEPS, budget
        )
        if episode.error:
            bound_name = {"low": "lower", "high": "upper"}[bound]
            raise CheckFailure(
                f"at the {bound_name} bound of the action space {episode.error}: accept it, or narrow action_space"
            )
        for t, step in enumerate(episode.steps[1:], 1):
            leaves = [x for _, _, x in iter_leaves("observation", env.observation_space, step.observation)]
            if not all(np.isfinite(np.asarray(x, "float64")).all() for x in [*leaves, step.reward]):
                raise CheckFailure(f"at the {bound} bound of the action space, step {t} returned NaN or infinity")
    return f"both ends of {len(boxes)} boxes and {len(choices)} choices are accepted"


def _extreme_action(space: Any, which: str, mask: Any) -> Any:
    match space:
        case g.Dict():
            return {name: _extreme_action(part, which, mask and mask.get(name)) for name, part in space.spaces.items()}
        case g.Tuple():
            return tuple(_extreme_action(part, which, mask and mask[i]) for i, part in enumerate(space.spaces))
        case g.Box():
            bound = space.low if which == "low" else space.high
            return np.where(np.isfinite(bound), bound, 0).astype(space.dtype)
        case _ if mask is not None:
            return sample_action(space, mask)
    low, high = space_bounds(space)
    extreme = np.broadcast_to(low if which == "low" else high, space.shape).astype(space.dtype)
    return space.dtype.type(extreme) if isinstance(space, g.Discrete) else extreme


_NUM_STEPS = 300


def check_gymnasium_api(env: Any, budget: TimeBudget) -> list[CheckResult]:
    """All checks of single steps, the most basic first."""
    checks = [run_check("spaces", _check_spaces, env)]
    if checks[0].passed is False:
        return checks
    episodes = [
        record_episode(env, seed, random_policy(env.action_space, seed), _NUM_STEPS, budget) for seed in range(3)
    ]
    functions: list[tuple[str, Callable[[Any, list[RawEpisode]], str]]] = [
        ("reset and step", _check_exceptions),
        ("observation shape", _check_shape),
        ("observation dtype", _check_dtype),
        ("observation values", _check_finite),
        ("observation bounds", _check_observation_bounds),
        ("reward", _check_reward_type),
        ("reward values", _check_reward_values),
        ("end flags", _check_end_flags),
        ("action mask", check_action_masks),
    ]
    for name, function in functions:
        checks.append(run_check(name, function, env, episodes))
        if name == "observation shape" and checks[-1].passed is False:
            return checks  # values cannot be checked without the right shape
    checks.append(run_check("action bounds", check_action_bounds, env, budget))
    checks.append(run_check("aliasing", _check_aliasing, env, episodes))
    return checks


def _check_spaces(env: Any) -> str:
    for attribute in ("observation_space", "action_space"):
        space = getattr(env, attribute, None)
        if space is None:
            raise CheckFailure(f"the environment has no {attribute}: set it in __init__, from gymnasium.spaces")
        try:
            from_gymnasium(space)
        except UserError as error:
            raise CheckFailure(f"{attribute}: {error}") from error
    for space in space_leaves(env.action_space):
        if isinstance(space, g.Box) and not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise CheckWarning(f"the action space {space} has infinite bounds: sac, td3 and ddpg need finite ones")
        if isinstance(space, g.Box) and (space.low >= space.high).any():
            raise CheckFailure(f"the action space {space} has a lower bound that is not below the upper one")
    return f"observation {format_space(env.observation_space)}, action {format_space(env.action_space)}"


def _check_exceptions(env: Any, episodes: list[RawEpisode]) -> str:
    for episode in episodes:
        if episode.error:
            raise CheckFailure(episode.error)
    return f"{sum(len(episode.steps) for episode in episodes)} steps, no exception"


def _iter_observations(env: Any, episodes: list[RawEpisode]) -> Any:
    """Yield ``(location, name, space, value)`` of every part of every observation."""
    for episode in episodes:
        for t, step in enumerate(episode.steps):
            location = "reset" if t == 0 else f"step {t}"
            for name, space, value in iter_leaves("observation", env.observation_space, step.observation):
                yield location, name, space, value


def _check_shape(env: Any, episodes: list[RawEpisode]) -> str:
    for location, name, space, value in _iter_observations(env, episodes):
        if np.shape(value) != space.shape:
            raise CheckFailure(
                f"{location} returned {name} of shape {np.shape(value)}; its space declares {space.shape}"
            )
    return "as declared"


def _check_dtype(env: Any, episodes: list[RawEpisode]) -> str:
    cast_note = None
    for location, name, space, value in _iter_observations(env, episodes):
        dtype, expected = np.asarray(value).dtype, np.dtype(space.dtype)
        if dtype == expected or (expected.kind in "iu" and dtype.kind in "iu" and not isinstance(space, g.Box)):
            continue
        text = f"{location} returned {name} of dtype {dtype}; its space declares {expected}"
        if not np.can_cast(dtype, expected, "same_kind") and dtype.kind != "b":
            raise CheckFailure(f"{text}: cast it with .astype(np.{expected}), or declare {dtype}")
        cast_note = cast_note or f"{text} (it is cast)"
    if cast_note:
        raise CheckWarning(cast_note)
    return "as declared"


def _check_finite(env: Any, episodes: list[RawEpisode]) -> str:
    for location, name, _, value in _iter_observations(env, episodes):
        array = np.asarray(value)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise CheckFailure(f"{location} returned {name} with {array[~np.isfinite(array)].flat[0]}")
    return "no NaN, no infinity"


def _check_observation_bounds(env: Any, episodes: list[RawEpisode]) -> str:
    for location, name, space, value in _iter_observations(env, episodes):
        low, high = space_bounds(space)
        array = np.asarray(value, "float64")
        slack = 1e-5 * np.maximum(1.0, np.minimum(np.abs(low), np.abs(high)))
        outside = (array < low - slack) | (array > high + slack)
        if outside.any():
            index = tuple(int(i) for i in np.argwhere(outside)[0])
            raise CheckFailure(
                f"{location} returned {name}{list(index) if index else ''} = {array[index]:g}, outside its declared "
                f"range [{np.broadcast_to(low, array.shape)[index]:g}, {np.broadcast_to(high, array.shape)[index]:g}]: "
                "clip it, or widen the space"
            )
    return "within the declared space"


def _check_reward_type(env: Any, episodes: list[RawEpisode]) -> str:
    for episode in episodes:
        for t, step in enumerate(episode.steps[1:], 1):
            if np.shape(step.reward) != () or np.asarray(step.reward).dtype.kind not in "fiub":
                raise CheckFailure(
                    f"step {t} returned the reward {format_value(step.reward)}: return one number, float(reward)"
                )
    return "one number per step"


def _check_reward_values(env: Any, episodes: list[RawEpisode]) -> str:
    for episode in episodes:
        for t, step in enumerate(episode.steps[1:], 1):
            value = np.asarray(step.reward)
            if value.dtype.kind in "fiub" and not np.isfinite(value).all():
                raise CheckFailure(
                    f"step {t} returned the reward {value}: check divisions and logarithms in the reward"
                )
    return "all finite"


def _check_end_flags(env: Any, episodes: list[RawEpisode]) -> str:
    for episode in episodes:
        for t, step in enumerate(episode.steps[1:], 1):
            for name in ("terminated", "truncated"):
                flag = getattr(step, name)
                if not isinstance(flag, bool | np.bool_):
                    raise CheckFailure(f"step {t} returned {name} = {format_value(flag)}: return a bool")
    return "terminated and truncated are bools"


def _check_aliasing(env: Any, episodes: list[RawEpisode]) -> str:
    for episode in episodes:
        for t, step in enumerate(episode.steps[1:], 1):
            if step.overwritten:
                raise CheckFailure(
                    f"step {t} overwrote the observation that was returned before it: return a copy, "
                    "observation.copy(), or every stored observation changes afterwards"
                )
    return "returned observations do not change afterwards"
