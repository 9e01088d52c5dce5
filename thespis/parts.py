"""Parts by name: what the words of a command stand for."""

from __future__ import annotations

from typing import Any

from thespis.core.contracts import ForMany, Method
from thespis.core.errors import UserError
from thespis.envs import registry
from thespis.methods.registry import load as load_method
from thespis.runs.config import apply_settings


def method_from(method: str | Method, settings: list[str]) -> Method:
    """A method by name or as it is, with settings applied."""
    built = load_method(method)() if isinstance(method, str) else method
    return apply_settings(built, settings)


def fitted(method: Method, env: Any) -> Method:
    """The method, or in a world of many agents the same for each of them, if it is one for a single agent."""
    from thespis.learners.crowd import EachAlone

    return EachAlone(method) if registry.has_many(env) and not isinstance(method, ForMany) else method  # pyright: ignore


def feedback_from(feedback: Any) -> Any:
    """A feedback by name (``environment``, ``rnd``, ``counts``) or as it is."""
    from thespis.feedback.counts import Counts
    from thespis.feedback.environment import EnvironmentReward
    from thespis.feedback.rnd import RandomNetworkDistillation

    named = {
        None: EnvironmentReward, "environment": EnvironmentReward, "rnd": RandomNetworkDistillation, "counts": Counts,
    }  # fmt: skip
    if feedback is None or isinstance(feedback, str):
        if feedback not in named:
            raise UserError(f"unknown feedback {feedback!r}: it is environment, rnd or counts")
        return named[feedback]()
    return feedback


def curriculum_from(curriculum: Any) -> Any:
    """A curriculum as it is; ranges such as ``length=0.3..0.8`` randomise parameters; ``None`` keeps them fixed.

    A word says who sits in the other seats of a game: latest, past, hard or equilibrium (the learner's own past),
    league (several learners, of whom some exploit others), or players by name, parted by commas, such as
    ``bot:mcts-100`` or ``runs/ppo,runs/a2c``.
    """
    from thespis.curricula import choosing
    from thespis.curricula.domain_randomisation import DomainRandomisation
    from thespis.curricula.fixed import Fixed
    from thespis.curricula.league import League
    from thespis.curricula.opponents import PastSelves

    if not curriculum:
        return Fixed()
    if isinstance(curriculum, str):
        choices = {
            "latest": choosing.Latest, "past": choosing.Uniformly, "hard": choosing.HardFirst,
            "equilibrium": choosing.Equilibrium,
        }  # fmt: skip
        if curriculum in choices:
            return PastSelves(choice=choices[curriculum]())
        return League() if curriculum == "league" else _players(curriculum, [*choices, "league"])
    return DomainRandomisation.parse(list(curriculum)) if isinstance(curriculum, list | tuple) else curriculum


def _players(text: str, choices: list[str]) -> Any:
    from thespis.arena.against import Players
    from thespis.arena.naming import parted

    names = tuple(text.split(","))
    if any(":" not in name and not parted(name)[0].exists() for name in names):
        raise UserError(
            f"unknown opponents {text!r}: {', '.join(choices)}, or players such as runs/ppo or bot:mcts-100"
        )
    return Players(names)
