"""The user's world: first exactly as its author wrote it, then behind our adapter."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from thespis.cli.doctor_checks import episodes as read
from thespis.cli.doctor_checks import raw
from thespis.cli.doctor_checks.answers import check_answers
from thespis.cli.doctor_checks.check import Check, Clock, Failed, Warned, failed, look, skipped
from thespis.cli.doctor_checks.compiling import compiled_quickly
from thespis.cli.doctor_checks.finding import Found, find
from thespis.cli.doctor_checks.side_by_side import episodes_of, host_speed, seeds_differ
from thespis.core.conformance import LawBroken, check_environment, check_host_environment
from thespis.core.contracts import Environment
from thespis.core.errors import UserError
from thespis.core.keys import key_of
from thespis.core.records import EnvSpec
from thespis.core.spaces import Box, Space, leaves
from thespis.envs.spaces import from_gymnasium

_EPISODES = 20
_SEEDS = 5
_LAWS_NEED = 3.0  # seconds in which the laws of host worlds are looked at
_AT_LEAST = 10.0  # seconds for the world, whatever went before


def check_world(env: Any, clock: Clock) -> list[Check]:
    """All checks of the user's world, in an order in which the first that fails is the cause of the others."""
    try:
        found = find(env)
    except UserError as error:
        return [Check("world", False, str(error))]
    checks, clock = [Check("world", True, f"{found.name} ({found.kind})")], Clock(max(clock.left, _AT_LEAST))
    try:
        checks += _check_single(found, clock) if found.single is not None else _check_worlds(found, clock)
    finally:
        if found.single is not None and not found.given:
            found.single.close()
    return checks


def _check_single(found: Found, clock: Clock) -> list[Check]:
    env: Any = found.single
    checks = check_answers(env, clock)
    if not any(check.name == "action bounds" for check in checks):
        return checks
    checks += [look("seed", _seed, env, clock), look("determinism", _determinism, env, clock)]
    if failed(checks):
        return checks
    told = raw.episodes(env, 100, _EPISODES, Clock(min(clock.left / 4, 8.0)))
    spec = getattr(env, "spec", None)
    pictures = _pictures(from_gymnasium(env.observation_space))
    checks += _check_episodes(told, spec.max_episode_steps if spec else None, pictures)
    checks.append(_if_time("adapter", _adapter, found, clock))
    checks.append(look("speed", _speed, lambda: raw.steps_per_second(env, min(1.0, clock.left / 4)), found, clock))
    return checks


def _check_worlds(found: Found, clock: Clock) -> list[Check]:
    checks = []
    if found.compiled is not None:
        checks.append(look("contract", _contract, found.compiled))
    worlds = found.worlds()
    try:
        checks.append(_if_time("worlds", _lawful_worlds, worlds, clock))
        if failed(checks):
            return checks
        checks.append(look("seed", seeds_differ, worlds))
        told = episodes_of(worlds, _EPISODES, read.LONGEST, Clock(min(clock.left / 4, 8.0)))
        checks += _check_episodes(told, worlds.spec.time_limit, _pictures(worlds.spec.observation))
        checks.append(look("speed", _speed, lambda: host_speed(worlds, min(1.0, clock.left / 4)), found, clock))
    finally:
        if not found.given:
            worlds.close()
    return checks


def _check_episodes(told: list[read.Episode], limit: int | None, pictures: bool) -> list[Check]:
    return [
        look("episode end", read.ends, told, limit, read.LONGEST),
        look("time limit", read.time_limit, told),
        look("final observation", read.final_observation, told),
        look("reward scale", read.reward_scale, told),
        look("observation scale", read.observation_scale, told, pictures),
    ]


def _pictures(space: Space) -> bool:
    return any(isinstance(part, Box) and part.dtype == "uint8" for part in leaves(space))


def _if_time(name: str, question: Callable[[Any], str], subject: Any, clock: Clock) -> Check:
    return look(name, question, subject) if clock.left > _LAWS_NEED else skipped(name, "no time left")


