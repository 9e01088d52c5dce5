"""Configuration of a new run, the content of run.json: its parts by name or as objects, its loop, its environments."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from thespis.core.contracts import Method, MultiAgentMethod, OpponentCurriculum
from thespis.core.errors import UserError
from thespis.core.renames import notice
from thespis.envs import registry
from thespis.methods.registry import load_method
from thespis.runs.config import apply_settings, check_storable, to_config
from thespis.runs.ranges import check_ranges
from thespis.training.options import RunOptions

_OLD_OPPONENTS = {"past": "uniform", "hard": "pfsp"}


def make_method(method: str | Method, settings: list[str]) -> Method:
    """A method, by name or as an object, with settings applied."""
    built = load_method(method)() if isinstance(method, str) else method
    return apply_settings(built, settings)


def wrap_multi_agent(method: Method, env: Any) -> Method:
    """Wrap a single-agent method as independent learners if the environment has many agents."""
    from thespis.learners.multi_agent.independent_learners import IndependentLearners

    return (
        IndependentLearners(method)
        if registry.is_multi_agent(env) and not isinstance(method, MultiAgentMethod)
        else method
    )  # pyright: ignore


def make_feedback(feedback: Any) -> Any:
    """A feedback by name (``environment``, ``rnd``, ``counts``); objects are returned as they are."""
    from thespis.feedback.count_bonus import CountBonus
    from thespis.feedback.environment import EnvironmentReward
    from thespis.feedback.rnd import RandomNetworkDistillation

    named = {
        None: EnvironmentReward,
        "environment": EnvironmentReward,
        "rnd": RandomNetworkDistillation,
        "counts": CountBonus,
    }
    if feedback is None or isinstance(feedback, str):
        if feedback not in named:
            raise UserError(f"unknown feedback {feedback!r}: it is environment, rnd or counts")
        return named[feedback]()
    return feedback


def make_curriculum(curriculum: Any, parse_opponents: Callable[[str], Any]) -> Any:
    """A curriculum: ranges such as ``length=0.3..0.8`` randomise environment parameters; ``None`` keeps them fixed.

    A string names the opponents in a game: latest, uniform, pfsp or equilibrium (past versions of the learner, sampled
    uniformly, by prioritized fictitious self-play, or by the equilibrium of their matches), league (several learners,
    some of which exploit others), or a comma-separated list of players, such as ``bot:mcts-100`` or
    ``runs/ppo,runs/a2c``, which ``parse_opponents`` reads (``None`` for what names no players). Objects are returned as
    they are.
    """
    from thespis.curricula import opponent_pool
    from thespis.curricula.domain_randomization import DomainRandomization
    from thespis.curricula.fixed import FixedCurriculum
    from thespis.curricula.league import League
    from thespis.curricula.opponent_pool import OpponentPool

    if not curriculum:
        return FixedCurriculum()
    if isinstance(curriculum, str):
        choices = {
            "latest": opponent_pool.LatestOpponent,
            "uniform": opponent_pool.UniformOpponent,
            "pfsp": opponent_pool.PFSPOpponent,
            "equilibrium": opponent_pool.EquilibriumOpponent,
        }
        if curriculum in _OLD_OPPONENTS:
            notice(f"opponents {curriculum} are now called {_OLD_OPPONENTS[curriculum]}")
            curriculum = _OLD_OPPONENTS[curriculum]
        if curriculum in choices:
            return OpponentPool(opponent_sampler=choices[curriculum]())
        if curriculum == "league":
            return League()
        if (opponents := parse_opponents(curriculum)) is None:
            raise UserError(
                f"unknown opponents {curriculum!r}: {', '.join(choices)}, league, or players such as runs/ppo or "
                "bot:mcts-100"
            )
        return opponents
    return DomainRandomization.parse(list(curriculum)) if isinstance(curriculum, list | tuple) else curriculum


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
) -> dict[str, Any]:
    """The content of run.json, except for :func:`run_metadata`. ``parse_opponents``: see :func:`make_curriculum`."""
    from thespis import __version__

    kind = loop_kind(method, env, options)
    feedback, curriculum = make_feedback(feedback), make_curriculum(curriculum, parse_opponents)
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
    }


def _with_num_envs(method: Any, num_envs: int) -> Any:
    """The method with its feed for that many environments, if the feed is a setting of its own."""
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
