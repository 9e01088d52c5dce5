"""Names of the built-in text environments."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

from thespis.core.contracts import Environment
from thespis.core.errors import UserError
from thespis.envs.options import split_options
from thespis.envs.text.task import TextEnv
from thespis.runs.config import apply_settings
from thespis.runs.toml_files import setting_text

_TASK_LIST = (
    *("echo", "maze", "wordle", "questions", "countdown", "calculator", "household", "correction", "review"),
    *("writing", "choice", "bandit", "recommendation", "derivation", "verification", "revision", "hidden-rule", "kuhn"),
    *("persona", "form", "program", "tools", "sensor-room", "stepwise-derivation", "tictactoe"),
)
_TASK_PATHS = {
    name: f"thespis.envs.text.{name.replace('-', '_')}:{''.join(map(str.capitalize, name.split('-')))}"
    for name in _TASK_LIST
}
_GAME_NAMES = ["kuhn-duel", "tictactoe-duel"]
TASK_NAMES = tuple(_TASK_PATHS)
"""Names of the single-agent tasks."""
_CONVERSATION_NAMES = [
    "critiqued-derivation",
    "critiqued-program",
    "retried-hidden-rule",
    "judged-derivation",
    "debated-derivation",
    "recursive-derivation",
    "checked-form",
    "checked-tools",
    "checked-sensor-room",
    "checked-stepwise-derivation",
]
_PRIVILEGED_NAMES = ["wordle-told", "questions-told"]
ENV_NAMES = (*TASK_NAMES, *_GAME_NAMES, *_CONVERSATION_NAMES, *_PRIVILEGED_NAMES)
"""All names after ``text:``."""


def make_text_env(name: str) -> Environment:
    """Make the environment called ``name``, one of :data:`ENV_NAMES`, with options after a ``?``.

    Options are fields of the task, ``derivation?num_steps=2``; of a conversation, also those of its rules.

    Raises:
        UserError: for an unknown option, or a value that does not fit.
    """
    from thespis.envs.text.conversation import ConversationEnv

    name, options = split_options(name)
    if name in _GAME_NAMES:
        if options:
            raise UserError(f"text:{name} takes no options; leave out ?{'&'.join(options)}")
        return _make_game_env(name)
    if name in _CONVERSATION_NAMES:
        return ConversationEnv(_with_options(name, _make_rules(name), options))
    task = _with_options(name, _make_task(name.removesuffix("-told")), options)
    return TextEnv(task, use_privileged=name in _PRIVILEGED_NAMES)


def _make_task(name: str) -> Any:
    """The task called ``name`` with its default settings."""
    module, _, task = _TASK_PATHS[name].partition(":")
    return getattr(importlib.import_module(module), task)()


def _make_rules(name: str) -> Any:
    """The conversation of several seats about a single-agent task, with its default settings."""
    from thespis.envs.text.critique import CritiqueConversation
    from thespis.envs.text.debating import DebateConversation
    from thespis.envs.text.judging import JudgedConversation
    from thespis.envs.text.pre_act import PreActConversation
    from thespis.envs.text.recursive_critique import RecursiveCritiqueConversation
    from thespis.envs.text.retry import RetryConversation

    kind, _, task = name.partition("-")
    rules = {
        "critiqued": CritiqueConversation,
        "retried": RetryConversation,
        "judged": JudgedConversation,
        "debated": DebateConversation,
        "recursive": RecursiveCritiqueConversation,
        "checked": PreActConversation,
    }
    return rules[kind](_make_task(task))


def _with_options(name: str, rules: Any, options: dict[str, Any]) -> Any:
    """A task or a conversation with some fields changed; those of a conversation's task by their own names."""
    try:
        return apply_settings(rules, [setting_text(*option) for option in options.items()])
    except UserError as error:
        raise UserError(f"text:{name}: {error}") from error


def _make_game_env(name: str) -> Environment:
    """The two-player game with the vocabulary of its single-agent task, so that policies can move between the two."""
    from thespis.envs.games.pgx import Pgx  # so that names can be listed without Pgx
    from thespis.envs.text.kuhn import CARDS, Kuhn
    from thespis.envs.text.text_games import TextGame, TextGameEnv
    from thespis.envs.text.tictactoe import Tictactoe

    if name == "kuhn-duel":
        task_spec = dataclasses.replace(Kuhn().task_spec, name=f"text:{name}")
        return TextGameEnv(TextGame(Pgx("kuhn_poker"), task_spec, ("bet", "pass"), CARDS), forfeit_penalty=2.0)
    task_spec = dataclasses.replace(Tictactoe().task_spec, name=f"text:{name}")
    return TextGameEnv(TextGame(Pgx("tic_tac_toe"), task_spec, tuple("123456789")), forfeit_penalty=6.0)
