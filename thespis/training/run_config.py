"""Configuration of a new run, the content of run.json: its parts by name or as objects, its loop, its environments."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from thespis.core.contracts import (
    Curriculum,
    Feedback,
    HasSeats,
    LearnsReward,
    Method,
    MultiAgentMethod,
    OpponentCurriculum,
    learns,
)
from thespis.core.errors import UserError
from thespis.core.renames import notice
from thespis.curricula import registry as curricula
from thespis.envs import registry
from thespis.feedback import registry as feedbacks
from thespis.feedback.frozen import FrozenFeedback, frozen_parts, replace_frozen, unfrozen
from thespis.methods import registry as methods
from thespis.runs.config import apply_settings, check_storable, from_config, to_config
from thespis.runs.ranges import check_ranges
from thespis.runs.state_addresses import From
from thespis.runs.store import RunDirectory
from thespis.runs.trust import reading
from thespis.training.cast_file import apply_seat_settings, is_cast_file, read_cast
from thespis.training.options import RunOptions

FROZEN_PREFIX = "frozen:"
"""Beginning of a feedback's name that a run's directory follows."""

_OLD_OPPONENTS = {"past": "uniform", "hard": "pfsp"}


def make_method(method: str | Method, settings: list[str]) -> Method:
    """A method, by name, as ``module:Class``, as a cast's TOML file or as an object, with settings applied."""
    if is_cast_file(method):
        method = read_cast(str(method), lambda name: make_method(name, []))
    if isinstance(method, str):
        built = methods.REGISTRY.make(methods.current_name(method))
        require_contract(built, Method, method, "docs/writing-a-method.md")
        method = built
    return apply_seat_settings(method, settings) if isinstance(method, HasSeats) else apply_settings(method, settings)


def require_contract(part: Any, contract: Any, name: str, page: str) -> None:
    """Raise :class:`UserError` if a part that was named by the user lacks a member of its contract."""
    if not (isinstance(part, contract) and dataclasses.is_dataclass(part)):
        raise UserError(
            f"{name} is no {contract.__name__.lower()}: it needs to be a frozen equinox.Module with all members of "
            f"thespis.core.contracts.{contract.__name__} ({page})"
        )


def wrap_multi_agent(method: Method, env: Any) -> Method:
    """Wrap a single-agent method as independent learners if the environment has many agents."""
    from thespis.learners.multi_agent.independent_learners import IndependentLearners

    return (
        IndependentLearners(method)
        if registry.is_multi_agent(env) and not isinstance(method, MultiAgentMethod)
        else method
    )  # pyright: ignore


def make_feedback(feedback: Any, settings: list[str] | None = None) -> Any:
    """A feedback by name (``thespis list feedback``), as ``module:Class`` or as an object, with settings applied.

    ``None`` is the environment's own reward, ``frozen:RUN`` the trained feedback of a run.
    """
    settings = settings or []
    if isinstance(feedback, str) and feedback.startswith(FROZEN_PREFIX):
        feedback = FrozenFeedback(feedback.removeprefix(FROZEN_PREFIX))
    if feedback is None or isinstance(feedback, str):
        name = feedback or "environment"
        feedback = feedbacks.REGISTRY.make(name)
        require_contract(feedback, Feedback, name, "docs/own-parts.md")
    if isinstance(feedback, FrozenFeedback):  # the run first: it determines which other settings there are
        feedback = apply_settings(feedback, [text for text in settings if text.startswith("run=")], "feedback.")
        settings = [text for text in settings if not text.startswith("run=")]
    return apply_settings(replace_frozen(feedback, _with_trained_part), settings, "feedback.")


def _with_trained_part(frozen: FrozenFeedback) -> FrozenFeedback:
    """A frozen feedback with the configuration of the trained one, read from its run unless it has one already.

    Raises :class:`UserError` without a run, and for a class that the run may not name.
    """
    if frozen.part is not None:
        return frozen
    if frozen.run is None:
        raise UserError("a frozen feedback needs the run that has trained it: frozen:RUN, or feedback.run=RUN")
    run = RunDirectory.open(frozen.run)
    with reading(run.trust):
        return frozen_from_config(frozen.run, run.config)


