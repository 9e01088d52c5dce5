"""Environments in Ray workers: results do not depend on timing, and no step is lost or counted twice."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import sys
from typing import Any

import jax
import numpy as np
import pytest

from thespis.core.errors import UserError
from thespis.core.laws.assertions import assert_same_bits, to_numpy
from thespis.curricula.domain_randomization import DomainRandomization
from thespis.curricula.fixed import FixedCurriculum
from thespis.data.feeds import Replay
from thespis.envs import registry
from thespis.feedback.environment import EnvironmentReward
from thespis.methods.online.dqn import DQN
from thespis.runs import checkpoint
from thespis.runtime.ray_cluster import connect
from thespis.training.components import Components
from thespis.training.host_loop import HostLoop
from thespis.training.policy_lag import FixedLag
from thespis.training.ray_env import EnvShards, RayVectorEnv, WorkerConfig, WorkerRows

SEEDS, ENVS, TICKS, BLOCKS, LOST = [0, 3], 4, 8, 10, 6
ENV = "gymnasium:CartPole-v1"  # its state can be saved, and an episode has about ten steps
FEED = Replay(
    buffer_size=100_000, batch_size=8, learning_starts=64, update_interval=TICKS, num_updates=2, num_envs=ENVS
)
PARTS = Components(DQN(hidden_sizes=(8,), epsilon_decay_updates=5.0, feed=FEED), EnvironmentReward(), FixedCurriculum())


def make_loop(envs: Any, jitter: float = 0.0) -> HostLoop:
    return HostLoop(PARTS, envs, ENVS, SEEDS, 10_000, FixedLag(1), jitter)


@contextlib.contextmanager
def workers(count: int):
    config = WorkerConfig(PARTS, ENV, 1, len(SEEDS), ENVS // count, TICKS)
    vector_env = RayVectorEnv(config, count)
    yield vector_env
    vector_env.close()


def numpy_state(loop: HostLoop, carry: Any) -> Any:
    return to_numpy((loop.learner_state(carry), carry.metric_sums, carry.policies, carry.env_state))


@pytest.fixture(scope="module")
def ray():
    """One Ray connection for all tests of this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))  # workers import test_host_curricula
        connection = connect(None, 4)
    yield
    connection.disconnect()


@pytest.fixture(scope="module")
def two_workers(ray):
    with workers(2) as vector_env:
        yield vector_env


@pytest.fixture(scope="module")
def loop(two_workers):
    """One loop, compiled once and restarted by every test."""
    return make_loop(two_workers)


@pytest.fixture(scope="module")
def uninterrupted(loop):
    return numpy_state(loop, loop.advance(loop.init(), BLOCKS))


@pytest.mark.slow
def test_results_do_not_depend_on_timing(two_workers, uninterrupted):
    loop = make_loop(two_workers, jitter=0.02)
    assert_same_bits(uninterrupted, numpy_state(loop, loop.advance(loop.init(), BLOCKS)), "timing changes nothing")
    assert loop.pop_warnings() == []


@pytest.mark.long
def test_one_worker_equals_no_worker(uninterrupted):
    local_loop = make_loop(registry.make_host(ENV, len(SEEDS) * ENVS))
    expected = numpy_state(local_loop, local_loop.advance(local_loop.init(), BLOCKS))
    with workers(1) as vector_env:
        loop = make_loop(vector_env)
        assert_same_bits(expected, numpy_state(loop, loop.advance(loop.init(), BLOCKS)), "one worker and none")
    with pytest.raises(Exception, match="differs"):
        assert_same_bits(expected, uninterrupted, "two workers draw other actions")
    first = [end[0].store.steps.view.observation[:, 0] for end in (expected, uninterrupted)]
    np.testing.assert_array_equal(*first)  # initial states do not depend on the number of workers


@pytest.mark.long
def test_resumed_equals_uninterrupted(loop, uninterrupted, tmp_path):
    carry = loop.advance(loop.init(), 4)
    checkpoint.save(tmp_path / "a.ckpt", loop.snapshot(carry), {})
    snapshot = checkpoint.load(tmp_path / "a.ckpt", loop.checkpoint_template())[0]
    carry, lost = loop.restore(snapshot)
    assert lost == []
    assert_same_bits(uninterrupted, numpy_state(loop, loop.advance(carry, BLOCKS - 4)), "workers resume")


