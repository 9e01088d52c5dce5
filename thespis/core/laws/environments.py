"""Conformance checks of compiled and host environments; public through :mod:`thespis.core.laws.components`."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from thespis.core.contracts import Environment, HostEnvironment
from thespis.core.laws.assertions import (
    ContractViolation,
    assert_arrays,
    assert_close,
    assert_finite,
    assert_in_space,
    assert_law,
    assert_same_bits,
    assert_same_tree,
    to_numpy,
)
from thespis.core.laws.random_samples import random_legal_action
from thespis.core.records import EnvSpec, TimeStep, View
from thespis.core.spaces import (
    Discrete,
    MultiDiscrete,
    Space,
    action_mask_size,
    map_groups,
    map_space,
    split_action_mask,
    unscale_action,
)
from thespis.runtime.keys import fold, indexed_keys, seed_key


def check_environment(environment: Environment, *, seed: int = 0, num_envs: int = 4, num_steps: int = 64) -> None:
    """Check all laws of a compiled environment, on ``num_envs`` copies and ``num_steps`` random legal actions."""
    spec, root, rng = environment.spec, seed_key(seed), np.random.default_rng(seed)
    params = jax.tree.map(lambda x: jnp.broadcast_to(x, (num_envs, *jnp.shape(x))), spec.params)
    reset, step = jax.jit(jax.vmap(environment.reset)), jax.jit(jax.vmap(environment.step))
    keys = indexed_keys(root, num_envs)
    state, time_step = initial = reset(params, keys)
    assert_arrays(state, "an environment's state holds arrays only")
    assert_same_bits(initial, reset(params, keys), "reset is repeatable")
    _check_step(spec, time_step, num_envs, "reset")
    assert_law(not np.any(_done(time_step)), "an episode does not end at its reset")

    lengths, running = np.zeros(num_envs, int), np.ones(num_envs, bool)
    for t in range(num_steps):
        key = fold(root, "step", t)
        action = _random_actions(spec, time_step.view, rng, num_envs)
        before = to_numpy(state)
        after, next_time_step = result = step(state, action, indexed_keys(key, num_envs))
        if t == 0:
            assert_same_bits(result, step(state, action, indexed_keys(key, num_envs)), "step is repeatable")
            assert_same_bits(before, to_numpy(state), "step changes nothing that it is given")
            _check_vmap(environment, state, action, key, result)
        assert_same_tree(state, after, "step keeps the state's tree, shapes and dtypes")
        assert_same_tree(time_step, next_time_step, "step and reset answer alike")
        # what an environment does past its episode's end is not checked: the loop never goes there
        _check_step(spec, _select(next_time_step, time_step, running), num_envs, "step")
        lengths += running
        ended = np.asarray(_done(next_time_step))
        _check_time_limit(spec, lengths, ended | ~running)
        running &= ~ended
        fresh, fresh_time_step = reset(params, indexed_keys(fold(root, "reset", t), num_envs))
        lengths, running = np.where(ended, 0, lengths), running | ended
        state, time_step = _select((fresh, fresh_time_step), (after, next_time_step), ended)


def _done(step: TimeStep) -> Any:
    terminated, truncated = step.terminated, step.truncated
    return terminated | truncated


def _check_vmap(environment: Environment, state: PyTree, action: PyTree, key: Any, answer: Any) -> None:
    row = jax.tree.map(lambda x: x[1], (state, action))
    single = jax.jit(lambda *args: environment.step(*args))(*row, indexed_keys(key, 2)[1])
    law = "an environment in a batch does what it does alone"
    assert_close(jax.tree.map(lambda x: x[1], answer), single, law, 1e-4)


def _select(yes: PyTree, no: PyTree, flag: np.ndarray) -> PyTree:
    def leaf(a: Any, b: Any) -> Any:
        return jnp.where(flag.reshape(flag.shape + (1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(leaf, yes, no)


def _check_time_limit(spec: EnvSpec, lengths: np.ndarray, ended: np.ndarray) -> None:
    if spec.time_limit is not None:
        late = (lengths >= spec.time_limit) & ~ended
        assert_law(not late.any(), "episodes end at the time limit", f"one goes on after {spec.time_limit} steps")


def _random_actions(spec: EnvSpec, view: View, rng: np.random.Generator, rows: int) -> PyTree:
    def choose(space: Space, axes: tuple[int, ...], legal: PyTree) -> PyTree:
        return random_legal_action(space, legal, rng, (rows, *axes))

    return unscale_action(
        spec.action_space, map_groups(spec.groups, spec.action_space, choose, to_numpy(view.action_mask))
    )


def _check_step(spec: EnvSpec, step: TimeStep, rows: int, where: str) -> None:
    _check_observation(spec, step.observation, rows, where)
    numbers = {"reward": "float32", "terminated": "bool", "truncated": "bool"}
    for name, dtype in numbers.items():
        value = getattr(step, name)
        actual = f"{value.dtype}{list(value.shape)}"
        assert_law(actual == f"{dtype}[{rows}]", f"{where} gives one {dtype} {name} an environment", f"not {actual}")
    assert_finite(step.reward, f"{where} gives finite rewards")
    law = "privileged observations come if and only if the spec says so"
    assert_law((step.privileged is not None) == (spec.privileged_space is not None), law)
    if spec.privileged_space is not None:
        assert_in_space(spec.privileged_space, step.privileged, (rows,), f"{where} gives privileged parts of the space")
    assert_law(
        (step.action_mask is not None) == spec.has_action_mask, "action masks come if and only if the spec says so"
    )
    if spec.has_action_mask:
        masks = functools.partial(_check_masks, rows=rows, where=where)
        map_groups(spec.groups, spec.action_space, masks, step.action_mask)
    _check_agents(spec, step, rows, where)


def _check_observation(spec: EnvSpec, observation: PyTree, rows: int, where: str) -> None:
    def check_group(space: Space, axes: tuple[int, ...], seen: PyTree) -> None:
        assert_in_space(space, seen, (rows, *axes), f"{where} gives observations of the space")

    map_groups(spec.groups, spec.observation_space, check_group, observation)


def _check_agents(spec: EnvSpec, step: TimeStep, rows: int, where: str) -> None:
    law = f"{where} gives every agent's alive flag, reward and termination"
    counts = {group.name: (rows, group.num_agents) for group in spec.groups}
    alive, outcomes = step.alive or {}, step.agent_outcomes or {}
    assert_law({name: x.shape for name, x in alive.items()} == counts, law, "not so of `alive`")
    assert_law({name: x.reward.shape for name, x in outcomes.items()} == counts, law, "not so of `agent_outcomes`")
    for name, x in outcomes.items():
        assert_law(
            x.reward.dtype == "float32" and x.terminated.dtype == bool and alive[name].dtype == bool,
            law,
            "wrong dtypes",
        )
        assert_finite(x.reward, f"{where} gives finite rewards")
    assert_law(
        (step.game_state is not None) == spec.has_game_state,
        "game states come if and only if the game has perfect information",
    )


def _check_masks(space: Space, axes: tuple[int, ...], legal: PyTree, *, rows: int, where: str) -> None:
    law = f"{where} gives action masks in which something is legal"

    def leaf(part: Any, mask: Any) -> None:
        if not isinstance(part, Discrete | MultiDiscrete):
            return assert_law(mask is None, law, "a box has a mask")
        expected = (rows, *axes, action_mask_size(part))
        assert_law(
            mask is not None and mask.shape == expected and mask.dtype == bool, law, f"bool{list(expected)} is wanted"
        )
        pieces = split_action_mask(part, jnp.asarray(mask)) if isinstance(part, MultiDiscrete) else [mask]
        assert_law(all(np.all(np.any(piece, axis=-1)) for piece in pieces), law, "nothing is")

    map_space(leaf, space, legal)


def check_host_environment(environment: HostEnvironment, *, seed: int = 0, num_steps: int = 64) -> None:
    """Check all laws of a host environment with ``num_steps`` random legal actions. Resets it at the end."""
    seeds = [seed + i for i in range(environment.num_envs)]
    first = _play_from_reset(environment, seeds, num_steps)
    second = _play_from_reset(environment, seeds, num_steps)
    assert_same_bits(first[0], second[0], "environments with the same seeds and actions do the same")
    saved = environment.get_state()
    if saved is not None:
        saved = {name: np.array(value) for name, value in saved.items()}
        continued = _play_on(environment, first[1], num_steps, 8)[0]
        environment.set_state(saved)
        assert_same_bits(
            continued, _play_on(environment, first[1], num_steps, 8)[0], "environments saved and loaded go on the same"
        )
    environment.reset(seeds)


def _play_from_reset(environment: HostEnvironment, seeds: list[int], ticks: int) -> tuple[list[PyTree], View]:
    start = environment.reset(seeds)
    _check_step(environment.spec, start, environment.num_envs, "start")
    assert_law(not np.any(_done(start)), "an episode does not end at its start")
    start = to_numpy(start)
    answers, view = _play_on(environment, start.view, 0, ticks)
    return [start, *answers], view


def _play_on(environment: HostEnvironment, view: View, begin: int, ticks: int) -> tuple[list[PyTree], View]:
    """Play ``ticks`` steps and check each answer's laws; returns the answers and the last view."""
    spec, n = environment.spec, environment.num_envs
    answers = []
    for t in range(begin, begin + ticks):
        rng = np.random.default_rng(t)  # seeded by the step, so that playing on twice takes the same actions
        action = to_numpy(_random_actions(spec, view, rng, n))
        step, following = answer = environment.step(action)
        if answers:
            law = "what an environment has returned stays as it was"
            assert_same_bits(answers[-1][1], to_numpy(answers[-1][0]), law)
        _check_step(spec, step, n, "step")
        _check_observation(spec, following.observation, n, "the view to act on next")
        not_done: Any = ~np.asarray(_done(step))
        law = "the true next view and the one to act on differ at most where an episode ended"
        true_next, acted_on = (
            jax.tree.map(lambda x, keep=not_done: np.asarray(x)[keep], v) for v in (step.view, following)
        )
        assert_same_bits(true_next, acted_on, law)
        answers.append((answer, to_numpy(answer)))
        view = following
    return [copy for _, copy in answers], view


__all__ = ["ContractViolation", "check_environment", "check_host_environment"]
