"""Checks of the user's environment, after it is resolved as a Gymnasium, compiled or vector environment.

The environment is checked first raw, then through the adapter.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from thespis.cli.doctor_checks import episode_checks as read
from thespis.cli.doctor_checks import gymnasium_rollout
from thespis.cli.doctor_checks.check import (
    CheckFailure,
    CheckResult,
    CheckWarning,
    TimeBudget,
    failed_checks,
    fast_compilation,
    run_check,
    skipped_check,
)
from thespis.cli.doctor_checks.gymnasium_checks import check_gymnasium_api
from thespis.cli.doctor_checks.vector_rollout import check_seeds, random_vector_episodes, vector_steps_per_second
from thespis.core.contracts import Environment, HostEnvironment
from thespis.core.errors import UserError
from thespis.core.laws.components import ContractViolation, check_environment, check_host_environment
from thespis.core.records import EnvSpec
from thespis.core.spaces import Box, Space, Text, leaf_spaces
from thespis.envs import registry
from thespis.envs.host.factory import (
    call_factory,
    has_members,
    is_preprocessed,
    make_registered,
    suppress_mujoco_warnings,
)
from thespis.envs.host.gymnasium import GymnasiumEnv
from thespis.envs.host.pettingzoo import is_pettingzoo_env
from thespis.envs.host.text_env import StringEnv, has_text_spaces
from thespis.envs.libraries import LIBRARIES, MULTI_AGENT_LIBRARIES, TEXT_LIBRARIES
from thespis.envs.space_conversion import from_gymnasium
from thespis.runtime.keys import seed_key

_MULTI_AGENT, _TEXT = "multi-agent environment", "text environment"
_NUM_ENVS = 8  # parallel environments, where their number is free


@dataclasses.dataclass(frozen=True)
class ResolvedEnv:
    """The environment under test: ``gymnasium_env`` or ``compiled`` is set, or neither for all others.

    The others (vector, multi-agent and text environments) are checked through the host contract alone.

    ``source`` is the registry's argument for host environments; ``user_owned`` says that the user's own object is
    used, which is not closed here.
    """

    name: str
    kind: str
    source: Any
    user_owned: bool
    gymnasium_env: Any = None
    compiled: Environment | None = None

    def make_vector_env(self) -> HostEnvironment:
        """The environment through the host contract."""
        return registry.make_host(self.source, self._num_envs)

    @property
    def _num_envs(self) -> int:
        if isinstance(self.source, HostEnvironment):
            return self.source.num_envs
        if self.gymnasium_env is not None:
            return 1 if self.user_owned else 2
        return getattr(self.source, "num_envs", 1 if self.user_owned and self.compiled is None else _NUM_ENVS)

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits through the adapter."""
        if self.compiled is not None:
            return self.compiled.spec
        envs = self.make_vector_env()
        try:
            return envs.spec
        finally:
            if not self.user_owned:
                envs.close()


def resolve_env(env: Any) -> ResolvedEnv:
    """Resolve a name, an object, a class or a function. Raises ``UserError`` like the registry."""
    entry = registry.resolve_env(env)
    if entry.kind == "compiled":
        return ResolvedEnv(
            entry.name, "compiled", env, not isinstance(env, str | type), compiled=registry.make_compiled(env)
        )
    if not isinstance(env, str):
        return _resolve_object(entry.name, env)
    library, _, name = entry.name.partition(":")
    if library == "gymnasium" and is_preprocessed(name):
        return ResolvedEnv(entry.name, "vector environment", env, False)
    if library == "gymnasium":
        return _resolve_registered(entry.name, name)
    if library in LIBRARIES:
        kind = {**dict.fromkeys(MULTI_AGENT_LIBRARIES, _MULTI_AGENT), **dict.fromkeys(TEXT_LIBRARIES, _TEXT)}
        return ResolvedEnv(entry.name, kind.get(library, "vector environment"), env, False)
    return _resolve_object(entry.name, registry.import_env(entry.name))


