"""Conversations of a person at the terminal: as the world that an actor speaks with, or in the actor's place."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from thespis.cli.output import Output
from thespis.core.spaces import Text
from thespis.core.vocabulary import Vocabulary
from thespis.evaluation.conversation import reader
from thespis.language.chat import Conversation
from thespis.language.engine import Refused, Request
from thespis.language.local import Local
from thespis.trained import Run

_SHOWN = 40  # words


def known_words(vocabulary: Vocabulary | None) -> str:
    """The words that may be said, in a line; empty where any may."""
    if vocabulary is None or not vocabulary.words:
        return ""
    known = [word for word in vocabulary.words if not (word.startswith("<") and word.endswith(">"))]
    more = f" ... ({len(known)} words)" if len(known) > _SHOWN else ""
    return f"the words are: {' '.join(known[:_SHOWN])}{more}"


def unknown(typed: str, vocabulary: Vocabulary | None) -> str:
    """What to say of words that nobody knows here; empty if all are known."""
    words = () if vocabulary is None else vocabulary.words
    strange = [word for word in typed.split() if words and word not in words]
    return f"unknown here: {' '.join(strange)}; {known_words(vocabulary)}" if strange else ""


def opening(run: Run, seed: int) -> str:
    """What a run's world would say first, as its actor reads it."""
    worlds = run.worlds(1)
    try:
        space: Any = worlds.spec.action
        return reader(space.vocabulary)(worlds.start([seed]).observation[0])
    finally:
        worlds.close()


@dataclasses.dataclass
class AsWorld:
    """The person says what the world would say, and the actor answers; an empty line begins a new conversation."""

    engine: Local
    request: Request
    vocabulary: Vocabulary | None
    out: Output

    def run(self) -> list[dict[str, str]]:
        """Talk until the person leaves; all that was said, by role."""
        talk, told, turn = Conversation(), [], 0
        while True:
            try:
                typed = self.out.ask("world: ").strip()
            except EOFError:
                self.out.say()
                return told
            if not typed:
                talk = Conversation()
                self.out.say("a new conversation begins")
            elif wrong := unknown(typed, self.vocabulary):
                self.out.say(wrong, markup=False)
            else:
                heard = talk.heard(self.engine.template, self.engine.tokenizer, {"role": "user", "content": typed})
                try:
                    said = self._answered(heard, turn)
                except Refused as error:
                    self.out.say(f"{error}; an empty line begins a new conversation", markup=False)
                    continue
                talk, turn = heard.said(self.engine.tokenizer, said), turn + 1
                told += [
                    {"role": "world", "content": typed},
                    {"role": "actor", "content": talk.messages[-1]["content"]},
                ]

    def _answered(self, heard: Conversation, turn: int) -> list[int]:
        """The ids of an answer, which is printed while it comes."""
        request = dataclasses.replace(self.request, seed=(self.request.seed or 0) + turn)
        pieces = self.engine.stream(heard, request)
        first = next(pieces)  # raises what refuses the request before anything is printed
        said, text, show = [*(first.tokens or ())], first.text, self.out.console.print
        show("actor:", first.text, end="", markup=False, soft_wrap=True)
        for piece in pieces:
            said, text = [*said, *(piece.tokens or ())], text + piece.text
            show(piece.text, end="", markup=False, soft_wrap=True)
        show("" if text.strip() else "(nothing)")
        return said


@dataclasses.dataclass
class AsActor:
    """The person speaks in the run's own world, and sees what the actor would say; an empty line says just that."""

    run_of: Run
    engine: Local
    request: Request
    out: Output

    def run(self) -> dict[str, Any]:
        """One episode. Raises ``EOFError`` when the person leaves."""
        worlds = self.run_of.worlds(1)
        spec, seed = worlds.spec, self.request.seed or 0
        assert isinstance(spec.action, Text)
        request = dataclasses.replace(self.request, length=min(self.request.length, spec.action.length))
        read, turns, total, before = reader(spec.action.vocabulary), [], 0.0, 0
        try:
            seen = worlds.start([seed]).observation[0]
            while True:
                count = int((seen >= 0).sum())
                heard = read(seen[before:count])
                self.out.say(f"world: {heard}", markup=False)
                asked = dataclasses.replace(request, seed=seed + len(turns))
                (answer,) = self.engine.answers([Conversation(tuple(int(i) for i in seen[:count]))], asked)
                suggested = [*(answer.replies[0].tokens or ())]
                self.out.say(f"  the actor would say: {read(np.array(suggested))}", markup=False)
                said = self._asked(spec.action, suggested)
                step, view = worlds.step(np.array([[*said, *[-1] * (spec.action.length - len(said))]], "int32"))
                reward, total = float(step.reward[0]), total + float(step.reward[0])
                turns.append({"heard": heard, "said": read(np.array(said)), "suggested": read(np.array(suggested))})
                turns[-1] |= {"reward": reward}
                if step.terminated[0] or step.truncated[0]:
                    break
                self.out.say(f"  [reward {reward:.3g}]", markup=False)
                seen, before = view.observation[0], count + len(said)
        finally:
            worlds.close()
        self.out.say(f"it is over: return {total:.6g} in {len(turns)} turns")
        return {"return": total, "turns": turns}

    def _asked(self, space: Text, suggested: list[int]) -> list[int]:
        """An utterance of the person's, asked for until it can be said."""
        while True:
            typed = self.out.ask("you: ").strip()
            if not typed:
                return suggested
            if wrong := unknown(typed, space.vocabulary):
                self.out.say(wrong, markup=False)
                continue
            ids = [*self.engine.tokenizer.encode(typed), space.vocabulary.stop[0]]
            if len(ids) <= space.length:
                return ids
            self.out.say(f"that is {len(ids) - 1} ids long, and an utterance has {space.length - 1} at most")