def run_with_lost_worker(loop: HostLoop, vector_env: RayVectorEnv) -> Any:
    """Final carry of a loop whose second worker is killed after ``LOST`` blocks."""
    carry = loop.advance(loop.init(), LOST)
    kill(vector_env, 1)
    assert {name[:2] for name in loop.snapshot(carry)["worlds"]} == {"0/"}  # lost environments are not saved
    return loop.advance(carry, BLOCKS - LOST)


@pytest.mark.slow
def test_killed_worker_is_replaced_and_every_step_counts_once(loop, two_workers, uninterrupted):
    carry = run_with_lost_worker(loop, two_workers)
    assert loop.pop_warnings() == ["worker 1 was lost and is replaced: its 4 environments begin new episodes"]
    assert loop.num_steps(carry) == BLOCKS * TICKS * ENVS
    learner, metric_sums, _, env_state = numpy_state(loop, carry)
    steps, others, lost = learner.store.steps, uninterrupted[0].store.steps, LOST * TICKS
    assert_same_bits(*(jax.tree.map(lambda x: x[:, :lost], s) for s in (steps, others)), "rows before the loss")
    block = np.s_[:, lost : lost + TICKS, : ENVS // 2]
    assert_same_bits(*(jax.tree.map(lambda x: x[block], s) for s in (steps, others)), "rows of the other worker")
    check_rows(steps, BLOCKS * TICKS, lost)
    abandoned = BLOCKS * TICKS * ENVS - metric_sums.length_sum - env_state.lengths.reshape(len(SEEDS), ENVS).sum(1)
    np.testing.assert_array_equal(abandoned, open_lengths(steps, lost)[:, ENVS // 2 :].sum(1))


@pytest.mark.slow
def test_replacement_episodes_depend_on_the_block_alone(loop, two_workers):
    assert_same_bits(
        *(numpy_state(loop, run_with_lost_worker(loop, two_workers)) for _ in range(2)),
        "killed twice at the same block",
    )


def check_rows(steps: Any, written: int, lost: int) -> None:
    """Each row continues the previous one, except where an episode ended or was abandoned."""
    obs, next_obs = steps.view.observation[:, :written], steps.next_view.observation[:, :written]
    ended = (steps.terminated | steps.truncated)[:, :written]
    restarted = ended[:, :-1].copy()
    restarted[:, lost - 1, ENVS // 2 :] = True
    np.testing.assert_array_equal(steps.is_first[:, 1:written], restarted)
    np.testing.assert_array_equal(obs[:, 1:][~restarted], next_obs[:, :-1][~restarted])
    assert not (obs[:, 1:][restarted] == next_obs[:, :-1][restarted]).all(-1).any()


def open_lengths(steps: Any, tick: int) -> np.ndarray:
    """Lengths of the unfinished episodes before ``tick``, ``[seed, env]``."""
    ended = (steps.terminated | steps.truncated)[:, :tick]
    back = ended[:, ::-1].argmax(1)
    return np.where(ended.any(1), back, tick)


def kill(vector_env: RayVectorEnv, i: int) -> None:
    import ray

    process = ray.get(vector_env._workers[i].__ray_call__.remote(lambda worker: os.getpid()))
    os.kill(process, signal.SIGKILL)


@pytest.mark.slow
def test_repeated_loss_of_a_worker_ends_the_run(two_workers):
    import ray

    def deadly(i: int) -> Any:
        return two_workers._workers[i].__ray_call__.remote(lambda worker: os.kill(os.getpid(), signal.SIGKILL))

    with pytest.raises(UserError, match="worker 0 was lost 3 times in a row"):
        two_workers._await_answer(0, deadly(0), deadly)
    two_workers._replace_worker(0)
    assert ray.get(two_workers._workers[0].get_state.remote())


@pytest.mark.long
def test_worker_errors_are_one_line(ray, monkeypatch):
    for env, message in (
        ((lambda file: lambda: file)(sys.stderr), "cannot be sent to workers; give its name"),
        ("gymnasium:Nope-v0", "worker 0: unknown environment 'gymnasium:Nope-v0'"),
    ):
        with pytest.raises(UserError, match=message) as raised:
            RayVectorEnv(WorkerConfig(PARTS, env, 1, 1, 1, TICKS), 1)
        assert "\n" not in str(raised.value)
    with pytest.raises(UserError, match="the cluster has 4 CPUs and 5 workers need one each: --workers 4"):
        connect(None, 5)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r'ray is not installed; install it with: pip install "thespis-rl\[cluster\]"'):
        connect(None, 1)


def test_worker_rows_are_joined_in_order():
    """Of 2 seeds with 6 environments each: splitting for 3 workers and joining is the identity."""
    shards, rows = EnvShards(2, 2), np.arange(5 * 12 * 3).reshape(5, 12, 3)
    parts = [[rows.reshape(5, 2, 6, 3)[:, :, 2 * i : 2 * i + 2].reshape(5, 4, 3)] for i in range(3)]
    np.testing.assert_array_equal(WorkerRows(parts, 2).stack()[0], rows)
    assert shards.num_envs == 4 and shards.memory_shard(np.arange(12).reshape(2, 6), 1).tolist() == [[2, 3], [8, 9]]


# -- curricula ----------------------------------------------------------------------------------------------

PUSHED = "test_host_curricula:Pushed"  # three steps an episode, so that draws do not depend on actions
DRAWS = Components(
    DQN(hidden_sizes=(8,), feed=dataclasses.replace(FEED, update_interval=4)),
    EnvironmentReward(),
    DomainRandomization((("push", 2.0, 4.0), ("size", 1.0, 8.0))),
)


def drawing_loop(environment: Any) -> HostLoop:
    return HostLoop(DRAWS, environment, ENVS, SEEDS, 10_000, FixedLag(0), draws=True)


def drawing_workers(count: int) -> RayVectorEnv:
    return RayVectorEnv(WorkerConfig(DRAWS, PUSHED, 1, len(SEEDS), ENVS // count, 4, draws=True), count)


@pytest.fixture(scope="module")
def drawn_in_process():
    """The end of a run in this process, and its loop."""
    loop = drawing_loop(registry.make_host(PUSHED, len(SEEDS) * ENVS))
    return numpy_state(loop, loop.advance(loop.init(), BLOCKS))


@pytest.mark.slow
def test_two_workers_play_the_episodes_that_the_curriculum_draws_in_one_process(ray, drawn_in_process, tmp_path):
    """The same parameters and observations; only actions are sampled with other keys. Resumed runs end the same."""
    with contextlib.closing(drawing_workers(2)) as vector_env:
        loop = drawing_loop(vector_env)
        half = loop.advance(loop.init(), 4)
        checkpoint.save(tmp_path / "a.ckpt", loop.snapshot(half), {})
        end = numpy_state(loop, loop.advance(half, BLOCKS - 4))
        expected = drawn_in_process
        assert_same_bits(end[3].draw, expected[3].draw, "draws")
        assert len(np.unique(end[3].draw.params["push"])) == len(SEEDS) * ENVS
        steps, others = (state[0].store.steps for state in (end, expected))
        assert_same_bits(steps.view, others.view, "observations, which are the parameters")
        assert_same_bits(steps.reward, others.reward, "rewards, which are the parameters")
        carry, lost = loop.restore(checkpoint.load(tmp_path / "a.ckpt", loop.checkpoint_template())[0])
        assert lost == []
        assert_same_bits(end, numpy_state(loop, loop.advance(carry, BLOCKS - 4)), "resumed")


@pytest.mark.slow
def test_one_worker_with_a_curriculum_equals_no_worker(ray, drawn_in_process):
    with contextlib.closing(drawing_workers(1)) as vector_env:
        loop = drawing_loop(vector_env)
        assert_same_bits(drawn_in_process, numpy_state(loop, loop.advance(loop.init(), BLOCKS)), "one worker and none")


@pytest.mark.slow
def test_a_replaced_worker_gets_fresh_draws(ray):
    with contextlib.closing(drawing_workers(2)) as vector_env:
        loop = drawing_loop(vector_env)
        carry = loop.advance(loop.init(), LOST)
        kill(vector_env, 1)
        carry = loop.advance(carry, BLOCKS - LOST)
        assert loop.pop_warnings() == ["worker 1 was lost and is replaced: its 4 environments begin new episodes"]
        push = np.asarray(carry.env_state.draw.params["push"])
        np.testing.assert_array_equal(np.asarray(carry.env_state.view.observation)[:, 0], push)
        assert ((push >= 2) & (push <= 4)).all()


@pytest.mark.long
def test_workers_without_parameters_refuse_a_curriculum(ray):
    with pytest.raises(UserError, match="worker 0: the episodes of gymnasium:CartPole-v1 have no parameters") as error:
        RayVectorEnv(WorkerConfig(DRAWS, ENV, 1, 1, 1, 4, draws=True), 1)
    assert "\n" not in str(error.value)
