"""Curriculum of given tasks: what is played and how often, returns by task, settings and mistakes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from small_envs import VECTOR, Walk

import thespis
from thespis.core.errors import UserError
from thespis.core.laws.components import check_curriculum
from thespis.core.laws.random_samples import random_transitions
from thespis.core.records import EnvSpec, EpisodeStats
from thespis.core.spaces import Discrete
from thespis.curricula.tasks import Tasks
from thespis.runtime.keys import seed_key

PARAMS = {"pole": {"length": jnp.float32(0.5), "mass": jnp.ones(2)}, "size": jnp.int32(7)}
SPEC = EnvSpec("pole", VECTOR, Discrete(2), params=PARAMS)
ROLLOUT = random_transitions(SPEC, np.random.default_rng(0), 2, 2)
TASKS = Tasks(("pole.length=1.5", "pole.mass=2&size=3"))


def test_episodes_play_the_tasks_equally_often():
    state = TASKS.init(SPEC, seed_key(0))
    drawn = jax.jit(lambda key: TASKS.draw(state, key, 2_000))(seed_key(1))
    task = np.asarray(drawn.level)
    assert scipy.stats.chisquare(np.bincount(task, minlength=2)).pvalue > 1e-3
    np.testing.assert_array_equal(drawn.params["pole"]["length"], np.where(task == 0, 1.5, 0.5))
    np.testing.assert_array_equal(drawn.params["pole"]["mass"], np.where(task == 0, 1, 2)[:, None].repeat(2, 1))
    np.testing.assert_array_equal(drawn.params["size"], np.where(task == 0, 7, 3))


def test_laws():
    check_curriculum(Tasks(("push=0.1", "push=0.4")), Walk().spec)


def test_returns_of_tasks():
    state = TASKS.init(SPEC, seed_key(0))

    def report(state, done, level):
        returns = jnp.array([[1.0, 2.0], [3.0, 4.0]])
        stats = EpisodeStats(jnp.array(done), returns, jnp.ones((2, 2), "int32"), (), level=jnp.array(level, "int32"))
        state, report = TASKS.update(state, ROLLOUT, None, stats, seed_key(0))
        return state, [float(report.metrics[f"return_of_task_{i}"]) for i in range(2)]

    state, returns = report(state, [[True, True], [False, True]], [[0, 1], [0, 0]])
    assert returns == [2.5, 2.0]
    state, returns = report(state, [[False, False], [True, False]], [[0, 1], [1, 0]])
    assert returns == [2.5, 3.0]  # no episode of the first task has ended since


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ((), "needs tasks: --set curriculum.tasks="),
        (("pole.length",), "cannot read the task 'pole.length'"),
        (("pole.length=long",), "cannot read the task 'pole.length=long'"),
        (("lenght=1",), "no parameter 'lenght'"),
        (("size=1.5",), "'size' of pole is an integer: it cannot be 1.5"),
        (("pole.length=inf",), "it cannot be inf"),
    ],
)
def test_mistakes_are_named(tasks, message):
    with pytest.raises(UserError, match=message):
        Tasks(tasks).init(SPEC, seed_key(0))


@pytest.mark.slow
def test_tasks_and_a_buffer_for_each_are_settings_of_a_run(tmp_path):
    run = thespis.train(
        "sac",
        "Pendulum-v1",
        steps=2_000,
        envs=2,
        curriculum="tasks",
        settings=[
            "curriculum.tasks=g=8,g=12&m=0.8",
            "feed=TaskReplay",
            "feed.num_tasks=2",
            "hidden_sizes=8",
            "batch_size=8",
            "learning_starts=20",
        ],
        episodes=2,
        out=tmp_path / "run",
    )
    metrics = run.metrics()
    assert all(-2000 < metrics[f"curriculum_return_of_task_{i}"][-1] < 0 for i in range(2)), list(metrics)
