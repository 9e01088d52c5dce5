"""Gymnasium environments that are told strings and answer strings (``gymnasium.spaces.Text``), as text worlds."""

from __future__ import annotations

from typing import Any

import numpy as np

from thespis.core.errors import UserError
from thespis.envs.host.texts import Closed, Sized

TURNS = 16
"""Utterances of an episode where an environment has no limit of steps."""
_MESSAGE, _UTTERANCE, _TEMPLATE = 256, 32, 64  # ids at most, and those that a chat template may add


def of_strings(env: Any) -> bool:
    """Whether an environment's observations and actions are strings. Raises ``UserError`` if only one of them is."""
    import gymnasium.spaces as g

    spaces = getattr(env, "observation_space", None), getattr(env, "action_space", None)
    seen, done = (isinstance(space, g.Text) for space in spaces)
    if seen != done:
        raise UserError(f"{env}: observations and actions must both be gymnasium.spaces.Text, or neither")
    return seen


class Strings:
    """One environment as a :class:`~thespis.envs.host.texts.TextWorld`; truncated episodes end like any other.

    ``words``, ``message`` and ``utterance`` are the environment's own, if it has them; else sizes follow from those of
    the spaces, a character being one id at most. What the action space does not allow (characters, length) is left out.
    """

    def __init__(self, env: Any):
        import gymnasium

        registered = isinstance(env, gymnasium.Env)
        self.env, inner, spec = env, env.unwrapped if registered else env, env.spec if registered else None
        self.turns = int(spec.max_episode_steps) if spec is not None and spec.max_episode_steps else TURNS
        self.message = min(env.observation_space.max_length, _MESSAGE) + _TEMPLATE
        self.utterance = min(env.action_space.max_length + 1, _UTTERANCE)
        if isinstance(inner, Sized):
            self.message, self.utterance = inner.message, inner.utterance
        if isinstance(inner, Closed):
            self.words = inner.words

    def reset(self, rng: np.random.Generator) -> str:
        """The first observation."""
        return self.env.reset(seed=int(rng.integers(2**31)))[0]

    def step(self, said: str) -> tuple[str, float, bool]:
        """What an utterance led to."""
        space = self.env.action_space
        if not space.contains(said):
            said = "".join(letter for letter in said if letter in space.character_set)[: space.max_length]
        answer, reward, over, cut, _ = self.env.step(said)
        return answer, float(reward), bool(over or cut)
