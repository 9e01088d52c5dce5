"""Fixed set of tasks: as many different beginnings as it says, the rules of the task, and a name of its own."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.envs.text.countdown import Countdown
from thespis.envs.text.fixed_tasks import FixedTasks
from thespis.envs.text.task import TextEnv
from thespis.runtime.keys import seed_key

TASK = Countdown(num_numbers=2, max_turns=2, demonstrator_noise=0.0)


def openings(num_tasks, num_episodes, seed):
    """First messages of episodes, as a set."""
    task = FixedTasks(TASK, num_tasks)
    keys = jax.random.split(seed_key(seed), num_episodes)
    return {tuple(row) for row in np.asarray(jax.jit(jax.vmap(lambda key: task.init(key)[1]))(keys)).tolist()}


@pytest.mark.long
def test_episodes_begin_in_one_of_the_initial_states():
    few = openings(5, 300, 0)
    assert 2 <= len(few) <= 5 and few == openings(5, 300, 1), "all of the set are drawn, and it is always the same"
    assert len(openings(200, 300, 0)) > 50
    alone = [openings(1, 3, seed) for seed in range(3)]
    assert len(alone[0]) == 1 and alone[0] == alone[1] == alone[2] and alone[0] <= few


@pytest.mark.long
def test_rules_and_demonstrator_are_those_of_the_task():
    task = FixedTasks(TASK, 3)

    @jax.jit
    def answer(key):
        state, _ = task.init(key)
        wrong = jnp.zeros_like(task.demonstrator_response(state, key))
        outcomes = [
            (rules.demonstrator_response(state, key), rules.step(state, rules.demonstrator_response(state, key), key))
            for rules in (task, TASK)
        ]
        return *outcomes, task.step(state, wrong, key)[1].reward

    fixed, plain, reward_of_wrong = answer(seed_key(2))
    for a, b in zip(jax.tree.leaves(fixed), jax.tree.leaves(plain), strict=True):
        np.testing.assert_array_equal(a, b)
    _, (_, outcome) = fixed
    assert outcome.reward == 1 and outcome.terminated and reward_of_wrong == 0


def test_environments_of_other_sets_have_other_names():
    names = {TextEnv(FixedTasks(TASK, n)).spec.name for n in (3, 4)} | {TextEnv(TASK).spec.name}
    assert len(names) == 3