def _resolve_registered(full_name: str, name: str) -> ResolvedEnv:
    registry.make_host(full_name, 1).close()  # its errors are clearer than Gymnasium's
    with suppress_mujoco_warnings(name.partition("?")[0]):
        env = make_registered(name)
    if not has_text_spaces(env):
        return ResolvedEnv(full_name, "Gymnasium", full_name, False, gymnasium_env=env)
    env.close()
    return ResolvedEnv(full_name, _TEXT, full_name, False)


def _resolve_object(name: str, env: Any) -> ResolvedEnv:
    import gymnasium

    if isinstance(env, type) and has_members(env, "reset", "step", "get_state", "set_state"):
        return ResolvedEnv(name, "vector environment", env, False)
    is_env = isinstance(env, GymnasiumEnv | gymnasium.vector.VectorEnv | HostEnvironment)
    if isinstance(env, type) or (callable(env) and not is_env):
        return _resolve_instance(name, env, call_factory(env), user_owned=False)
    return _resolve_instance(name, env, env, user_owned=True)


def _resolve_instance(name: str, source: Any, env: Any, *, user_owned: bool) -> ResolvedEnv:
    import gymnasium

    if isinstance(env, HostEnvironment | gymnasium.vector.VectorEnv):
        return ResolvedEnv(name, "vector environment", env, True)
    if is_pettingzoo_env(env):
        return ResolvedEnv(name, _MULTI_AGENT, source, user_owned)
    is_gymnasium = isinstance(env, GymnasiumEnv)
    if has_text_spaces(env) if is_gymnasium else isinstance(env, StringEnv):
        return ResolvedEnv(name, _TEXT, source, user_owned)
    if not isinstance(env, gymnasium.Env) and isinstance(env, Environment):
        return ResolvedEnv(name, "compiled", env, True, compiled=env)
    return ResolvedEnv(name, "Gymnasium", source, user_owned, gymnasium_env=env)


_TEXT_REMEDY = "random tokens are no text: start from a model that can write (--model, or sft on examples of the task)"
_NUM_EPISODES = 20
_NUM_SEEDS = 5
_MIN_CONTRACT_SECONDS = 3.0  # minimum time to check the host contract
_MIN_SECONDS = 10.0  # minimum time for the environment's checks


def check_user_env(env: Any, budget: TimeBudget) -> list[CheckResult]:
    """All checks of the user's environment, ordered so that the first that fails explains later failures."""
    try:
        resolved = resolve_env(env)
        if (
            resolved.gymnasium_env is None
        ):  # a missing package, or spaces that cannot be used, is the first thing to say
            _ = resolved.spec
    except UserError as error:
        return [CheckResult("environment", False, str(error))]
    checks, budget = (
        [CheckResult("environment", True, f"{resolved.name} ({resolved.kind})")],
        TimeBudget(max(budget.seconds_left, _MIN_SECONDS)),
    )
    try:
        checks += (
            _check_gymnasium_env(resolved, budget)
            if resolved.gymnasium_env is not None
            else _check_vector_env(resolved, budget)
        )
    finally:
        if resolved.gymnasium_env is not None and not resolved.user_owned:
            resolved.gymnasium_env.close()
    return checks


def _check_gymnasium_env(resolved: ResolvedEnv, budget: TimeBudget) -> list[CheckResult]:
    env: Any = resolved.gymnasium_env
    checks = check_gymnasium_api(env, budget)
    if not any(check.name == "action bounds" for check in checks):
        return checks
    checks += [run_check("seed", _check_seed, env, budget), run_check("determinism", _check_determinism, env, budget)]
    if failed_checks(checks):
        return checks
    episodes = gymnasium_rollout.random_episodes(env, 100, _NUM_EPISODES, TimeBudget(min(budget.seconds_left / 4, 8.0)))
    spec = getattr(env, "spec", None)
    checks += _check_episodes(
        episodes, spec.max_episode_steps if spec else None, [from_gymnasium(env.observation_space)]
    )
    checks.append(_check_if_time("adapter", _check_adapter, resolved, budget))
    checks.append(
        run_check(
            "speed",
            _check_speed,
            lambda: gymnasium_rollout.steps_per_second(env, min(1.0, budget.seconds_left / 4)),
            resolved,
            budget,
        )
    )
    return checks


