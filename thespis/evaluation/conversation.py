"""An episode that was talked through, as text: what was heard, what was said, and what each turn was worth."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np

from thespis.core.records import Critique, EnvSpec, Transition
from thespis.core.spaces import Text
from thespis.core.vocabulary import Vocabulary
from thespis.language.tokens import tokenizer_of

_WIDE = 88


@dataclasses.dataclass(frozen=True)
class Turn:
    """One turn: texts, the reward, and the critic's opinion if there is one."""

    heard: str
    said: str
    reward: float
    value: float | None
    advantage: float | None

    @property
    def worth(self) -> str:
        """The numbers in one line."""
        told = {"reward": self.reward, "value": self.value, "advantage": self.advantage}
        return "  ".join(f"{name} {number:.3g}" for name, number in told.items() if number is not None)


def turns(spec: EnvSpec, steps: Transition, critique: Critique) -> list[Turn]:
    """The turns of one episode ``[time]`` in a world of texts."""
    assert isinstance(spec.action, Text)
    text, seen, said = reader(spec.action.vocabulary), np.asarray(steps.view.observation), np.asarray(steps.action)
    opinions: Any = [getattr(critique, name) for name in ("value", "advantage")]
    found, before = [], 0
    for t in range(len(seen)):
        count = int((seen[t] >= 0).sum())
        numbers = [None if opinion is None else float(opinion[t]) for opinion in opinions]
        reward = float(np.asarray(steps.reward)[t])
        found.append(Turn(text(seen[t, before:count]), text(said[t]), reward, *numbers))
        before = count + int((said[t] >= 0).sum())
    return found


def reader(vocabulary: Vocabulary) -> Callable[[np.ndarray], str]:
    """What reads ids, without padding, special tokens by their names; the ids themselves where no words are known."""
    if vocabulary.source:
        tokenizer = tokenizer_of(vocabulary.source)
        return lambda ids: tokenizer.decode(ids)
    return lambda ids: " ".join(vocabulary.words[i] if vocabulary.words else str(i) for i in ids if i >= 0)


def lines(told: list[Turn]) -> list[str]:
    """A conversation to be printed."""
    found = []
    for turn in told:
        found += textwrap.wrap(turn.heard, _WIDE) + textwrap.wrap(f"  {turn.said}", _WIDE, subsequent_indent="  ")
        found.append(f"    [{turn.worth}]")
    return found


def frames(title: str, told: list[Turn], shown: int = 24) -> list[np.ndarray]:
    """Pictures of a conversation, a turn more in each; the last ``shown`` lines."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from thespis.evaluation.style import figure

    found = []
    for count in range(1, len(told) + 1):
        with figure((7.2, 5.0)) as drawing:
            canvas = FigureCanvasAgg(drawing)
            drawing.text(0.03, 0.95, title, fontsize=10, va="top")
            drawing.text(0.03, 0.9, "\n".join(lines(told[:count])[-shown:]), fontsize=8, va="top", family="monospace")
            canvas.draw()
            found.append(np.asarray(canvas.buffer_rgba())[..., :3].copy())
    return found
