"""Hindsight relabeling: relabeled windows against the same actions played again with the new goal."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.laws.random_samples import first_episode_mask
from thespis.core.records import Batch, Transition, View
from thespis.envs.text.echo import Echo
from thespis.envs.text.maze import Maze
from thespis.envs.text.task import TextEnv
from thespis.learners.off_policy.hindsight import NO_RELABELING, HindsightFinal, HindsightFuture
from thespis.runtime.keys import fold, seed_key

ENV = TextEnv(Maze(size=3, max_turns=6))
RELABELER, FIRST_CELL = ENV.spec.goal_relabeler, ENV.task.task_spec.encode_word("a1")
ROWS, LENGTH = 64, 6
CHOICES = jnp.asarray(ENV.spec.action_space.choices, "int32")


@jax.jit
def episodes(goal: jax.Array | None = None) -> tuple[Transition, jax.Array]:
    """Episodes of random steps ``[time, row]``, with the goals of the environment or ``goal``, and the positions."""

    def reset(key):
        state, time_step = ENV.reset((), key)
        return state, time_step.observation

    state, obs = jax.vmap(reset)(jax.random.split(seed_key(1), ROWS))
    if goal is not None:
        task = dataclasses.replace(state.task_state, goal=goal)
        prompt = jax.vmap(ENV.task._describe)(task)
        obs = jnp.full_like(obs, -1).at[:, : prompt.shape[1]].set(prompt)
        state = dataclasses.replace(state, task_state=task, transcript=obs)

    def step(carry, t):
        state, obs, ended = carry
        direction = jax.random.randint(fold(seed_key(2), "way", t), (ROWS,), 0, 4)
        keys = jax.random.split(seed_key(3), ROWS)
        after, time_step = jax.vmap(ENV.step)(state, CHOICES[direction], keys)
        false = jnp.zeros(ROWS, bool)
        transition = Transition(
            View(obs),
            CHOICES[direction],
            time_step.reward,
            time_step.terminated,
            false,
            View(time_step.observation),
            false | (t == 0),
        )
        return (after, time_step.observation, ended | time_step.terminated), (transition, after.task_state.position)

    init_carry = state, obs, jnp.zeros(ROWS, bool)
    return jax.lax.scan(step, init_carry, jnp.arange(LENGTH))[1]


STEPS, POSITIONS = jax.tree.map(np.asarray, episodes())
MASK = first_episode_mask(STEPS.terminated)
UPDATE_INDEX = np.zeros((), "int32")


@jax.jit
def relabel(part, batch, key):
    return part(RELABELER, batch, key)


def windows(start: int) -> Batch:
    steps, mask = jax.tree.map(lambda x: np.roll(x, -start, axis=0), (STEPS, MASK))
    return jax.device_put(Batch(steps, mask & (np.arange(LENGTH) < LENGTH - start)[:, None], (), UPDATE_INDEX))


def goals_of(batch: Batch) -> np.ndarray:
    """The goal cell in the first observation of each row."""
    return np.asarray(batch.steps.view.observation[0, :, 1]) - FIRST_CELL


@pytest.mark.long
@pytest.mark.parametrize("start", [0, 2])
@pytest.mark.parametrize("part", [HindsightFuture(1.0), HindsightFinal(1.0)])
def test_relabeled_windows_match_the_environment(part, start):
    batch = windows(start)
    relabeled = jax.tree.map(np.asarray, relabel(part, batch, seed_key(5)))
    goal = goals_of(relabeled)
    replayed, _ = jax.tree.map(np.asarray, episodes(goal))
    alive = first_episode_mask(replayed.terminated)
    changed = 0
    for row in np.flatnonzero(MASK[start]):
        if goal[row] == goals_of(batch)[row]:
            continue
        changed += 1
        for t in range(LENGTH - start):
            assert bool(relabeled.mask[t, row]) == bool(alive[t + start, row])
            if not relabeled.mask[t, row]:
                break
            for name in ("reward", "terminated"):
                assert getattr(relabeled.steps, name)[t, row] == getattr(replayed, name)[t + start, row]
            for name in ("view", "next_view"):
                result, expected = getattr(relabeled.steps, name), getattr(replayed, name)
                np.testing.assert_array_equal(result.observation[t, row], expected.observation[t + start, row])
        assert relabeled.steps.reward[:, row][relabeled.mask[:, row]].sum() == 1.0  # the new goal is reached once
    assert changed > ROWS / 4


def test_rows_without_a_new_cell_are_unchanged():
    batch, relabeled = jax.tree.map(np.asarray, (windows(2), relabel(HindsightFuture(1.0), windows(2), seed_key(5))))
    same = goals_of(relabeled) == goals_of(batch)
    num_rows = 0
    for row in np.flatnonzero(MASK[2]):
        start = int(STEPS.view.observation[0, row, 3]) - FIRST_CELL
        before = {start, *(int(POSITIONS[t, row]) for t in range(2))}
        ahead = {int(POSITIONS[t, row]) for t in range(2, LENGTH) if MASK[t, row]}
        if ahead <= before:
            num_rows += 1
            assert same[row]
            for new, old in zip(*map(jax.tree.leaves, (relabeled.steps, batch.steps)), strict=True):
                np.testing.assert_array_equal(new[:, row], old[:, row])
            np.testing.assert_array_equal(relabeled.mask[:, row], batch.mask[:, row])
    assert num_rows


@pytest.mark.long
def test_future_samples_later_steps_uniformly_and_final_the_last():
    row = next(r for r in range(ROWS) if len({int(POSITIONS[t, r]) for t in range(LENGTH)}) >= 3 and bool(MASK[-1, r]))
    repeated = jax.tree.map(lambda x: x[:, [row] * 4_000], STEPS)
    batch = jax.device_put(Batch(repeated, np.ones((LENGTH, 4_000), bool), (), UPDATE_INDEX))
    start, cells = int(repeated.view.observation[0, 0, 3]) - FIRST_CELL, [int(POSITIONS[t, row]) for t in range(LENGTH)]
    steps = [cell for cell in cells if cell != start]
    goals = goals_of(relabel(HindsightFuture(1.0), batch, seed_key(0)))
    for cell in set(steps):
        assert (goals == cell).mean() == pytest.approx(steps.count(cell) / len(steps), abs=0.03)
    last = goals_of(relabel(HindsightFinal(1.0), batch, seed_key(0)))
    assert set(last.tolist()) == ({cells[-1]} if cells[-1] != start else {goals_of(batch)[0]})
    share = goals_of(relabel(HindsightFuture(0.25), batch, seed_key(0)))
    goal = goals_of(batch)[0]
    expected = 0.25 * (1 - steps.count(goal) / len(steps))
    assert (share != goal).mean() == pytest.approx(expected, abs=0.03)


def test_without_relabeling_goals_stay():
    batch = windows(0)
    assert NO_RELABELING(RELABELER, batch, seed_key(0)) is batch
    for part in (HindsightFuture(1.0), HindsightFinal(1.0)):
        assert part(None, batch, seed_key(0)) is batch
    assert TextEnv(Echo()).spec.goal_relabeler is None
