"""Hindsight: replayed windows against the world played anew, with the goal that they were given."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.keys import fold, key_of
from thespis.core.records import Batch, Transition, View
from thespis.core.samples import until_end
from thespis.envs.text.echo import Echo
from thespis.envs.text.maze import Maze
from thespis.envs.text.task import Spoken
from thespis.learners.hindsight import AsTold, Final, Future

WORLD = Spoken(Maze(size=3, turns=6))
GOALS, FIRST = WORLD.spec.goals, WORLD.task.manners.id("a1")
ROWS, LENGTH = 64, 6
CHOICES = jnp.asarray(WORLD.spec.action.choices, "int32")


@jax.jit
def episodes(goal: jax.Array | None = None) -> tuple[Transition, jax.Array]:
    """Episodes of random steps, ``[time, row]``, with goals of their own or given; and where they stood."""

    def begun(key):
        talk, seen = WORLD.reset((), key)
        return talk, seen.observation

    talk, seen = jax.vmap(begun)(jax.random.split(key_of(1), ROWS))
    if goal is not None:
        task = dataclasses.replace(talk.task, goal=goal)
        told = jax.vmap(WORLD.task._where)(task)
        seen = jnp.full_like(seen, -1).at[:, : told.shape[1]].set(told)
        talk = dataclasses.replace(talk, task=task, transcript=seen)

    def step(carry, t):
        talk, seen, over = carry
        way = jax.random.randint(fold(key_of(2), "way", t), (ROWS,), 0, 4)
        keys = jax.random.split(key_of(3), ROWS)
        after, found = jax.vmap(WORLD.step)(talk, CHOICES[way], keys)
        no = jnp.zeros(ROWS, bool)
        made = Transition(
            View(seen), CHOICES[way], found.reward, found.terminated, no, View(found.observation), no | (t == 0)
        )
        return (after, found.observation, over | found.terminated), (made, after.task.at)

    begin = talk, seen, jnp.zeros(ROWS, bool)
    return jax.lax.scan(step, begin, jnp.arange(LENGTH))[1]


STEPS, AT = jax.tree.map(np.asarray, episodes())
MASK = until_end(STEPS.terminated)
NOW = np.zeros((), "int32")


@jax.jit
def retold(part, batch, key):
    return part(GOALS, batch, key)


def windows(start: int) -> Batch:
    steps, mask = jax.tree.map(lambda x: np.roll(x, -start, axis=0), (STEPS, MASK))
    return jax.device_put(Batch(steps, mask & (np.arange(LENGTH) < LENGTH - start)[:, None], (), NOW))


def told_goals(batch: Batch) -> np.ndarray:
    """The cell that the opening of each row names."""
    return np.asarray(batch.steps.view.observation[0, :, 1]) - FIRST


@pytest.mark.parametrize("start", [0, 2])
@pytest.mark.parametrize("part", [Future(1.0), Final(1.0)])
def test_what_is_retold_is_what_the_world_would_have_done(part, start):
    batch = windows(start)
    found = jax.tree.map(np.asarray, retold(part, batch, key_of(5)))
    goal = told_goals(found)
    anew, _ = jax.tree.map(np.asarray, episodes(goal))
    alive = until_end(anew.terminated)
    changed = 0
    for row in np.flatnonzero(MASK[start]):
        if goal[row] == told_goals(batch)[row]:
            continue
        changed += 1
        for t in range(LENGTH - start):
            assert bool(found.mask[t, row]) == bool(alive[t + start, row])
            if not found.mask[t, row]:
                break
            for name in ("reward", "terminated"):
                assert getattr(found.steps, name)[t, row] == getattr(anew, name)[t + start, row]
            for name in ("view", "next_view"):
                one, other = getattr(found.steps, name), getattr(anew, name)
                np.testing.assert_array_equal(one.observation[t, row], other.observation[t + start, row])
        assert found.steps.reward[:, row][found.mask[:, row]].sum() == 1.0  # a place that was reached
    assert changed > ROWS / 4


def test_rows_whose_places_had_all_been_reached_stay_as_they_were():
    batch, found = jax.tree.map(np.asarray, (windows(2), retold(Future(1.0), windows(2), key_of(5))))
    same = told_goals(found) == told_goals(batch)
    kept = 0
    for row in np.flatnonzero(MASK[2]):
        start = int(STEPS.view.observation[0, row, 3]) - FIRST
        before = {start, *(int(AT[t, row]) for t in range(2))}
        ahead = {int(AT[t, row]) for t in range(2, LENGTH) if MASK[t, row]}
        if ahead <= before:
            kept += 1
            assert same[row]
            for one, other in zip(*map(jax.tree.leaves, (found.steps, batch.steps)), strict=True):
                np.testing.assert_array_equal(one[:, row], other[:, row])
            np.testing.assert_array_equal(found.mask[:, row], batch.mask[:, row])
    assert kept


def test_future_draws_any_step_ahead_alike_and_final_the_last():
    row = next(r for r in range(ROWS) if len({int(AT[t, r]) for t in range(LENGTH)}) >= 3 and bool(MASK[-1, r]))
    one = jax.tree.map(lambda x: x[:, [row] * 4_000], STEPS)
    batch = jax.device_put(Batch(one, np.ones((LENGTH, 4_000), bool), (), NOW))
    start, cells = int(one.view.observation[0, 0, 3]) - FIRST, [int(AT[t, row]) for t in range(LENGTH)]
    steps = [cell for cell in cells if cell != start]
    goals = told_goals(retold(Future(1.0), batch, key_of(0)))
    for cell in set(steps):
        assert (goals == cell).mean() == pytest.approx(steps.count(cell) / len(steps), abs=0.03)
    last = told_goals(retold(Final(1.0), batch, key_of(0)))
    assert set(last.tolist()) == ({cells[-1]} if cells[-1] != start else {told_goals(batch)[0]})
    share = told_goals(retold(Future(0.25), batch, key_of(0)))
    told = told_goals(batch)[0]
    wanted = 0.25 * (1 - steps.count(told) / len(steps))
    assert (share != told).mean() == pytest.approx(wanted, abs=0.03)


def test_goals_stay_where_none_are_told():
    batch = windows(0)
    assert AsTold()(GOALS, batch, key_of(0)) is batch
    for part in (Future(1.0), Final(1.0)):
        assert part(None, batch, key_of(0)) is batch
    assert Spoken(Echo()).spec.goals is None