def _check_vector_env(resolved: ResolvedEnv, budget: TimeBudget) -> list[CheckResult]:
    checks = []
    if resolved.compiled is not None:
        checks.append(run_check("contract", _check_compiled_contract, resolved.compiled))
    envs = resolved.make_vector_env()
    try:
        checks.append(_check_if_time("vector environment", _check_vector_contract, envs, budget))
        if failed_checks(checks):
            return checks
        checks.append(run_check("seed", check_seeds, envs))
        episodes = random_vector_episodes(
            envs, _NUM_EPISODES, read.MAX_STEPS, TimeBudget(min(budget.seconds_left / 4, 8.0))
        )
        checks += _check_episodes(episodes, envs.spec.time_limit, [envs.spec.observation_space, envs.spec.action_space])
        checks.append(
            run_check(
                "speed",
                _check_speed,
                lambda: vector_steps_per_second(envs, min(1.0, budget.seconds_left / 4)),
                resolved,
                budget,
            )
        )
    finally:
        if not resolved.user_owned:
            envs.close()
    return checks


def _check_episodes(episodes: list[read.Episode], time_limit: int | None, spaces: list[Space]) -> list[CheckResult]:
    leaves = [leaf for space in spaces for leaf in leaf_spaces(space)]
    is_image = any(isinstance(leaf, Box) and leaf.dtype == "uint8" for leaf in leaves)
    remedy = _TEXT_REMEDY if any(isinstance(leaf, Text) for leaf in leaves) else read.EXPLORATION_REMEDY
    return [
        run_check("episode end", read.check_termination, episodes, time_limit, read.MAX_STEPS),
        run_check("time limit", read.check_time_limit, episodes),
        run_check("final observation", read.check_final_observation, episodes),
        run_check("reward scale", read.check_reward_scale, episodes, remedy),
        run_check("observation scale", read.check_observation_scale, episodes, is_image),
    ]


def _check_if_time(name: str, function: Callable[[Any], str], subject: Any, budget: TimeBudget) -> CheckResult:
    return (
        run_check(name, function, subject)
        if budget.seconds_left > _MIN_CONTRACT_SECONDS
        else skipped_check(name, "no time left")
    )


def _check_seed(env: Any, budget: TimeBudget) -> str:
    """Check that a seed determines the first observation."""
    first_observations = []
    for seed in range(_NUM_SEEDS):
        repeats = [gymnasium_rollout.record_episode(env, seed, None, 0, budget).fingerprints for _ in range(2)]
        if repeats[0] != repeats[1]:
            raise CheckFailure(
                f"reset(seed={seed}) twice gives two different observations: call super().reset(seed=seed) and "
                "take all randomness from self.np_random"
            )
        first_observations.append(repeats[0][0])
    if len(set(first_observations)) == 1:
        raise CheckWarning(
            f"seeds 0 to {_NUM_SEEDS - 1} all give the same first observation: fine if all episodes have the same "
            "initial state"
        )
    return f"{len(set(first_observations))} first observations from {_NUM_SEEDS} seeds, reproducible by seed"


