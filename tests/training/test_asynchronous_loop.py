"""Asynchronous loop: shared parameters, summed updates, checkpoints and errors, against single learners."""

from __future__ import annotations

import dataclasses
import threading

import jax.numpy as jnp
import numpy as np
import pytest
from method_cases import CASES
from small_envs import HostEnvAdapter

import thespis
from thespis.core.errors import UserError
from thespis.core.laws.assertions import assert_close, to_numpy
from thespis.curricula.fixed import FixedCurriculum
from thespis.feedback.environment import EnvironmentReward
from thespis.runs import checkpoint
from thespis.training.async_loop import AsyncLoop, CompiledWorker, flatten_params, with_params
from thespis.training.compiled_loop import CompiledLoop
from thespis.training.components import Components, LearnerState
from thespis.training.host_loop import HostLoop
from thespis.training.policy_lag import FixedLag

SEEDS, ENVS, STEPS = [0, 3], 2, 1000


def make_worker_loop(name, kind, index=0):
    method = CASES[name].method
    method = dataclasses.replace(method, feed=method.feed.for_run(ENVS))
    parts = Components(method, EnvironmentReward(), FixedCurriculum())
    if kind == "compiled":
        return CompiledLoop(parts, CASES[name].env, ENVS, SEEDS, STEPS)
    vector_env = HostEnvAdapter(CASES[name].env, ENVS, [seed + 10 * index for seed in SEEDS])
    return HostLoop(parts, vector_env, ENVS, SEEDS, STEPS, FixedLag(0))


def make_async_loop(name, kind, count):
    if kind == "compiled":
        return AsyncLoop([make_worker_loop(name, kind)] * count)
    return AsyncLoop([make_worker_loop(name, kind, index) for index in range(count)])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["compiled", "host"])
@pytest.mark.parametrize("name", ["a2c", "ppo with memory", "dqn"])
def test_one_worker_equals_its_loop(name, kind):
    plain, shared = make_worker_loop(name, kind), make_async_loop(name, kind, 1)
    end, other = plain.advance(plain.init(), 8), shared.advance(shared.init(), 8)
    assert_close(plain.learner_state(end).method, shared.learner_state(other).method, "one worker", 1e-4)
    assert shared.num_steps(other) == plain.num_steps(end)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["compiled", pytest.param("host", marks=pytest.mark.slow)])
def test_workers_have_their_own_environments_and_share_counters(kind):
    loop = make_async_loop("a2c", kind, 3)
    carry = loop.init()
    views = [to_numpy(worker.env_state.view.observation) for worker in carry.workers]
    assert len({view.tobytes() for view in views}) == 3
    carry = loop.advance(carry, 31)
    assert loop.num_steps(carry) == 31 * loop.steps_per_block
    carry, metric_sums = loop.pop_metric_sums(carry)
    assert metric_sums.num_updates.tolist() == [31, 31] and (metric_sums.num_episodes > 5).all()
    assert (loop.pop_metric_sums(carry)[1].num_updates == 0).all()


def test_shared_parameters_change_by_the_sum_of_all_updates(monkeypatch):
    """Two workers copy the parameters before either adds its update: the result is the start plus both changes."""
    loop = make_async_loop("a2c", "compiled", 2)
    carry, barrier = loop.init(), threading.Barrier(2)
    start, changes = {key: vector.copy() for key, vector in carry.shared_params.items()}, []
    block = CompiledWorker.run_block

    def run_synchronized(worker, shared):
        barrier.wait(60)
        after = block(worker, shared)
        changes.append({key: np.asarray(after[key]) - shared[key] for key in shared})
        barrier.wait(60)
        return after

    monkeypatch.setattr(CompiledWorker, "run_block", run_synchronized)
    end = loop.advance(carry, 2).shared_params
    for key in start:
        assert any(np.abs(change[key]).max() > 0 for change in changes) or key != "float32"
        np.testing.assert_allclose(end[key] - start[key], changes[0][key] + changes[1][key], atol=1e-6)


def test_flatten_params_round_trip():
    method = {
        "a": jnp.arange(6.0).reshape(2, 3),
        "b": jnp.arange(2),
        "c": (jnp.ones((2, 1, 4)), jnp.array([True, False])),
    }
    learner = LearnerState(method, (), jnp.zeros(2, "uint8"), jnp.ones(3))
    numbers = flatten_params(learner)
    assert {key: len(vector) for key, vector in numbers.items()} == {"float32": 14, "int32": 2, "uint8": 2}
    assert_close(with_params(learner, numbers), learner, "round trip", 0.0)
    other = with_params(learner, {key: vector + 1 for key, vector in numbers.items()})
    np.testing.assert_array_equal(other.method["a"], method["a"] + 1)
    np.testing.assert_array_equal(other.method["c"][1], method["c"][1])
    np.testing.assert_array_equal(other.store, learner.store)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ppo", "sac"])
def test_checkpoint_contains_shared_state_and_workers(name, tmp_path):
    loop = make_async_loop(name, "compiled", 2)
    carry = loop.advance(loop.init(), 9)
    learner, sums = (
        to_numpy(loop.learner_state(carry).method),
        to_numpy([worker.metric_sums for worker in carry.workers]),
    )
    checkpoint.save(tmp_path / "a.ckpt", loop.snapshot(carry), {})
    restored, lost = loop.restore(checkpoint.load(tmp_path / "a.ckpt", loop.checkpoint_template())[0])
    assert lost == []
    assert_close(loop.learner_state(restored).method, learner, "the shared state", 0.0)
    assert_close([worker.metric_sums for worker in restored.workers], sums, "each worker", 0.0)
    assert loop.num_steps(loop.advance(restored, 3)) == 12 * loop.steps_per_block


def test_an_error_in_one_worker_stops_the_loop(monkeypatch):
    loop = make_async_loop("a2c", "compiled", 2)
    carry = loop.init()
    monkeypatch.setattr(CompiledWorker, "run_block", lambda worker, shared: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        loop.advance(carry, 1000)


@pytest.mark.slow
def test_asynchronous_run_resumes(tmp_path):
    def stop(event):
        return event.kind == "metrics" and event.step >= 4000

    method = thespis.A2C(hidden_sizes=(16,))
    run = thespis.train(
        method, "CartPole-v1", steps=8_000, seeds=2, envs=4, learners=2, out=tmp_path / "run", callbacks=[stop]
    )
    assert 4000 <= run.metrics()["step"][-1] < 8000
    run = thespis.resume(tmp_path / "run")
    assert run.metrics()["step"][-1] == 8000 and run.final_scores["greedy"]["iqm"] > 8
    for options, message in {
        ("envs", 3): "cannot be shared out",
        ("loop", "host"): "goes without --policy-lag",
    }.items():
        with pytest.raises(UserError, match=message):
            thespis.train(
                method, "CartPole-v1", steps=100, learners=2, policy_lag=1, **{"envs": 4, options[0]: options[1]}
            )
