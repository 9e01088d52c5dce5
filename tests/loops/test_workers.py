"""Worlds shared out to Ray's workers: the same bits whatever the timing, and no step lost or counted twice."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import Any

import jax
import numpy as np
import pytest

from thespis.core.errors import UserError
from thespis.core.feeds import Replay
from thespis.core.laws import as_numpy, same_bits
from thespis.curricula.fixed import Fixed
from thespis.envs import registry
from thespis.feedback.environment import EnvironmentReward
from thespis.loops.cluster import connect
from thespis.loops.host import HostLoop
from thespis.loops.pace import FixedLag
from thespis.loops.parts import Parts
from thespis.loops.shares import Shares, Split
from thespis.loops.worker import Recipe
from thespis.loops.workers import Workers
from thespis.methods.online.dqn import DQN
from thespis.runs import checkpoint

SEEDS, ENVS, TICKS, BLOCKS, LOST = [0, 3], 4, 8, 10, 6
ENV = "gymnasium:CartPole-v1"  # its state can be saved, and an episode lasts some ten steps
FEED = Replay(capacity=100_000, batch=8, warmup=64, every=TICKS, updates=2, envs=ENVS)
PARTS = Parts(DQN(hidden=(8,), epsilon_updates=5.0, feed=FEED), EnvironmentReward(), Fixed())


def loop_over(worlds: Any, jitter: float = 0.0) -> HostLoop:
    return HostLoop(PARTS, worlds, ENVS, SEEDS, 10_000, FixedLag(1), jitter)


@contextlib.contextmanager
def workers(count: int):
    recipe = Recipe(PARTS, ENV, 1, len(SEEDS), ENVS // count, TICKS)
    opened = Workers(recipe, count)
    yield opened
    opened.close()


def told(loop: HostLoop, carry: Any) -> Any:
    return as_numpy((loop.learner(carry), carry.tally, carry.policies, carry.world))


@pytest.fixture(scope="module", autouse=True)
def ray():
    """One Ray for all tests of this file; workers find that this process is connected."""
    joined = connect(None, 3)
    yield
    joined.leave()


@pytest.fixture(scope="module")
def two(ray):
    with workers(2) as opened:
        yield opened


@pytest.fixture(scope="module")
def loop(two):
    """One loop, compiled once, that begins anew for every test."""
    return loop_over(two)


@pytest.fixture(scope="module")
def undisturbed(loop):
    return told(loop, loop.advance(loop.init(), BLOCKS))


@pytest.mark.slow
def test_one_seed_gives_one_result_however_slow_anybody_is(two, undisturbed):
    loop = loop_over(two, jitter=0.02)
    same_bits(undisturbed, told(loop, loop.advance(loop.init(), BLOCKS)), "timing changes nothing")
    assert loop.news() == []


def test_one_worker_does_what_this_process_does_alone(undisturbed):
    alone = loop_over(registry.host(ENV, len(SEEDS) * ENVS))
    here = told(alone, alone.advance(alone.init(), BLOCKS))
    with workers(1) as opened:
        loop = loop_over(opened)
        same_bits(here, told(loop, loop.advance(loop.init(), BLOCKS)), "one worker and none")
    with pytest.raises(Exception, match="differs"):
        same_bits(here, undisturbed, "two workers draw other actions")
    first = [end[0].store.steps.view.observation[:, 0] for end in (here, undisturbed)]
    np.testing.assert_array_equal(*first)  # worlds begin alike, however they are shared out


def test_resumed_equals_uninterrupted(loop, undisturbed, tmp_path):
    carry = loop.advance(loop.init(), 4)
    checkpoint.save(tmp_path / "a.ckpt", loop.snapshot(carry), {})
    snapshot = checkpoint.load(tmp_path / "a.ckpt", loop.like())[0]
    carry, lost = loop.restore(snapshot)
    assert lost == []
    same_bits(undisturbed, told(loop, loop.advance(carry, BLOCKS - 4)), "workers resume")


def disturbed(loop: HostLoop, opened: Workers) -> Any:
    """The carry at the end of a loop whose second worker was killed after ``LOST`` blocks."""
    carry = loop.advance(loop.init(), LOST)
    kill(opened, 1)
    assert {name[:2] for name in loop.snapshot(carry)["worlds"]} == {"0/"}  # what is lost is not saved
    return loop.advance(carry, BLOCKS - LOST)


def test_a_killed_worker_is_replaced_and_every_step_counts_once(loop, two, undisturbed):
    carry = disturbed(loop, two)
    assert loop.news() == ["worker 1 was lost and is replaced: its 4 environments begin new episodes"]
    assert loop.steps(carry) == BLOCKS * TICKS * ENVS
    learner, tally, _, world = told(loop, carry)
    steps, others, lost = learner.store.steps, undisturbed[0].store.steps, LOST * TICKS
    same_bits(*(jax.tree.map(lambda x: x[:, :lost], s) for s in (steps, others)), "nothing changed before")
    block = np.s_[:, lost : lost + TICKS, : ENVS // 2]
    same_bits(*(jax.tree.map(lambda x: x[block], s) for s in (steps, others)), "nor in what was not lost")
    check_rows(steps, BLOCKS * TICKS, lost)
    abandoned = BLOCKS * TICKS * ENVS - tally.lengths - world.lengths.reshape(len(SEEDS), ENVS).sum(1)
    np.testing.assert_array_equal(abandoned, open_lengths(steps, lost)[:, ENVS // 2 :].sum(1))


@pytest.mark.slow
def test_what_is_begun_anew_depends_on_the_block_alone(loop, two):
    same_bits(*(told(loop, disturbed(loop, two)) for _ in range(2)), "killed twice at the same block")


def check_rows(steps: Any, written: int, lost: int) -> None:
    """Every row follows from the one before it, but for where an episode ended or was abandoned."""
    view, following = steps.view.observation[:, :written], steps.next_view.observation[:, :written]
    ended = (steps.terminated | steps.truncated)[:, :written]
    anew = ended[:, :-1].copy()
    anew[:, lost - 1, ENVS // 2 :] = True
    np.testing.assert_array_equal(steps.first[:, 1:written], anew)
    np.testing.assert_array_equal(view[:, 1:][~anew], following[:, :-1][~anew])
    assert not (view[:, 1:][anew] == following[:, :-1][anew]).all(-1).any()


def open_lengths(steps: Any, tick: int) -> np.ndarray:
    """Steps that the episodes going on before ``tick`` have had, ``[seed, env]``."""
    ended = (steps.terminated | steps.truncated)[:, :tick]
    back = ended[:, ::-1].argmax(1)
    return np.where(ended.any(1), back, tick)


def kill(opened: Workers, i: int) -> None:
    import ray

    process = ray.get(opened._workers[i].__ray_call__.remote(lambda worker: os.getpid()))
    os.kill(process, signal.SIGKILL)


@pytest.mark.slow
def test_a_worker_that_is_lost_again_and_again_ends_the_run(two):
    import ray

    def deadly(i: int) -> Any:
        return two._workers[i].__ray_call__.remote(lambda worker: os.kill(os.getpid(), signal.SIGKILL))

    with pytest.raises(UserError, match="worker 0 was lost 3 times in a row"):
        two._answer(0, deadly(0), deadly)
    two._replace(0)
    assert ray.get(two._workers[0].save.remote())


def test_what_cannot_be_sent_or_made_is_one_line(monkeypatch):
    for env, said in (
        ((lambda file: lambda: file)(sys.stderr), "cannot be sent to workers; give its name"),
        ("gymnasium:Nope-v0", "worker 0: unknown environment 'gymnasium:Nope-v0'"),
    ):
        with pytest.raises(UserError, match=said) as raised:
            Workers(Recipe(PARTS, env, 1, 1, 1, TICKS), 1)
        assert "\n" not in str(raised.value)
    with pytest.raises(UserError, match="the cluster has 3 CPUs and 4 workers need one each: --workers 3"):
        connect(None, 4)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r'ray is not installed; install it with: pip install "thespis-rl\[cluster\]"'):
        connect(None, 1)


def test_shares_are_put_together_as_they_were_cut():
    """Of 2 seeds with 6 environments each: cut for 3 workers and joined, nothing has moved."""
    split, rows = Split(2, 2), np.arange(5 * 12 * 3).reshape(5, 12, 3)
    cut = [[rows.reshape(5, 2, 6, 3)[:, :, 2 * i : 2 * i + 2].reshape(5, 4, 3)] for i in range(3)]
    np.testing.assert_array_equal(Shares(cut, 2).stacked()[0], rows)
    assert split.size == 4 and split.memory(np.arange(12).reshape(2, 6), 1).tolist() == [[2, 3], [8, 9]]