def frozen_from_config(run: str, config: dict[str, Any]) -> FrozenFeedback:
    """The frozen feedback of a run: what its method has learned to reward, if that is a method for it; else its
    feedback."""
    method = from_config(config["method"])
    if isinstance(method, LearnsReward):
        return FrozenFeedback(run, method.as_feedback(), f"method.{method.reward_address}")
    return FrozenFeedback(run, unfrozen(from_config(config["feedback"])))


def frozen_sources(feedback: Any) -> list[dict[str, str]]:
    """The entries of ``init_parts`` in run.json for the frozen feedbacks in a feedback.

    Raises :class:`UserError` for one without a run, whose state would be that of no training.
    """
    parts = frozen_parts(feedback)
    if any(part.run is None for part in parts.values()):
        raise UserError("a frozen feedback needs the run that has trained it: Frozen(RUN)")
    return [From(str(part.run), part.address, address).to_config() for address, part in parts.items()]


def make_curriculum(curriculum: Any, parse_opponents: Callable[[str], Any], settings: list[str] | None = None) -> Any:
    """A curriculum: ranges such as ``length=0.3..0.8`` randomise environment parameters; ``None`` keeps them fixed.

    A string names a curriculum (``thespis list curricula``) or is ``module:Class``. Some of them draw the opponents in
    a game: latest, uniform, pfsp or equilibrium (past versions of the learner, sampled uniformly, by prioritized
    fictitious self-play, or by the equilibrium of their matches), league (several learners, some of which exploit
    others), or a comma-separated list of players, such as ``bot:mcts-100`` or ``runs/ppo,runs/a2c``, which
    ``parse_opponents`` reads (``None`` for what names no players). Objects are returned as they are. ``settings`` are
    those of the curriculum.
    """
    from thespis.curricula.domain_randomization import DomainRandomization
    from thespis.curricula.fixed import FixedCurriculum

    if not curriculum:
        curriculum = FixedCurriculum()
    elif isinstance(curriculum, str):
        curriculum = _named_curriculum(curriculum, parse_opponents)
    elif isinstance(curriculum, list | tuple):
        curriculum = DomainRandomization.parse(list(curriculum))
    return apply_settings(curriculum, settings or [], "curriculum.")


def _named_curriculum(name: str, parse_opponents: Callable[[str], Any]) -> Any:
    if name in _OLD_OPPONENTS:
        notice(f"opponents {name} are now called {_OLD_OPPONENTS[name]}")
        name = _OLD_OPPONENTS[name]
    if curricula.REGISTRY.find(name) is not None:
        curriculum = curricula.REGISTRY.make(name)
        require_contract(curriculum, Curriculum, name, "docs/own-parts.md")
        return curriculum
    if ":" in name and "," not in name and not name.startswith("bot:") and not Path(name).exists():
        own = curricula.REGISTRY.load(name)  # module:Class is a curriculum, or else a player of a game
        if isinstance(own, Curriculum):  # a class too, as far as its members show
            return curricula.REGISTRY.make(name)
    if (opponents := parse_opponents(name)) is None:
        raise UserError(
            f"unknown opponents or curriculum {name!r}: {', '.join(curricula.REGISTRY.names())}, players such as "
            "runs/ppo or bot:mcts-100, or module:Class"
        )
    return opponents


