"""Learners side by side on one shared state: what is shared, what is summed, and what one worker alone does."""

from __future__ import annotations

import jax
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
from thespis.loops.asynchronous import AsynchronousLoop, _packed, _unpacked
from thespis.loops.compiled import CompiledLoop
from thespis.loops.host import HostLoop
from thespis.loops.pace import FixedLag
from thespis.loops.parts import Parts
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


@pytest.mark.parametrize("kind", ["compiled", "host"])
@pytest.mark.parametrize("name", ["a2c", "ppo with memory", "dqn"])
def test_one_worker_does_what_its_loop_does(name, kind):
    straight, shared = inner(name, kind), several(name, kind, 1)
    end, other = straight.advance(straight.init(), 8), shared.advance(shared.init(), 8)
    close(straight.learner(end).method, shared.learner(other).method, "one worker", 1e-4)
    assert shared.steps(other) == straight.steps(end)


@pytest.mark.parametrize("kind", ["compiled", "host"])
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


def test_the_shared_state_moves_by_the_sum_of_what_all_have_learnt():
    """Two workers that copy before either adds: the end is the start plus both changes."""
    loop = several("a2c", "compiled", 2)
    carry = loop.init()
    start = {key: vector.copy() for key, vector in carry.shared.items()}
    one, two = ({key: vector.copy() for key, vector in start.items()} for _ in range(2))
    workers = jax.tree.map(jnp.copy, carry.workers)
    for worker, alone in zip(workers, (one, two), strict=True):
        loop._block(loop.workers[0], worker, alone)

    class Late(dict):
        """Shared numbers that are still the old ones when they are copied."""

        def items(self):
            return start.items()

    late = Late(carry.shared)
    for worker in carry.workers:
        loop._block(loop.workers[0], worker, late)
    for key in start:
        np.testing.assert_allclose(late[key] - start[key], one[key] + two[key] - 2 * start[key], atol=1e-6)


def test_packing_keeps_every_leaf():
    tree = {"a": jnp.arange(6.0).reshape(2, 3), "b": jnp.arange(2), "c": (jnp.ones((2, 1, 4)), jnp.zeros(2, "uint8"))}
    packed = _packed(tree)
    assert sorted(packed) == ["float32", "int32", "uint8"]
    assert jax.tree.all(
        jax.tree.map(lambda a, b: bool((a == b).all()) and a.dtype == b.dtype, _unpacked(packed, tree), tree)
    )


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
    monkeypatch.setattr(loop, "_pack", lambda tree: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        loop.advance(carry, 1000)


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