def _seed(env: Any, clock: Clock) -> str:
    """One seed, one first observation."""
    firsts = []
    for seed in range(_SEEDS):
        twice = [raw.record(env, seed, None, 0, clock).prints for _ in range(2)]
        if twice[0] != twice[1]:
            raise Failed(
                f"reset(seed={seed}) twice gives two different observations: call super().reset(seed=seed) and "
                "draw all chance from self.np_random"
            )
        firsts.append(twice[0][0])
    if len(set(firsts)) == 1:
        raise Warned(f"seeds 0 to {_SEEDS - 1} all give the same first observation: fine if every episode begins alike")
    return f"{len(set(firsts))} first observations from {_SEEDS} seeds, each again with its seed"


def _determinism(env: Any, clock: Clock) -> str:
    """One seed and the same actions, one episode."""
    runs = [raw.record(env, 7, raw.at_random(env.action_space, 7), 200, clock).prints for _ in range(2)]
    count = min(len(run) for run in runs)
    apart = next((t for t in range(count) if runs[0][t] != runs[1][t]), None)
    if apart is None and len(runs[0]) != len(runs[1]) and clock.left:
        apart = count
    if apart is not None:
        raise Failed(
            f"the same seed and actions part at step {apart}: something random is not drawn from self.np_random, or "
            "something survives reset"
        )
    return f"the same seed and actions give the same {count} answers"


def _adapter(found: Found) -> str:
    """Our adapter keeps the contract around this world."""
    worlds = found.worlds()
    try:
        check_host_environment(worlds, ticks=16)
        saved = worlds.save() is not None
    except (LawBroken, UserError) as error:
        raise Failed(str(error)) from error
    finally:
        if not found.given:
            worlds.close()
    exact = (
        "a resumed run goes on exactly" if saved else "its state cannot be saved: a resumed run restarts its episodes"
    )
    return f"the host loop can use it; {exact}"


def _contract(environment: Environment) -> str:
    try:
        check_environment(environment)
    except LawBroken as error:
        raise Failed(str(error)) from error
    except Exception as error:
        raise Failed(f"{type(error).__name__}: {error}".splitlines()[0]) from error
    return "spaces, masks, time limit, repeatability under jit and vmap"


def _lawful_worlds(worlds: Any) -> str:
    try:
        check_host_environment(worlds, ticks=16)
    except (LawBroken, UserError) as error:
        raise Failed(str(error)) from error
    return "the same seeds and actions give the same answers, which stay as they are"


def _speed(measure: Any, found: Found, clock: Clock) -> str:
    """Steps per second, and what that is beside learning."""
    speed = measure()
    text = f"{speed:,.0f} steps/s"
    try:
        update = _sac_update(found.spec, clock.left)
    except UserError:
        return text
    if update is None:
        return f"{text} (not compared with learning: no time left)"
    share = 1 / speed / update
    text = f"{text}, {1e3 / speed:.2g} ms a step: {share:.0%} of an update of SAC ({1e3 * update:.2g} ms)"
    if share > 3:
        raise Warned(
            f"{text}: the world is the slow part; use more environments, --workers, or a method with few steps"
        )
    return text


def _sac_update(spec: EnvSpec, left: float) -> float | None:
    """Seconds of one update of SAC with its defaults in these spaces; ``None`` if ``left`` seconds are too few."""
    import jax
    import jax.numpy as jnp

    from thespis.core.records import Batch
    from thespis.core.samples import random_steps
    from thespis.methods.online.sac import SAC

    method, rows, count = SAC(), SAC().feed.batch, 10
    steps = jax.tree.map(jnp.asarray, random_steps(spec, np.random.default_rng(0), 1, rows))
    batch = Batch(steps, jnp.ones((1, rows), bool), (), jnp.int32(0))
    began = time.perf_counter()
    state = jax.jit(lambda key: method.init(spec, key))(key_of(0))
    if 5 * (time.perf_counter() - began) > left:  # compiling an update takes a few times as long
        return None
    with compiled_quickly(False):
        update = jax.jit(lambda state: method.update(state, batch, key_of(2))[0])
        state = jax.block_until_ready(update(state))
    began = time.perf_counter()
    for _ in range(count):
        state = update(state)
    jax.block_until_ready(state)
    return (time.perf_counter() - began) / count
