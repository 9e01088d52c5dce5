"""Training loops against each other, bit by bit: compiled with host, and resumed with uninterrupted."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import numpy as np
import pytest
from method_cases import CASES, FAST_IN_LOOPS, ONLINE, marked
from small_envs import HostEnvAdapter
from synthetic_batches import QUICK

from thespis.core.laws.assertions import assert_same_bits, to_numpy
from thespis.core.laws.random_samples import random_transitions
from thespis.curricula.fixed import FixedCurriculum
from thespis.data.feeds import Episodes, Rollouts
from thespis.feedback.environment import EnvironmentReward
from thespis.methods.online.a2c import A2C
from thespis.methods.registry import METHODS
from thespis.runs import checkpoint
from thespis.runtime import keys
from thespis.training.compiled_loop import CompiledLoop
from thespis.training.components import Components
from thespis.training.host_loop import HostLoop
from thespis.training.logged_loop import LoggedLoop
from thespis.training.policy_lag import FixedLag

SEEDS, ENVS, STEPS = [0, 3], 3, 1000
BEFORE, AFTER = 5, 4  # blocks before and after the checkpoint; the replay ring wraps around meanwhile


def components(name: str) -> Components:
    return Components(CASES[name].method, EnvironmentReward(), FixedCurriculum())


def group_size(name: str) -> int:
    """Number of environments with the same initial state, 0 for feeds without groups."""
    feed = CASES[name].method.feed
    return feed.group_size if isinstance(feed, Episodes) else 0


def num_envs(name: str) -> int:
    """Three environments, or the next number of them that makes complete groups."""
    return -(-ENVS // max(group_size(name), 1)) * max(group_size(name), 1)


def compiled_loop(name: str, seeds=SEEDS) -> CompiledLoop:
    return CompiledLoop(components(name), CASES[name].env, num_envs(name), seeds, STEPS)


def host_loop(name: str, lag=None) -> HostLoop:
    env = HostEnvAdapter(CASES[name].env, num_envs(name), SEEDS, group_size(name))
    return HostLoop(components(name), env, num_envs(name), SEEDS, STEPS, None if lag is None else FixedLag(lag))


class LoopResult(NamedTuple):
    """A loop after some blocks, a checkpoint of an earlier block, and the final learner and environment states."""

    loop: object
    middle: object
    end: tuple
    env: tuple


def run_loop(loop, path) -> LoopResult:
    carry = loop.advance(loop.init(), BEFORE)
    checkpoint.save(path, loop.snapshot(carry), {})
    snapshot = checkpoint.load(path, loop.snapshot(carry))[0]
    carry = loop.advance(carry, AFTER)
    env_state = carry.env_state
    return LoopResult(
        loop,
        snapshot,
        to_numpy((loop.learner_state(carry), carry.metric_sums)),
        to_numpy((env_state.view, env_state.returns, env_state.lengths)),
    )


@pytest.fixture(scope="module", params=marked(ONLINE, FAST_IN_LOOPS))
def name(request):
    """A case. Cases outside `make test` use keys with a short hash, which halves the compile time."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param not in FAST_IN_LOOPS:
            patch.setattr(keys, "THREEFRY", QUICK)
        yield request.param


@pytest.fixture(scope="module")
def compiled_result(name, tmp_path_factory) -> LoopResult:
    return run_loop(compiled_loop(name), tmp_path_factory.mktemp("compiled") / "a.ckpt")


@pytest.fixture(scope="module")
def host_result(name, tmp_path_factory) -> LoopResult:
    return run_loop(host_loop(name, lag=0), tmp_path_factory.mktemp("host") / "a.ckpt")


def test_every_method_has_a_case():
    """A cast is made of other methods, and has no name of its own for the command line."""
    assert {case.method.name for case in CASES.values()} == {*METHODS, "cast"}


def test_compiled_equals_host(compiled_result, host_result):
    """Parameters, optimisers, replay, metrics, episode counts and environments, bit by bit."""
    assert_same_bits(compiled_result.end, host_result.end, "compiled equals host")
    envs = jax.tree.map(lambda x, like: x.reshape(like.shape), compiled_result.env, host_result.env)
    assert_same_bits(envs, host_result.env, "compiled equals host in the environments")
    episodes, updates = host_result.end[1].num_episodes, host_result.end[1].num_updates
    assert episodes.min() > 3 and updates.min() > 2  # long enough for differences to show