def split_settings(settings: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Settings of the method, of the feedback (``feedback.NAME=VALUE``) and of the curriculum (``curriculum. ..``)."""
    feedback = [text.removeprefix("feedback.") for text in settings if text.startswith("feedback.")]
    curriculum = [text.removeprefix("curriculum.") for text in settings if text.startswith("curriculum.")]
    return [text for text in settings if not text.startswith(("feedback.", "curriculum."))], feedback, curriculum


def env_name(env: Any) -> str | None:
    """The name under which an environment is written into run.json; ``object:NAME`` for the user's own objects."""
    if env is None:
        return None
    entry = registry.resolve_env(env)
    return entry.name if isinstance(env, str) else f"object:{entry.name}"


def loop_kind(method: Method, env: Any, options: RunOptions) -> str:
    """The training loop that the method, the environment and the options need: compiled, host or logged."""
    requested = options.loop
    if requested not in (None, "compiled", "host", "logged"):
        raise UserError(f"unknown loop {requested!r}: it is compiled, host or logged")
    if not method.feed.collects or options.data is not None or requested == "logged":
        if requested not in (None, "logged"):
            raise UserError(f"a run that learns from data needs the logged loop, not the {requested} loop")
        return "logged"
    if env is None:
        raise UserError("no environment given: --env NAME (thespis list envs), or --data DIR for a dataset")
    kind = registry.resolve_env(env).kind
    if requested == "compiled" and kind == "host":
        raise UserError(f"{env_name(env)} is not written in JAX and cannot be compiled: use the host loop")
    return requested or kind


def resolve_config(
    method: Method,
    env: Any,
    *,
    steps: int,
    num_envs: int | None,
    seeds: list[int],
    feedback: Any,
    curriculum: Any,
    options: RunOptions,
    parse_opponents: Callable[[str], Any],
    feedback_settings: list[str] | None = None,
    curriculum_settings: list[str] | None = None,
) -> dict[str, Any]:
    """The content of run.json, except for :func:`run_metadata`. ``parse_opponents``: see :func:`make_curriculum`."""
    from thespis import __version__

    if not learns(method):
        raise UserError(f"nothing in {method.name} learns: give a seat a method that does, or use thespis evaluate")
    kind = loop_kind(method, env, options)
    feedback = make_feedback(feedback, feedback_settings)
    curriculum = make_curriculum(curriculum, parse_opponents, curriculum_settings)
    check_ranges(feedback, "feedback.")
    check_ranges(curriculum, "curriculum.")

    def wrap(method: Method) -> Method:
        if isinstance(curriculum, OpponentCurriculum):
            return curriculum.make_learner(method)
        return wrap_multi_agent(method, env)

    wrapped = wrap(method)
    is_offline = not wrapped.feed.collects or kind == "logged"
    envs_per_seed = 1 if is_offline else num_envs or _default_num_envs(env, len(seeds), wrapped)
    method = wrap(_with_num_envs(method, envs_per_seed))
    components: tuple[Any, ...] = (method, feedback, curriculum)
    for name, component in zip(("method", "feedback", "curriculum"), components, strict=True):
        check_storable(component, name)
    citations = [dataclasses.asdict(citation) for part in components for citation in part.citations]
    return {
        "format": 1,
        "thespis": __version__,
        "method_name": method.name,
        "method": to_config(method),
        "env": env_name(env),
        "feedback": to_config(feedback),
        "curriculum": to_config(curriculum),
        "steps": steps,
        "envs": envs_per_seed,
        "seeds": seeds,
        "loop": kind,
        "options": dataclasses.asdict(options),
        "details": list(method.details),
        "bibliography": citations,
    } | ({"init_parts": parts} if (parts := frozen_sources(feedback)) else {})


def _with_num_envs(method: Any, num_envs: int) -> Any:
    """The method with its feed for that many environments, if the feed is a setting of its own."""
    if isinstance(method, HasSeats):
        return method.map_seats(lambda name, part: _with_num_envs(part, num_envs))
    if not any(field.name == "feed" for field in dataclasses.fields(method)):
        return method
    return dataclasses.replace(method, feed=method.feed.for_run(num_envs))


def _default_num_envs(env: Any, num_seeds: int, method: Any) -> int:
    """Environments per seed: those of a vector environment that was given as an object, else the method's number."""
    if (total := registry.fixed_num_envs(env)) is None:
        return method.feed.num_envs
    if total % num_seeds:
        raise UserError(f"the vector environment has {total} sub-environments, which {num_seeds} seeds cannot share")
    return total // num_seeds


def run_metadata() -> dict[str, Any]:
    """The part of run.json about where it was written: versions, device, and the git state of the user's repository."""
    from thespis.runs.system_info import describe_device, git_state, package_versions

    return {"versions": package_versions(), "device": describe_device(), "git": git_state()}
