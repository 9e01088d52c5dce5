"""What a method can do, found by asking it: which spaces its ``init`` takes, and which loops its feed allows."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from thespis.core.agents import Group
from thespis.core.contracts import ForMany, Method
from thespis.core.errors import UserError
from thespis.core.feeds import Episodes, Logged, LoggedEpisodes, Pairs, Replay, Rollouts
from thespis.core.keys import key_of
from thespis.core.records import EnvSpec
from thespis.core.spaces import Box, Discrete, MultiDiscrete, Space, Text, dict_space
from thespis.core.vocabulary import closed

WORDS = closed(("yes", "no"))
ACTIONS: dict[str, Space] = {
    "box": Box((2,), -1.0, 1.0),
    "discrete": Discrete(3),
    "multi-discrete": MultiDiscrete((2, 3)),
    "trees": dict_space(move=Box((2,), -1.0, 1.0), speak=Discrete(3)),
    "utterances": Text(2, WORDS),
    "listed utterances": Text(2, WORDS, choices=((3, 2), (4, 2))),
}
OBSERVATIONS: dict[str, Space] = {
    "box": Box((3,)),
    "discrete": Discrete(4),
    "images": Box((36, 36, 3), 0, 255, "uint8"),
    "trees": dict_space(place=Box((3,)), room=Discrete(4)),
    "conversations": Text(8, WORDS),
}
LOOPS = {
    Rollouts: ("compiled", "host"),
    Episodes: ("compiled", "host"),
    Replay: ("compiled", "host", "logged"),
    Logged: ("logged",),
    LoggedEpisodes: ("logged",),
    Pairs: ("logged",),
}


def abilities(method: Method) -> dict[str, list[str]]:
    """Kinds of actions and observations that a method takes, and its loops."""
    actions = [name for name, space in ACTIONS.items() if _takes(method, _told(space), space)]
    if not actions:  # spaces are not enough for it
        return {"actions": ["moves of a game"], "observations": ["what players see"], "loops": loops_of(method)}
    some = ACTIONS[actions[0]]
    seen = [name for name, space in OBSERVATIONS.items() if _takes(method, space, some)]
    return {"actions": actions, "observations": seen, "loops": loops_of(method)}


def _told(action: Space) -> Space:
    """Something to see where such an action is taken."""
    return OBSERVATIONS["conversations" if isinstance(action, Text) else "box"]


def loops_of(method: Method) -> list[str]:
    """The loops that can feed it."""
    return list(LOOPS[type(method.feed)])


def _takes(method: Method, observation: Space, action: Space) -> bool:
    spec = EnvSpec("any", observation, action, time_limit=3)
    if isinstance(method, ForMany):
        group = Group("any", 2)
        spec = EnvSpec("any", dict_space(any=observation), dict_space(any=action), groups=(group,))
    try:
        jax.eval_shape(lambda key: method.init(spec, key), key_of(0))
    except (ValueError, UserError):
        return False
    return True


def leaves_by_path(tree: PyTree) -> dict[str, Any]:
    """Leaves by dotted path, arrays as numbers or lists; a float32 has no more digits than it needs."""

    def plain(leaf: Any) -> Any:
        value = np.asarray(leaf)
        return float(str(value)) if value.shape == () and value.dtype == np.float32 else value.tolist()

    found = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): plain(leaf) for path, leaf in found}


def in_words(space: Space) -> str:
    """``box (6,) float32, -1 to 1``, ``one of 4``, ``{move: ..., speak: ...}``."""
    match space:
        case Discrete():
            return f"one of {space.n}"
        case MultiDiscrete():
            return f"choices of {', '.join(map(str, space.nvec))}"
        case Box():
            return f"box {space.shape} {space.dtype}, {_bound(space.low)} to {_bound(space.high)}"
        case Text():
            return f"text of up to {space.length} of {space.vocabulary.size} words"
    parts = [f"{name}: {in_words(part)}" for name, part in space.parts]
    return "{" + ", ".join(parts) + "}" if space.kind == "dict" else f"({', '.join(parts)})"


def _bound(bound: float | tuple[float, ...]) -> str:
    return f"{bound:g}" if not isinstance(bound, tuple) else f"({', '.join(f'{b:g}' for b in bound)})"