def test_resumed_equals_uninterrupted(compiled_result, host_result):
    for result in (compiled_result, host_result):
        carry, lost = result.loop.restore(result.middle)
        assert lost == []
        carry = result.loop.advance(carry, AFTER)
        assert_same_bits(
            result.end, to_numpy((result.loop.learner_state(carry), carry.metric_sums)), f"{result.loop.kind} resumes"
        )


def test_learning_changes_something(compiled_result):
    """Training changes parameters: the equalities above are not trivial."""
    method = to_numpy(compiled_result.middle["carry"].learner.method)
    moved = jax.tree.map(
        lambda a, b: float(np.abs(a.astype(float) - b).max(initial=0)), method, compiled_result.end[0].method
    )
    assert max(jax.tree.leaves(moved)) > 1e-4


@pytest.mark.long
@pytest.mark.parametrize("name", ["ppo", pytest.param("sac", marks=pytest.mark.laws)])
def test_single_seed_equals_the_same_seed_in_a_batch(name):
    batch, single = compiled_loop(name), compiled_loop(name, SEEDS[1:])
    batch_carry = batch.advance(batch.init(), 4)
    single_carry = single.advance(single.init(), 4)
    in_batch = jax.tree.map(lambda x: x[1:], batch.learner_state(batch_carry))
    assert_same_bits(to_numpy(single.learner_state(single_carry)), to_numpy(in_batch), "a single seed")


@pytest.mark.long
def test_lag_delays_the_acting_policy_by_whole_blocks(monkeypatch):
    """With lag 2, block ``b`` uses the policy of two blocks earlier."""
    loop = host_loop("a2c", lag=2)
    carry, trained, acted = loop.init(), [], []
    for _ in range(5):
        trained.append(to_numpy(loop._policies(loop.components, loop.learner_state(carry).method, len(SEEDS))))
        acted.append(to_numpy(carry.policies[0]))
        carry = loop.advance(carry, 1)
    for b in range(2, 5):
        assert_same_bits(acted[b], trained[b - 2], f"block {b}")
    with pytest.raises(Exception, match="differs"):
        assert_same_bits(acted[4], trained[4], "no lag")


def test_chunk_size_does_not_matter():
    """One chunk of six blocks equals six chunks of one block, across the end of the warm-up."""
    loop = compiled_loop("sac with choices")
    assert 0 < loop.warmup_blocks < 6
    whole, pieces = loop.advance(loop.init(), 6), loop.init()
    for _ in range(6):
        pieces = loop.advance(pieces, 1)
    assert_same_bits(whole, pieces, "chunk size does not matter")


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        "bc",
        "sac",
        pytest.param("mbpo", marks=pytest.mark.laws),
        pytest.param("dpo", marks=pytest.mark.laws),
        pytest.param("rm with an ensemble", marks=pytest.mark.laws),
        pytest.param("spin", marks=pytest.mark.laws),
    ],
)
def test_logged_loop_resumes(name, tmp_path):
    case = CASES[name]
    steps = jax.tree.map(lambda x: x[:, 0], random_transitions(case.env.spec, np.random.default_rng(1), 40, 1))
    place = np.arange(40) % 3  # episodes of three steps, in groups of two
    steps = dataclasses.replace(steps, truncated=place == 2, terminated=np.zeros(40, bool), is_first=place == 0)
    loop = LoggedLoop(components(name), case.env.spec, steps, SEEDS, 2)
    carry = loop.advance(loop.init(), 3)
    checkpoint.save(tmp_path / "a.ckpt", loop.snapshot(carry), {})
    snapshot = checkpoint.load(tmp_path / "a.ckpt", loop.snapshot(carry))[0]
    end = to_numpy(loop.advance(carry, 3))
    assert_same_bits(end, to_numpy(loop.advance(loop.restore(snapshot)[0], 3)), "the logged loop resumes")
    assert int(end.num_updates) == 6 and end.metric_sums.num_updates.tolist() == [6, 6]


