"""Learners side by side on one shared state: what is shared, what is summed, and what one worker alone does."""

from __future__ import annotations

import threading

import jax.numpy as jnp
import numpy as np
import pytest
from cases import CASES
from worlds import AsHost

import thespis
from thespis.core.errors import UserError
from thespis.core.laws import as_numpy, close
from thespis.curricula.fixed import Fixed
from thespis.feedback.environment import EnvironmentReward
from thespis.loops.asynchronous import AsynchronousLoop, InOneProgram, numbers_of, with_numbers
from thespis.loops.compiled import CompiledLoop
from thespis.loops.host import HostLoop
from thespis.loops.pace import FixedLag
from thespis.loops.parts import Learner, Parts
from thespis.runs import checkpoint

SEEDS, ENVS, STEPS = [0, 3], 2, 1000


def inner(name, kind, number=0):
    parts = Parts(CASES[name].method, EnvironmentReward(), Fixed())
    if kind == "compiled":
        return CompiledLoop(parts, CASES[name].world, ENVS, SEEDS, STEPS)
    worlds = AsHost(CASES[name].world, ENVS, [seed + 10 * number for seed in SEEDS])
    return HostLoop(parts, worlds, ENVS, SEEDS, STEPS, FixedLag(0))


def several(name, kind, count):
    if kind == "compiled":
        return AsynchronousLoop([inner(name, kind)] * count)
    return AsynchronousLoop([inner(name, kind, number) for number in range(count)])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["compiled", "host"])
@pytest.mark.parametrize("name", ["a2c", "ppo with memory", "dqn"])
def test_one_worker_does_what_its_loop_does(name, kind):
    straight, shared = inner(name, kind), several(name, kind, 1)
    end, other = straight.advance(straight.init(), 8), shared.advance(shared.init(), 8)
    close(straight.learner(end).method, shared.learner(other).method, "one worker", 1e-4)
    assert shared.steps(other) == straight.steps(end)


@pytest.mark.parametrize("kind", ["compiled", pytest.param("host", marks=pytest.mark.slow)])
def test_all_workers_see_worlds_of_their_own_and_count_together(kind):
    loop = several("a2c", kind, 3)
    carry = loop.init()
    views = [as_numpy(worker.world.view.observation) for worker in carry.workers]
    assert len({view.tobytes() for view in views}) == 3
    carry = loop.advance(carry, 31)
    assert loop.steps(carry) == 31 * loop.block_steps
    carry, tally = loop.take_tally(carry)
    assert tally.updates.tolist() == [31, 31] and (tally.episodes > 5).all()
    assert (loop.take_tally(carry)[1].updates == 0).all()


def test_the_shared_state_moves_by_the_sum_of_what_all_have_learnt(monkeypatch):
    """Two workers that both copy before either adds: the end is the start plus both changes."""
    loop = several("a2c", "compiled", 2)
    carry, meeting = loop.init(), threading.Barrier(2)
    start, changes = {key: vector.copy() for key, vector in carry.shared.items()}, []
    block = InOneProgram.block

    def together(worker, shared):
        meeting.wait(60)
        after = block(worker, shared)
        changes.append({key: np.asarray(after[key]) - shared[key] for key in shared})
        meeting.wait(60)
        return after

    monkeypatch.setattr(InOneProgram, "block", together)
    end = loop.advance(carry, 2).shared
    for key in start:
        assert any(np.abs(change[key]).max() > 0 for change in changes) or key != "float32"
        np.testing.assert_allclose(end[key] - start[key], changes[0][key] + changes[1][key], atol=1e-6)


def test_what_is_no_number_stays_and_all_else_comes_back_as_it_was():
    method = {
        "a": jnp.arange(6.0).reshape(2, 3),
        "b": jnp.arange(2),
        "c": (jnp.ones((2, 1, 4)), jnp.array([True, False])),
    }
    learner = Learner(method, (), jnp.zeros(2, "uint8"), jnp.ones(3))
    numbers = numbers_of(learner)
    assert {key: len(vector) for key, vector in numbers.items()} == {"float32": 14, "int32": 2, "uint8": 2}
    close(with_numbers(learner, numbers), learner, "all comes back", 0.0)
    other = with_numbers(learner, {key: vector + 1 for key, vector in numbers.items()})
    np.testing.assert_array_equal(other.method["a"], method["a"] + 1)
    np.testing.assert_array_equal(other.method["c"][1], method["c"][1])
    np.testing.assert_array_equal(other.store, learner.store)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ppo", "sac"])
def test_a_checkpoint_holds_the_shared_state_and_every_worker(name, tmp_path):
    loop = several(name, "compiled", 2)
    carry = loop.advance(loop.init(), 9)
    learner, tally = as_numpy(loop.learner(carry).method), as_numpy([worker.tally for worker in carry.workers])
    checkpoint.save(tmp_path / "a.ckpt", loop.snapshot(carry), {})
    restored, lost = loop.restore(checkpoint.load(tmp_path / "a.ckpt", loop.like())[0])
    assert lost == []
    close(loop.learner(restored).method, learner, "the shared state", 0.0)
    close([worker.tally for worker in restored.workers], tally, "each worker", 0.0)
    assert loop.steps(loop.advance(restored, 3)) == 12 * loop.block_steps


def test_an_error_of_one_worker_ends_all(monkeypatch):
    loop = several("a2c", "compiled", 2)
    carry = loop.init()
    monkeypatch.setattr(InOneProgram, "block", lambda worker, shared: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        loop.advance(carry, 1000)


@pytest.mark.slow
def test_as_a_run_that_resumes(tmp_path):
    def stop(event):
        return event.kind == "metrics" and event.step >= 4000

    method = thespis.A2C(hidden=(16,))
    run = thespis.train(
        method, "CartPole-v1", steps=8_000, seeds=2, envs=4, learners=2, out=tmp_path / "run", callbacks=[stop]
    )
    assert 4000 <= run.metrics()["step"][-1] < 8000
    run = thespis.resume(tmp_path / "run")
    assert run.metrics()["step"][-1] == 8000 and run.final["greedy"]["iqm"] > 8
    for options, said in {("envs", 3): "cannot be shared out", ("loop", "host"): "goes without --lag"}.items():
        with pytest.raises(UserError, match=said):
            thespis.train(method, "CartPole-v1", steps=100, learners=2, lag=1, **{"envs": 4, options[0]: options[1]})
