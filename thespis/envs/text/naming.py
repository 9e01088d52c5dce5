"""Built-in conversations by name."""

from __future__ import annotations

import importlib

from thespis.envs.text.task import Spoken

_LIST = "echo maze wordle questions countdown calculator household correction kuhn tictactoe"
_TASKS = {name: f"thespis.envs.text.{name}:{name.capitalize()}" for name in _LIST.split()}
NAMES = tuple(_TASKS)
"""Those of ``text:``."""


def world(name: str) -> Spoken:
    """The world of one of :data:`NAMES`."""
    module, _, task = _TASKS[name].partition(":")
    return Spoken(getattr(importlib.import_module(module), task)())