def test_replay_matches_the_environment():
    """Next observations belong to the same episode and the next step, also at episode ends."""
    loop = compiled_loop("ddpg")
    carry = loop.advance(loop.init(), 4)
    steps = to_numpy(loop.learner_state(carry).store.steps)
    obs, next_obs = steps.view.observation[:, :8], steps.next_view.observation[:, :8]  # the 8 ticks written
    ended = (steps.terminated | steps.truncated)[:, :8]
    np.testing.assert_array_equal(next_obs[..., 0], obs[..., 0])  # the episode's number
    np.testing.assert_array_equal(next_obs[..., 1], obs[..., 1] + 1)  # the step
    assert ended.sum() > 5
    np.testing.assert_array_equal(steps.is_first[:, 1:8], ended[:, :7])
    np.testing.assert_array_equal(obs[:, 1:, :, 1] == 0, steps.is_first[:, 1:8])
    fresh = obs[:, 1:][ended[:, :7]]
    assert len(np.unique(fresh[:, 0])) == len(fresh)  # each reset starts a different episode


@pytest.mark.long
def test_random_streams_do_not_depend_on_the_number_of_environments():
    """The first three environments start with the same observations among 3 and among 5."""
    views = []
    for envs in (3, 5):
        loop = CompiledLoop(components("a2c"), CASES["a2c"].env, envs, SEEDS, STEPS)
        views.append(to_numpy(loop.init().env_state.view.observation)[:, :3])
    np.testing.assert_array_equal(*views)


def test_all_environments_of_all_seeds_start_differently():
    """32 seeds with 16 environments each: 512 different episodes."""
    loop = CompiledLoop(components("a2c"), CASES["a2c"].env, 16, list(range(32)), STEPS)
    episodes = to_numpy(loop.init().env_state.view.observation)[..., 0]
    assert len(np.unique(episodes)) == 512


@pytest.mark.long
def test_metric_sums_match_the_episodes():
    """Sums of returns and lengths against sums over the transitions in replay."""
    loop = compiled_loop("sac with choices")
    carry = loop.advance(loop.init(), 5)  # 10 ticks in 10 rows: nothing is overwritten
    steps = to_numpy(loop.learner_state(carry).store.steps)
    metric_sums = to_numpy(carry.metric_sums)
    for seed in range(len(SEEDS)):
        returns, lengths = [], []
        for env in range(ENVS):
            total, length = 0.0, 0
            for t in range(10):
                total, length = total + float(steps.reward[seed, t, env]), length + 1
                if steps.terminated[seed, t, env] or steps.truncated[seed, t, env]:
                    returns.append(total)
                    lengths.append(length)
                    total, length = 0.0, 0
        assert metric_sums.num_episodes[seed] == len(returns)
        assert metric_sums.length_sum[seed] == sum(lengths)
        assert metric_sums.return_sum[seed] == pytest.approx(sum(returns), abs=1e-4)


def test_ring_buffer_size():
    """30 transitions of 3 environments are 10 ticks; a run_loop of 12 steps fills 4."""
    assert CASES["ddpg"].method.feed.buffer_size == 30
    for steps, rows in ((STEPS, 10), (12, 4)):
        loop = CompiledLoop(components("ddpg"), CASES["ddpg"].env, ENVS, SEEDS, steps)
        assert loop.shapes().learner.store.steps.reward.shape == (len(SEEDS), rows, ENVS)


@pytest.mark.long
def test_equal_components_are_traced_once_for_all_loops():
    """Names of metrics, the compiled and the host loop share one trace of the update; another setting has its own."""
    calls = []

    class Traced(A2C):
        """A2C that notes each trace of its update."""

        def update(self, state, batch, key):
            calls.append(self)
            return super().update(state, batch, key)

    case = CASES["a2c"]
    for learning_rate in (0.1, 0.2):  # a number is an argument of the program
        parts = Components(
            Traced(learning_rate=learning_rate, hidden_sizes=(2,), feed=Rollouts(2, num_envs=ENVS)),
            EnvironmentReward(),
            FixedCurriculum(),
        )
        loops = [
            CompiledLoop(parts, case.env, ENVS, SEEDS, STEPS),
            HostLoop(parts, HostEnvAdapter(case.env, ENVS, SEEDS), ENVS, SEEDS, STEPS),
        ]
        for loop in loops:
            loop.advance(loop.init(), 1)
    assert len(calls) == 1
    wider = dataclasses.replace(parts, method=dataclasses.replace(parts.method, hidden_sizes=(3,)))
    CompiledLoop(wider, case.env, ENVS, SEEDS, STEPS)
    assert len(calls) == 2
