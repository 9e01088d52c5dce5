"""Whether a Gymnasium environment gives sound masks and takes the actions that its space allows."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces as g

from thespis.cli.doctor_checks.check import Clock, Failed
from thespis.cli.doctor_checks.raw import Recording, at_random, draw, record, split_mask
from thespis.cli.doctor_checks.spaces import limits, short, space_leaves
from thespis.cli.doctor_checks.spaces import parts as named_parts

_STEPS = 10


def masks(env: Any, told: list[Recording]) -> str:
    """Masks are given each time, of the right size, and leave something legal."""
    given = ["action_mask" in answer.info for recording in told for answer in recording.answers]
    if not any(given):
        return "none given"
    for recording in told:
        for t, answer in enumerate(recording.answers):
            if t == len(recording.answers) - 1 and recording.ended:
                continue  # nothing will be done
            where = "reset" if t == 0 else f"step {t}"
            if "action_mask" not in answer.info:
                raise Failed(f"{where} gave no info['action_mask'], which other answers have: give one each time")
            _check_mask(env.action_space, answer.info["action_mask"], where)
    return f"{sum(given)} masks, something legal in each"


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
                raise Failed(f"{where} gave an action_mask of {total} entries; {short(space)} needs {sum(sizes)}")
            pieces = [np.asarray(mask)] if isinstance(space, g.Discrete) else split_mask(space, mask)
            if not all(np.any(piece) for piece in pieces):
                raise Failed(
                    f"{where} gave an action_mask that forbids every action though the episode goes on: "
                    "leave one legal, or end the episode there"
                )


def bounds(env: Any, clock: Clock) -> str:
    """The lowest and the highest actions are accepted, and answered by finite numbers."""
    boxes = [space for space in space_leaves(env.action_space) if isinstance(space, g.Box)]
    masked = "action_mask" in record(env, 0, at_random(env.action_space, 0), 0, clock).answers[0].info
    choices = [space for space in space_leaves(env.action_space) if not isinstance(space, g.Box)]
    if masked and not boxes:
        return "not tried: masks forbid some choices"
    for which in ("low", "high"):
        told = record(env, 0, lambda t, mask, which=which: _extreme(env.action_space, which, mask), _STEPS, clock)
        if told.error:
            word = {"low": "lower", "high": "upper"}[which]
            raise Failed(f"at the {word} bound of the action space {told.error}: accept it, or narrow action_space")
        for t, answer in enumerate(told.answers[1:], 1):
            seen = [x for _, _, x in named_parts("observation", env.observation_space, answer.observation)]
            if not all(np.isfinite(np.asarray(x, "float64")).all() for x in [*seen, answer.reward]):
                raise Failed(f"at the {which} bound of the action space, step {t} returned NaN or infinity")
    return f"both ends of {len(boxes)} boxes and {len(choices)} choices are accepted"


def _extreme(space: Any, which: str, mask: Any) -> Any:
    match space:
        case g.Dict():
            return {name: _extreme(part, which, mask and mask.get(name)) for name, part in space.spaces.items()}
        case g.Tuple():
            return tuple(_extreme(part, which, mask and mask[i]) for i, part in enumerate(space.spaces))
        case g.Box():
            bound = space.low if which == "low" else space.high
            return np.where(np.isfinite(bound), bound, 0).astype(space.dtype)
        case _ if mask is not None:
            return draw(space, mask)
    low, high = limits(space)
    extreme = np.broadcast_to(low if which == "low" else high, space.shape).astype(space.dtype)
    return space.dtype.type(extreme) if isinstance(space, g.Discrete) else extreme
