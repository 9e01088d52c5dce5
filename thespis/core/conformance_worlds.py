"""The laws of compiled and host worlds; public through :mod:`thespis.core.conformance`."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from thespis.core.agents import per_group
from thespis.core.contracts import Environment, HostEnvironment
from thespis.core.keys import fold, key_of, per_index
from thespis.core.laws import LawBroken, arrays_only, as_numpy, close, finite, fits, hold, same_bits, same_tree
from thespis.core.records import EnvSpec, TimeStep, View
from thespis.core.samples import legal_action
from thespis.core.spaces import Discrete, MultiDiscrete, Space, legal_size, map_space, split_legal, to_world


def check_environment(environment: Environment, *, seed: int = 0, rows: int = 4, ticks: int = 64) -> None:
    """All laws that concern a compiled world, on ``rows`` worlds and ``ticks`` random legal actions in each."""
    spec, root, rng = environment.spec, key_of(seed), np.random.default_rng(seed)
    params = jax.tree.map(lambda x: jnp.broadcast_to(x, (rows, *jnp.shape(x))), spec.params)
    reset, step = jax.jit(jax.vmap(environment.reset)), jax.jit(jax.vmap(environment.step))
    keys = per_index(root, rows)
    state, now = began = reset(params, keys)
    arrays_only(state, "a world's state holds arrays only")
    same_bits(began, reset(params, keys), "reset is repeatable")
    _check_step(spec, now, rows, "reset")
    hold(not np.any(_ended(now)), "an episode does not end at its reset")

    lengths, running = np.zeros(rows, int), np.ones(rows, bool)
    for t in range(ticks):
        key = fold(root, "step", t)
        action = _random_actions(spec, now.view, rng, rows)
        before = as_numpy(state)
        after, following = answer = step(state, action, per_index(key, rows))
        if t == 0:
            same_bits(answer, step(state, action, per_index(key, rows)), "step is repeatable")
            same_bits(before, as_numpy(state), "step changes nothing that it is given")
            _check_alone(environment, state, action, key, answer)
        same_tree(state, after, "step keeps the state's tree, shapes and dtypes")
        same_tree(now, following, "step and reset answer alike")
        # what a world does past its episode's end is its own affair: the loop never goes there
        _check_step(spec, _kept(following, now, running), rows, "step")
        lengths += running
        ended = np.asarray(_ended(following))
        _check_limit(spec, lengths, ended | ~running)
        running &= ~ended
        fresh, began_again = reset(params, per_index(fold(root, "reset", t), rows))
        lengths, running = np.where(ended, 0, lengths), running | ended
        state, now = _kept((fresh, began_again), (after, following), ended)


def _ended(step: TimeStep) -> Any:
    terminated, truncated = step.terminated, step.truncated
    return terminated | truncated


def _check_alone(environment: Environment, state: PyTree, action: PyTree, key: Any, answer: Any) -> None:
    one = jax.tree.map(lambda x: x[1], (state, action))
    alone = jax.jit(environment.step)(*one, per_index(key, 2)[1])
    law = "a world beside others does what it does alone"
    close(jax.tree.map(lambda x: x[1], answer), alone, law, 1e-4)


def _kept(yes: PyTree, no: PyTree, flag: np.ndarray) -> PyTree:
    def leaf(a: Any, b: Any) -> Any:
        return jnp.where(flag.reshape(flag.shape + (1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(leaf, yes, no)


def _check_limit(spec: EnvSpec, lengths: np.ndarray, ended: np.ndarray) -> None:
    if spec.time_limit is not None:
        late = (lengths >= spec.time_limit) & ~ended
        hold(not late.any(), "episodes end at the time limit", f"one goes on after {spec.time_limit} steps")


def _random_actions(spec: EnvSpec, view: View, rng: np.random.Generator, rows: int) -> PyTree:
    def choose(space: Space, axes: tuple[int, ...], legal: PyTree) -> PyTree:
        return legal_action(space, legal, rng, (rows, *axes))

    return to_world(spec.action, per_group(spec.groups, spec.action, choose, as_numpy(view.legal)))


def _check_step(spec: EnvSpec, step: TimeStep, rows: int, where: str) -> None:
    _check_observation(spec, step.observation, rows, where)
    numbers = {"reward": "float32", "terminated": "bool", "truncated": "bool"}
    for name, dtype in numbers.items():
        value = getattr(step, name)
        found = f"{value.dtype}{list(value.shape)}"
        hold(found == f"{dtype}[{rows}]", f"{where} gives one {dtype} {name} a world", f"not {found}")
    finite(step.reward, f"{where} gives finite rewards")
    shows = "what only critics see comes if and only if the spec says so"
    hold((step.privileged is not None) == (spec.privileged is not None), shows)
    if spec.privileged is not None:
        fits(spec.privileged, step.privileged, (rows,), f"{where} gives privileged parts of the space")
    hold((step.legal is not None) == spec.legal, "legal masks come if and only if the spec says so")
    if spec.legal:
        masks = functools.partial(_check_masks, rows=rows, where=where)
        per_group(spec.groups, spec.action, masks, step.legal)
    _check_agents(spec, step, rows, where)


def _check_observation(spec: EnvSpec, observation: PyTree, rows: int, where: str) -> None:
    def one(space: Space, axes: tuple[int, ...], seen: PyTree) -> None:
        fits(space, seen, (rows, *axes), f"{where} gives observations of the space")

    per_group(spec.groups, spec.observation, one, observation)


def _check_agents(spec: EnvSpec, step: TimeStep, rows: int, where: str) -> None:
    law = f"{where} says of every agent whether it decides, what it was given and whether it has gone"
    counts = {group.name: (rows, group.count) for group in spec.groups}
    alive, each = step.alive or {}, step.each or {}
    hold({name: x.shape for name, x in alive.items()} == counts, law, "not so of `alive`")
    hold({name: x.reward.shape for name, x in each.items()} == counts, law, "not so of `each`")
    for name, x in each.items():
        hold(x.reward.dtype == "float32" and x.gone.dtype == bool and alive[name].dtype == bool, law, "wrong dtypes")
        finite(x.reward, f"{where} gives finite rewards")
    hold((step.position is not None) == spec.searchable, "positions come if and only if all players see everything")


def _check_masks(space: Space, axes: tuple[int, ...], legal: PyTree, *, rows: int, where: str) -> None:
    law = f"{where} gives legal masks in which something is legal"

    def leaf(part: Any, mask: Any) -> None:
        if not isinstance(part, Discrete | MultiDiscrete):
            return hold(mask is None, law, "a box has a mask")
        wanted = (rows, *axes, legal_size(part))
        hold(mask is not None and mask.shape == wanted and mask.dtype == bool, law, f"bool{list(wanted)} is wanted")
        pieces = split_legal(part, jnp.asarray(mask)) if isinstance(part, MultiDiscrete) else [mask]
        hold(all(np.all(np.any(piece, axis=-1)) for piece in pieces), law, "nothing is")

    map_space(leaf, space, legal)


def check_host_environment(environment: HostEnvironment, *, seed: int = 0, ticks: int = 64) -> None:
    """All laws that concern host worlds, on ``ticks`` random legal actions in each. Leaves them restarted."""
    seeds = [seed + i for i in range(environment.n)]
    first = _play(environment, seeds, ticks)
    second = _play(environment, seeds, ticks)
    same_bits(first[0], second[0], "worlds with the same seeds and actions do the same")
    saved = environment.save()
    if saved is not None:
        saved = {name: np.array(value) for name, value in saved.items()}
        going_on = _continue(environment, first[1], ticks, 8)[0]
        environment.load(saved)
        same_bits(going_on, _continue(environment, first[1], ticks, 8)[0], "worlds saved and loaded go on the same")
    environment.start(seeds)


def _play(environment: HostEnvironment, seeds: list[int], ticks: int) -> tuple[list[PyTree], View]:
    start = environment.start(seeds)
    _check_step(environment.spec, start, environment.n, "start")
    hold(not np.any(_ended(start)), "an episode does not end at its start")
    start = as_numpy(start)
    answers, view = _continue(environment, start.view, 0, ticks)
    return [start, *answers], view


def _continue(environment: HostEnvironment, view: View, begin: int, ticks: int) -> tuple[list[PyTree], View]:
    """What ``ticks`` ticks answered, and the last view; the laws of each answer are checked on the way."""
    spec, n = environment.spec, environment.n
    answers = []
    for t in range(begin, begin + ticks):
        rng = np.random.default_rng(t)  # by the tick, so that going on twice is going on alike
        action = as_numpy(_random_actions(spec, view, rng, n))
        step, following = answer = environment.step(action)
        if answers:
            law = "what a world has answered stays as it was"
            same_bits(answers[-1][1], as_numpy(answers[-1][0]), law)
        _check_step(spec, step, n, "step")
        _check_observation(spec, following.observation, n, "the view to act on next")
        going_on: Any = ~np.asarray(_ended(step))
        law = "the true next view and the one to act on differ at most where an episode ended"
        told, acted_on = (jax.tree.map(lambda x, keep=going_on: np.asarray(x)[keep], v) for v in (step.view, following))
        same_bits(told, acted_on, law)
        answers.append((answer, as_numpy(answer)))
        view = following
    return [copy for _, copy in answers], view


__all__ = ["LawBroken", "check_environment", "check_host_environment"]
