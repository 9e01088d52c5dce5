"""Actors that speak: the worlds and the sizes that trials of language actors share, so that arms in common are trained
once.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.core.feeds import Episodes
from thespis.envs.text.correction import Correction
from thespis.envs.text.countdown import Countdown
from thespis.envs.text.household import Household
from thespis.envs.text.maze import Maze
from thespis.envs.text.review import Review
from thespis.envs.text.take_back import TakeBack
from thespis.envs.text.task import Spoken
from thespis.evidence.measures import Measure, elsewhere

SUMS = Spoken(Countdown(numbers=2, turns=1))
"""One utterance: two numbers and a sign make a third. By chance it is 1/6."""
MAZE = Spoken(Maze(size=3, turns=6))
"""Up to six utterances to a corner of nine cells."""
GUIDE = Spoken(Maze(lost=0.0))
"""``text:maze`` with an expert who always knows the way."""
CORNERS = Spoken(Maze(size=2, turns=3))
"""Up to three utterances from one of four cells to another."""
WALKER = Spoken(Maze(size=2, turns=3, lost=0.0))
"""The same; its demonstrator is an expert, who always knows the way."""
EXACT = Spoken(Countdown(numbers=2, turns=1, wandering=0.0))
"""``SUMS``, whose demonstrator is an expert."""
_HOUSE = Household(turns=8, places=3, wandering=0.3)
HOME = Spoken(_HOUSE)
"""Up to eight commands in a household of three places: a long way to the only reward."""
HINTED = Spoken(dataclasses.replace(_HOUSE, hints=0.25))
"""The same, with something paid on the way."""
HOMES = Spoken(dataclasses.replace(_HOUSE, homes=200))
"""The same of 200 beginnings, so that others are new to who learns there."""
WILD = Spoken(Maze(size=4, turns=8, lost=1.0))
"""Up to eight utterances to a corner of sixteen cells; the demonstrator knows no way."""
MENDED = Spoken(TakeBack(Maze(size=4, turns=8), more=2))
"""Up to ten utterances to a corner of sixteen cells; the last step can be taken back."""
TWICE = Spoken(Correction(figures=1, first=1.0, wandering=0.3))
"""A sum of two digits, twice, without a word on the first attempt; both are paid."""

REVIEWS = Spoken(Review())
"""One utterance: three clauses of praise or blame behind one of either. Praise is wanted; half is by chance."""

TALKER: dict[str, Any] = {"model": "tiny", "layers": 2, "width": 64}
"""A tiny model that learns in minutes."""
ANSWERS: dict[str, Any] = TALKER | {"feed": Episodes(turns=1, group=16, envs=128)}
"""Of one utterance: eight questions, sixteen answers to each."""
TALKS: dict[str, Any] = TALKER | {"feed": Episodes(turns=6, group=8, envs=64)}
"""Of several: eight beginnings, eight conversations from each."""
WALKS: dict[str, Any] = TALKER | {"feed": Episodes(turns=3, group=8, envs=64)}
"""Of three."""
STEPS: dict[str, Any] = TALKER | {"feed": Episodes(turns=10, group=8, envs=64)}
"""Of ten."""
TAUGHT: dict[str, Any] = TALKER | {"lesson": 1000}
"""One that was taught for long: what keeps a household is said by chance too seldom."""
KEEPER: dict[str, Any] = TAUGHT | {"feed": Episodes(turns=8, group=8, envs=64)}
"""Of eight, in a household."""
ATTEMPTS: dict[str, Any] = TALKER | {"feed": Episodes(turns=2, group=16, envs=128)}
"""Of two: eight sums, sixteen pairs of attempts at each."""

GUEST: dict[str, Any] = TALKER | {"feed": Episodes(turns=1, envs=64)}
"""Of one utterance, each behind a beginning of its own."""


def in_order() -> Measure:
    """Share of reviews that keep to the grammar, whatever they say."""
    found = elsewhere(200, "sampled", task=Review(liking=0.0, order=1.0))
    return Measure("share of sampled reviews that are in order", found.of)


def second_accuracy() -> Measure:
    """Share of sums that are right at the second attempt, where the first pays nothing."""
    found = elsewhere(200, task=Correction(figures=1, wandering=0.3))
    return Measure("accuracy of the second attempt", found.of)


def gain() -> Measure:
    """How much more sums are right at the second attempt than at the first, as a share of all."""
    found = elsewhere(200, task=Correction(figures=1, first=-1.0, wandering=0.3))
    return Measure("accuracy of the second attempt beyond the first", found.of)


def tidied() -> Measure:
    """Share of tasks that are done in ``HOME``, whatever hints were paid for where one learnt."""
    return Measure("share of tasks that are done", elsewhere(400, "sampled", task=_HOUSE).of)


def tidied_elsewhere() -> Measure:
    """The same where there is a place more than one has learnt in."""
    found = elsewhere(400, "sampled", task=dataclasses.replace(_HOUSE, places=4))
    return Measure("share of tasks that are done where there is a place more", found.of)


def unseen() -> Measure:
    """Share of tasks that are done where ``HOMES`` begins otherwise than one has learnt."""
    return Measure("share of tasks that are done in homes not seen before", tidied().of)


def kept() -> Measure:
    """That, less the share of tasks that are done in the homes where one has learnt."""
    seen, others = elsewhere(400, "sampled", task=HOMES.task), tidied()
    name = "share of tasks done in homes not seen before, beyond those seen,"
    return Measure(name, lambda run: others.of(run) - seen.of(run))
