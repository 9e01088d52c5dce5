"""Capabilities of methods, by trial: the spaces that their ``init`` accepts, and the loops that their feed supports."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from thespis.core.contracts import Method, MultiAgentMethod
from thespis.core.errors import UserError
from thespis.core.records import EnvSpec
from thespis.core.spaces import AgentGroup, Box, Discrete, MultiDiscrete, Space, Text, dict_space, word_vocabulary
from thespis.runtime.keys import seed_key

EXAMPLE_VOCABULARY = word_vocabulary(("yes", "no"))
ACTION_SPACES: dict[str, Space] = {
    "box": Box((2,), -1.0, 1.0),
    "discrete": Discrete(3),
    "multi-discrete": MultiDiscrete((2, 3)),
    "trees": dict_space(move=Box((2,), -1.0, 1.0), speak=Discrete(3)),
    "text": Text(2, EXAMPLE_VOCABULARY),
    "candidate responses": Text(2, EXAMPLE_VOCABULARY, choices=((3, 2), (4, 2))),
}
OBSERVATION_SPACES: dict[str, Space] = {
    "box": Box((3,)),
    "discrete": Discrete(4),
    "images": Box((36, 36, 3), 0, 255, "uint8"),
    "trees": dict_space(place=Box((3,)), room=Discrete(4)),
    "dialogues": Text(8, EXAMPLE_VOCABULARY),
}


def capabilities(method: Method) -> dict[str, list[str]]:
    """Kinds of actions and observations that a method supports, and its training loops."""
    actions = [name for name, space in ACTION_SPACES.items() if _supports(method, _matching_observation(space), space)]
    if not actions:  # the method needs a game, not only spaces
        return {"actions": ["moves of a game"], "observations": ["what players see"], "loops": supported_loops(method)}
    action_space = ACTION_SPACES[actions[0]]
    observations = [name for name, space in OBSERVATION_SPACES.items() if _supports(method, space, action_space)]
    return {"actions": actions, "observations": observations, "loops": supported_loops(method)}


def _matching_observation(action: Space) -> Space:
    """An example observation space that fits an action space."""
    return OBSERVATION_SPACES["dialogues" if isinstance(action, Text) else "box"]


def supported_loops(method: Method) -> list[str]:
    """Training loops that support the method's feed."""
    feed = method.feed
    return ["compiled", "host"] * feed.collects + ["logged"] * feed.reads_datasets


def _supports(method: Method, observation: Space, action: Space) -> bool:
    spec = EnvSpec("any", observation, action, time_limit=3)
    if isinstance(method, MultiAgentMethod):
        group = AgentGroup("any", 2)
        spec = EnvSpec("any", dict_space(any=observation), dict_space(any=action), groups=(group,))
    try:
        jax.eval_shape(lambda key: method.init(spec, key), seed_key(0))
    except (ValueError, UserError):
        return False
    return True


def leaves_by_path(tree: PyTree) -> dict[str, Any]:
    """Leaves of a tree by dotted path, arrays as numbers or lists; a float32 has no more digits than it needs."""

    def to_plain(leaf: Any) -> Any:
        value = np.asarray(leaf)
        return float(str(value)) if value.shape == () and value.dtype == np.float32 else value.tolist()

    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): to_plain(leaf) for path, leaf in leaves}


def describe_space(space: Space) -> str:
    """A space as text: ``box (6,) float32, -1 to 1``, ``one of 4``, ``{move: ..., speak: ...}``."""
    match space:
        case Discrete():
            return f"one of {space.n}"
        case MultiDiscrete():
            return f"choices of {', '.join(map(str, space.nvec))}"
        case Box():
            return f"box {space.shape} {space.dtype}, {_format_bound(space.low)} to {_format_bound(space.high)}"
        case Text():
            return f"text of up to {space.max_length} of {space.vocabulary.size} words"
    parts = [f"{name}: {describe_space(part)}" for name, part in space.spaces]
    return "{" + ", ".join(parts) + "}" if space.kind == "dict" else f"({', '.join(parts)})"


def _format_bound(bound: float | tuple[float, ...]) -> str:
    return f"{bound:g}" if not isinstance(bound, tuple) else f"({', '.join(f'{b:g}' for b in bound)})"