def _check_determinism(env: Any, budget: TimeBudget) -> str:
    """Check that the same seed and actions give the same episode."""
    runs = [
        gymnasium_rollout.record_episode(
            env, 7, gymnasium_rollout.random_policy(env.action_space, 7), 200, budget
        ).fingerprints
        for _ in range(2)
    ]
    count = min(len(run) for run in runs)
    divergence_step = next((t for t in range(count) if runs[0][t] != runs[1][t]), None)
    if divergence_step is None and len(runs[0]) != len(runs[1]) and budget.seconds_left:
        divergence_step = count
    if divergence_step is not None:
        raise CheckFailure(
            f"the same seed and actions give different results at step {divergence_step}: some randomness is not from "
            "self.np_random, or some state survives reset"
        )
    return f"the same seed and actions give the same {count} steps"


def _check_adapter(resolved: ResolvedEnv) -> str:
    """Check that the environment fulfils the host contract through the adapter."""
    envs = resolved.make_vector_env()
    try:
        check_host_environment(envs, num_steps=16)
        is_resumable = envs.get_state() is not None
    except (ContractViolation, UserError) as error:
        raise CheckFailure(str(error)) from error
    finally:
        if not resolved.user_owned:
            envs.close()
    resume_text = (
        "a resumed run continues exactly"
        if is_resumable
        else "its state cannot be saved: a resumed run restarts its episodes"
    )
    return f"the host loop can use it; {resume_text}"


def _check_compiled_contract(environment: Environment) -> str:
    try:
        check_environment(environment)
    except ContractViolation as error:
        raise CheckFailure(str(error)) from error
    except Exception as error:
        raise CheckFailure(f"{type(error).__name__}: {error}".splitlines()[0]) from error
    return "spaces, masks, time limit, repeatability under jit and vmap"


def _check_vector_contract(envs: Any) -> str:
    try:
        check_host_environment(envs, num_steps=16)
    except (ContractViolation, UserError) as error:
        raise CheckFailure(str(error)) from error
    return "the same seeds and actions give the same results, which do not change afterwards"


def _check_speed(measure: Any, resolved: ResolvedEnv, budget: TimeBudget) -> str:
    """Measure steps per second, compared with the time of a SAC update."""
    speed = measure()
    text = f"{speed:,.0f} steps/s" if speed >= 10 else f"{speed:.2g} steps/s"
    if resolved.spec.groups:  # methods of teams and games differ too much to compare with one of them
        return text
    try:
        update = _sac_update_seconds(resolved.spec, budget.seconds_left)
    except UserError:
        return text
    if update is None:
        return f"{text} (not compared with learning: no time left)"
    share = 1 / speed / update
    text = f"{text}, {1e3 / speed:.2g} ms per step: {share:.0%} of an update of SAC ({1e3 * update:.2g} ms)"
    if share > 3:
        raise CheckWarning(
            f"{text}: the environment is the bottleneck; use more environments, --workers, or a method that needs few "
            "steps"
        )
    return text


def _sac_update_seconds(spec: EnvSpec, seconds_left: float) -> float | None:
    """Seconds of one default SAC update with these spaces; ``None`` if ``seconds_left`` is too short."""
    import jax
    import jax.numpy as jnp

    from thespis.core.laws.random_samples import random_transitions
    from thespis.core.records import Batch
    from thespis.methods.online.sac import SAC

    method, rows, count = SAC(), SAC().feed.batch_shape[1], 10
    steps = jax.tree.map(jnp.asarray, random_transitions(spec, np.random.default_rng(0), 1, rows))
    batch = Batch(steps, jnp.ones((1, rows), bool), (), jnp.int32(0))
    start = time.perf_counter()
    state = jax.jit(lambda key: method.init(spec, key))(seed_key(0))
    if 5 * (time.perf_counter() - start) > seconds_left:  # compiling an update takes a few times as long
        return None
    with fast_compilation(False):
        update = jax.jit(lambda state: method.update(state, batch, seed_key(2))[0])
        state = jax.block_until_ready(update(state))
    start = time.perf_counter()
    for _ in range(count):
        state = update(state)
    jax.block_until_ready(state)
    return (time.perf_counter() - start) / count
