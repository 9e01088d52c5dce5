"""The interval of evaluations during training, where the user sets none."""

from __future__ import annotations

from typing import Any

from thespis.core.records import EnvSpec
from thespis.envs import registry
from thespis.training.options import RunOptions

NUM_EVALUATIONS = 10
MIN_STEPS = 10_000
"""Steps per seed below which a run is evaluated only at its end."""
MAX_SHARE = 0.5
"""Largest number of steps of all evaluation episodes, as a share of the training steps, outside JAX."""
MAX_COMPILED_SHARE = 0.1
"""Largest number of steps of the longest evaluation episodes, as a share of the training steps, in JAX: all episodes
are played at once, but one step takes longer than in the compiled loop."""
ISOLATED_LIBRARIES = ("gymnasium", "envpool", "pettingzoo", "openspiel")
"""Libraries of host environments with a random generator for each environment."""


def evaluation_interval(options: RunOptions, env: Any, spec: EnvSpec, steps: int) -> int:
    """Steps between evaluations: the user's number, or a tenth of the run where that is safe and cheap; else 0 (none).

    Safe: evaluation cannot change training. It uses random keys and environments of its own, but environments outside
    JAX may share a random generator in their library. So they are evaluated only by the name of a library whose
    environments do not, and never as objects, which may be the ones that train. Cheap: the run is long enough, and
    episodes have a time limit and not too many steps in all.
    """
    if options.evaluate_every is not None:
        return options.evaluate_every
    if env is None or steps < MIN_STEPS or not spec.time_limit:
        return 0
    is_compiled = registry.resolve_env(env).kind == "compiled"
    if not is_compiled and not _is_isolated(env):
        return 0
    limit = NUM_EVALUATIONS * spec.time_limit
    is_cheap = limit <= MAX_COMPILED_SHARE * steps if is_compiled else limit * options.episodes <= MAX_SHARE * steps
    return steps // NUM_EVALUATIONS if is_cheap else 0


def _is_isolated(env: Any) -> bool:
    """Whether ``env`` names a host environment whose random generator is its own."""
    if not isinstance(env, str):
        return False
    library, _, name = registry.resolve_env(env).name.partition(":")
    return (
        library in ISOLATED_LIBRARIES and ":" not in name.partition("?")[0]
    )  # a second colon: a module of the user registers it
