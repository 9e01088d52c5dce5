"""Worlds behind our host contract (compiled ones, EnvPool, vector environments), played and timed."""

from __future__ import annotations

import time
from typing import Any

import jax
import numpy as np

from thespis.cli.doctor_checks.check import Clock, Failed, Warned
from thespis.cli.doctor_checks.episodes import Episode, features
from thespis.core.contracts import HostEnvironment
from thespis.core.keys import key_of, per_index
from thespis.core.records import View
from thespis.core.spaces import random_action, to_world


class RandomPlayer:
    """Random legal actions for worlds side by side, jitted once."""

    def __init__(self, worlds: HostEnvironment):
        spec, self._n, self._tick = worlds.spec, worlds.n, 0

        def one(legal: Any, key: Any) -> Any:
            return to_world(spec.action, random_action(spec.action, key, legal))

        self._act = jax.jit(lambda legal, tick: jax.vmap(one)(legal, per_index(key_of(tick), self._n)))

    def __call__(self, view: View) -> Any:
        """The next actions."""
        self._tick += 1
        return jax.tree.map(np.asarray, self._act(view.legal, self._tick))


def _rows(tree: Any, n: int) -> list[np.ndarray]:
    leaves = jax.tree.leaves(tree)
    return [features([leaf[i] for leaf in leaves]) for i in range(n)]


def seeds_differ(worlds: HostEnvironment) -> str:
    """Seeds decide how episodes begin, and different ones differ."""
    n = worlds.n
    first, again = (_rows(worlds.start(list(range(n))).observation, n) for _ in range(2))
    if not all(np.array_equal(a, b) for a, b in zip(first, again, strict=True)):
        raise Failed("the same seeds start different episodes: draw all chance from the seed or key that is given")
    other = _rows(worlds.start(list(range(n, 2 * n))).observation, n)
    several = {row.tobytes() for row in first + other}
    if len(several) == 1:
        raise Warned(f"{2 * n} seeds all give the same first observation: fine if every episode begins alike")
    return f"{len(several)} first observations from {2 * n} seeds, each again with its seed"


def episodes_of(worlds: HostEnvironment, most: int, longest: int, clock: Clock) -> list[Episode]:
    """Up to ``most`` episodes of random play, in the time that is left; those cut off by it are unfinished."""
    player, n = RandomPlayer(worlds), worlds.n
    view = worlds.start(list(range(100, 100 + n))).view
    seen = [[row] for row in _rows(view.observation, n)]
    paid: list[list[float]] = [[] for _ in range(n)]
    done: list[Episode] = []
    ticks = 0
    while len(done) < most and clock.left and ticks <= longest:
        step, view = worlds.step(player(view))
        ticks += 1
        after, fresh = _rows(step.observation, n), _rows(view.observation, n)
        for i in range(n):
            seen[i].append(after[i])
            paid[i].append(float(step.reward[i]))
            if step.terminated[i] or step.truncated[i]:
                ends = bool(step.terminated[i]), bool(step.truncated[i])
                done.append(Episode(np.stack(seen[i]), np.array(paid[i]), *ends))
                seen[i], paid[i] = [fresh[i]], []
    if not done:
        done = [Episode(np.stack(s), np.array(p), False, False) for s, p in zip(seen, paid, strict=True) if p]
    return done


def host_speed(worlds: HostEnvironment, seconds: float) -> float:
    """Steps per second of all worlds together, under random actions."""
    player = RandomPlayer(worlds)
    view = worlds.start(list(range(worlds.n))).view
    _, view = worlds.step(player(view))
    count, began = 0, time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds:
        _, view = worlds.step(player(view))
        count += worlds.n
    return count / spent
