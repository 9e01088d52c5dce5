"""Built-in conversations by name."""

from __future__ import annotations

import dataclasses
import importlib

from thespis.core.contracts import Environment
from thespis.envs.text.task import Spoken

_LIST = "echo maze wordle questions countdown calculator household correction review kuhn tictactoe"
_TASKS = {name: f"thespis.envs.text.{name}:{name.capitalize()}" for name in _LIST.split()}
_DUELS = ["kuhn-duel", "tictactoe-duel"]
TASKS = tuple(_TASKS)
"""Those of one agent."""
_TOLD = ["wordle-told", "questions-told"]
NAMES = (*TASKS, *_DUELS, *_TOLD)
"""Those of ``text:``."""


def world(name: str) -> Environment:
    """The world of one of :data:`NAMES`."""
    if name in _DUELS:
        return _duel(name)
    module, _, task = _TASKS[name.removesuffix("-told")].partition(":")
    return Spoken(getattr(importlib.import_module(module), task)(), told=name in _TOLD)


def _duel(name: str) -> Environment:
    """A game in the words of the world where its other player is at random: who learns in one may go to the other."""
    from thespis.envs.games.pgx import Pgx  # worlds are listed without it
    from thespis.envs.text.kuhn import CARDS, Kuhn
    from thespis.envs.text.tictactoe import Tictactoe
    from thespis.envs.text.told import Duel, Told

    if name == "kuhn-duel":
        manners = dataclasses.replace(Kuhn().manners, name=f"text:{name}")
        return Duel(Told(Pgx("kuhn_poker"), manners, ("bet", "pass"), CARDS), forfeit=2.0)
    manners = dataclasses.replace(Tictactoe().manners, name=f"text:{name}")
    return Duel(Told(Pgx("tic_tac_toe"), manners, tuple("123456789")), forfeit=6.0)
