"""The rules of the built-in conversations once more, in plain Python on strings.

``RULES[name](task, state)`` begins an episode where a compiled one began: only what was drawn is read from its state.
``opening`` is the world's first message, ``say(text)`` its answer, the reward and whether all is over.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import ClassVar

from thespis.envs.text import household, questions, wordle


def spoken(text: str) -> str | None:
    """What stands before the first ``<end>``; nothing if there is none."""
    before, end, _ = f" {text} ".partition(" <end> ")
    return before.strip() if end else None


def spaced(number: int) -> str:
    return " ".join(str(number))


def unspaced(text: str) -> int | None:
    """The number that ``4 7 5`` is."""
    return int(text.replace(" ", "")) if re.fullmatch(r"\d( \d)*", text) else None


class Rules:
    """Counts turns; ``heard`` says what an utterance leads to: the one way, or all that chance may choose from."""

    limit: int | None = None

    def __init__(self, task, state):
        self.turns = 0
        self.opening = self.began(task, state)

    def say(self, text: str) -> list[tuple[str, float, bool]]:
        self.turns += 1
        heard = self.heard(spoken(text) or "")
        told = [heard] if isinstance(heard, tuple) else heard
        told = [(answer, reward, over or self.turns == self.limit) for answer, reward, over in told]
        return [("" if over else f"{answer} >", reward, over) for answer, reward, over in told]

    def follow(self, answer: str) -> None:
        """What chance chose."""


class Wordle(Rules):
    limit = 6

    def began(self, task, state):
        self.hidden = wordle.WORDS[state.hidden]
        return "guess >"

    def heard(self, said):
        guess = said.replace(" ", "")
        if guess not in wordle.WORDS or said != " ".join(guess):
            return "unknown", 0.0, False
        colours = ["green" if a == b else "grey" for a, b in zip(guess, self.hidden, strict=True)]
        for letter in set(guess):
            here = [i for i in range(5) if guess[i] == letter]
            others = [i for i in here if colours[i] != "green"]
            for i in others[: self.hidden.count(letter) - (len(here) - len(others))]:
                colours[i] = "yellow"
        return " ".join(colours), float(guess == self.hidden), guess == self.hidden


class Questions(Rules):
    limit = 9

    def began(self, task, state):
        self.animal = list(questions.ANIMALS)[state.animal]
        return "ask >"

    def heard(self, said):
        match said.split():
            case ["is", "it", word] if word in questions.PROPERTIES:
                return ("yes" if word in questions.ANIMALS[self.animal].split() else "no"), 0.0, False
            case ["guess", word] if word in questions.ANIMALS:
                return "no", float(word == self.animal), word == self.animal
        return "what", 0.0, False


class Countdown(Rules):
    limit = 3

    def began(self, task, state):
        self.given, self.target = [int(n) for n in state.given], int(state.target)
        return f"make {spaced(self.target)} from {spaced(''.join(map(str, self.given)))} >"

    def heard(self, said):
        value = self.value(said.split())
        if value is None:
            return "wrong", 0.0, False
        sign = "- " if value < 0 else ""
        return f"gives {sign}{spaced(abs(value))}", float(value == self.target), value == self.target

    def value(self, words):
        if Counter(word for word in words if word.isdigit()) - Counter(map(str, self.given)):
            return None
        stack = []
        for word in words:
            if word.isdigit():
                stack.append(word)
            elif word in ("+", "-", "*") and len(stack) > 1:
                b, a = stack.pop(), stack.pop()
                stack.append(f"({a}{word}{b})")
            else:
                return None
        return eval(stack[0]) if len(stack) == 1 else None


class Calculator(Rules):
    limit = 4

    def began(self, task, state):
        (a, b), mark, c = state.factors, "+-*"[state.operator], state.last_number
        self.answer = eval(f"{a} * {b} {mark} {c}")
        return f"what is {spaced(a)} * {spaced(b)} then {mark} {c} >"

    def heard(self, said):
        if call := re.fullmatch(r"call ((?:\d )+)([-+*])((?: \d)+)", said):
            a, mark, b = unspaced(call[1].strip()), call[2], unspaced(call[3].strip())
            value = {"+": a + b, "-": a - b, "*": a * b}[mark]
            return f"result {'- ' if value < 0 else ''}{spaced(abs(value))}", 0.0, False
        if answer := re.fullmatch(r"answer((?: \d)+)", said):
            return "", float(unspaced(answer[1].strip()) == self.answer), True
        return "error", 0.0, False


class Household(Rules):
    make: ClassVar = {"clean": ("sink", "clean"), "heat": ("stove", "hot"), "cool": ("fridge", "cold")}

    def began(self, task, state):
        places = household.PLACES
        self.there = places[: task.places]
        self.at, self.open, self.held = places[state.at], set(places) - {"drawer", "cabinet", "fridge"}, None
        self.where = {t: places[w] for t, w in zip(household.THINGS, state.where, strict=True) if w < len(places)}
        self.is_ = dict.fromkeys(household.THINGS, "")
        self.hints = {"held": float(task.hints), "made": float(task.hints)}
        thing, be, place = state.goal
        self.thing, self.be, self.place = household.THINGS[thing], ["", "clean", "hot", "cold"][be], places[place]
        return " ".join(f"put {self.be} {self.thing} in {self.place} {self.view()} >".split())

    def view(self):
        lies = [t for t in household.THINGS if self.where.get(t) == self.at]
        return " ".join(["at", self.at, *(lies if self.at in self.open else ["closed"])])

    def heard(self, said):
        match said.split():
            case ["go", place] if place in self.there:
                self.at = place
                return self.view(), 0.0, False
            case ["open", place] if place == self.at and place not in self.open:
                self.open.add(place)
                return self.view(), 0.0, False
            case ["take", thing] if self.where.get(thing) == self.at and self.at in self.open and not self.held:
                self.held, self.where[thing] = thing, None
                paid = self.hints.pop("held", 0.0) if thing == self.thing else 0.0
                return f"have {thing}", paid, False
            case ["put", thing] if thing == self.held and thing and self.at in self.open:
                self.held, self.where[thing] = None, self.at
                done = thing == self.thing and self.at == self.place and self.be in ("", self.is_[thing])
                return self.view(), float(done), done
            case [verb, thing] if thing == self.held and verb in self.make and self.make[verb][0] == self.at:
                self.is_[thing] = self.make[verb][1]
                made = thing == self.thing and self.is_[thing] == self.be
                return f"{thing} {self.is_[thing]}", self.hints.pop("made", 0.0) if made else 0.0, False
        return "nothing happens", 0.0, False


class Correction(Rules):
    limit = 2

    def began(self, task, state):
        self.terms, self.bonus, self.rights = [int(t) for t in state.terms], float(task.bonus), []
        self.padded = spaced(f"{sum(self.terms):04d}")
        return " + ".join(map(spaced, self.terms)) + " >"

    def heard(self, said):
        self.rights.append(unspaced(said) == sum(self.terms))
        if len(self.rights) == 1:
            return "check and correct", 0.0, False
        first, second = self.rights
        return "", second + self.bonus * (second - first), True


class Kuhn(Rules):
    def began(self, task, state):
        mine, theirs = state.cards
        self.first, self.faced, self.sign = bool(state.first), bool(state.faced), 1.0 if mine > theirs else -1.0
        begun = "start" if self.first else "bet" if self.faced else "pass"
        return f"hold {['jack', 'queen', 'king'][mine]} {begun} >"

    def heard(self, said):
        if self.faced:
            return "", 2 * self.sign if said == "bet" else -1.0, True
        if said == "bet":
            return [("", 1.0, True), ("", 2 * self.sign, True)]
        return [("", self.sign, True), *([("bet", 0.0, False)] if self.first else [])]

    def follow(self, answer):
        self.faced = True


class Tictactoe(Rules):
    def began(self, task, state):
        self.board = ["", *(".xo"[mark] for mark in state.cells)]  # cells count from 1
        return f"{self.board.index('o') if 'o' in self.board else 'start'} >"

    def won(self, mark, *more):
        def has(*line):
            return all(self.board[i] == mark or i in more for i in line)

        rows = any(has(i, i + 1, i + 2) for i in (1, 4, 7)) or any(has(i, i + 3, i + 6) for i in (1, 2, 3))
        return rows or has(1, 5, 9) or has(3, 5, 7)

    def heard(self, said):
        free = [str(i) for i in range(1, 10) if self.board[i] == "."]
        if said not in free:
            return "", -1.0, True
        self.board[int(said)] = "x"
        free.remove(said)
        if self.won("x") or not free:
            return "", float(self.won("x")), True
        lost = {cell: self.won("o", int(cell)) for cell in free}
        return [(cell, -1.0 if lost[cell] else 0.0, lost[cell] or len(free) == 1) for cell in free]

    def follow(self, answer):
        self.board[int(answer)] = "o"


RULES = {
    "wordle": Wordle,
    "questions": Questions,
    "countdown": Countdown,
    "calculator": Calculator,
    "household": Household,
    "correction": Correction,
    "kuhn": Kuhn,
    "tictactoe": Tictactoe,
}

WRITTEN = {
    "wordle": [
        "l e v e l <end>", "s l e e p <end>", "z z z z z <end>", "c r a n <end>", "c r a n e", "<end> a", "green <end>",
    ],
    "questions": [
        "is it furry <end>", "is it cat <end>", "guess furry <end>", "guess cat <end>", "guess <end>",
        "it is furry <end>", "is it <end> furry", "guess cat cat <end>", "is it tame",
    ],
    "countdown": [
        "{r.given[0]} + {r.given[1]} {r.given[2]} * <end>", "{r.given[0]} {r.given[0]} + <end>", "{r.given[0]} <end>",
        "{r.given[0]} {r.given[1]} <end>", "0 {r.given[1]} + <end>", "{r.given[2]} {r.given[1]} - <end> 3", "+ <end>",
        "{r.given[0]} {r.given[1]} {r.given[2]} - * <end>", "<end>", "{r.given[1]} {r.given[2]} *",
        "+ - * {r.given[0]} <end>",
    ],
    "calculator": [
        "call 4 * <end>", "call * 4 <end>", "call 0 0 7 - 0 9 <end>", "call 9 9 * 9 9 9 <end>", "call 9 * 9 * 9 <end>",
        "call 1 2 <end>", "answer <end>", "call 4 - 9 9 9 9 <end>", "call <end>", "call 0 - 0 <end>", "result 4 <end>",
        "call {r.turns} + 8 <end> 9", "answer 4 + 4 <end>", "call 1 + 2", "<end>",
    ],
    "household": [
        "take {r.thing} <end>", "put {r.thing} <end>", "go fridge <end>", "open fridge <end>", "cool {r.thing} <end>",
        "go sink <end>", "clean {r.thing} <end>", "go stove <end>", "heat {r.thing} <end>", "go {r.place} <end>",
        "go drawer <end>", "open drawer <end>", "take <end>", "go {r.thing} <end>", "take sink <end>", "go desk",
    ],
    "correction": ["<end>", "{r.padded} <end>", "0 0 <end>", "{r.padded}", "+ 4 <end>", "1 2 <end> 3"],
    "kuhn": ["bet <end>", "pass <end>", "bet bet", "king <end>", "<end> bet", "bet"],
    "tictactoe": [*(f"{cell} <end>" for cell in range(1, 10)), "start <end>", "5 5", "<end> 5"],
}  # fmt: skip
"""Utterances that are right in part; ``r``: the rules of the episode."""
