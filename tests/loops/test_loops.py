"""The loops agree: compiled with host, bit by bit; a resumed run with one that was never stopped."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import numpy as np
import pytest
from cases import CASES, FAST_IN_LOOPS, ONLINE, marked
from made_up import QUICK
from worlds import AsHost

from thespis.core import keys
from thespis.core.feeds import Episodes
from thespis.core.laws import as_numpy, same_bits
from thespis.core.samples import random_steps
from thespis.curricula.fixed import Fixed
from thespis.feedback.environment import EnvironmentReward
from thespis.loops.compiled import CompiledLoop
from thespis.loops.host import HostLoop
from thespis.loops.logged import LoggedLoop
from thespis.loops.pace import FixedLag
from thespis.loops.parts import Parts
from thespis.methods.registry import NAMES
from thespis.runs import checkpoint

SEEDS, ENVS, STEPS = [0, 3], 3, 1000
BEFORE, AFTER = 5, 4  # blocks before and after the checkpoint; the replay rings are overwritten meanwhile


def parts(name: str) -> Parts:
    return Parts(CASES[name].method, EnvironmentReward(), Fixed())


def compiled(name: str, seeds=SEEDS) -> CompiledLoop:
    return CompiledLoop(parts(name), CASES[name].world, ENVS, seeds, STEPS)


def host(name: str, lag=None) -> HostLoop:
    feed = CASES[name].method.feed
    world = AsHost(CASES[name].world, ENVS, SEEDS, feed.group if isinstance(feed, Episodes) else 0)
    return HostLoop(parts(name), world, ENVS, SEEDS, STEPS, None if lag is None else FixedLag(lag))


class Ran(NamedTuple):
    """A loop after some blocks, its checkpoint on the way, and all that the learner and the tally held then."""

    loop: object
    middle: object
    end: tuple
    world: tuple


def run(loop, path) -> Ran:
    carry = loop.advance(loop.init(), BEFORE)
    checkpoint.save(path, loop.snapshot(carry), {})
    snapshot = checkpoint.load(path, loop.snapshot(carry))[0]
    carry = loop.advance(carry, AFTER)
    world = carry.world
    return Ran(
        loop,
        snapshot,
        as_numpy((loop.learner(carry), carry.tally)),
        as_numpy((world.view, world.returns, world.lengths)),
    )


@pytest.fixture(scope="module", params=marked(ONLINE, FAST_IN_LOOPS))
def name(request):
    """A case. Those that `make test` does not run have keys with a short hash, which halves what is compiled."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param not in FAST_IN_LOOPS:
            patch.setattr(keys, "THREEFRY", QUICK)
        yield request.param


@pytest.fixture(scope="module")
def in_compiled(name, tmp_path_factory) -> Ran:
    return run(compiled(name), tmp_path_factory.mktemp("compiled") / "a.ckpt")


@pytest.fixture(scope="module")
def in_host(name, tmp_path_factory) -> Ran:
    return run(host(name, lag=0), tmp_path_factory.mktemp("host") / "a.ckpt")


def test_every_method_is_tried():
    assert {case.method.name for case in CASES.values()} == set(NAMES)


def test_compiled_equals_host(in_compiled, in_host):
    """Parameters, optimisers, replay, metrics, episode counts and worlds, bit by bit."""
    same_bits(in_compiled.end, in_host.end, "compiled equals host")
    worlds = jax.tree.map(lambda x, like: x.reshape(like.shape), in_compiled.world, in_host.world)
    same_bits(worlds, in_host.world, "compiled equals host in the worlds")
    episodes, updates = in_host.end[1].episodes, in_host.end[1].updates
    assert episodes.min() > 3 and updates.min() > 2  # both saw what could have differed


def test_resumed_equals_uninterrupted(in_compiled, in_host):
    for ran in (in_compiled, in_host):
        carry, lost = ran.loop.restore(ran.middle)
        assert lost == []
        carry = ran.loop.advance(carry, AFTER)
        same_bits(ran.end, as_numpy((ran.loop.learner(carry), carry.tally)), f"{ran.loop.kind} resumes")


def test_learning_changes_something(in_compiled):
    """The equalities above are not those of parts that stand still."""
    method = as_numpy(in_compiled.middle["carry"].learner.method)
    moved = jax.tree.map(
        lambda a, b: float(np.abs(a.astype(float) - b).max(initial=0)), method, in_compiled.end[0].method
    )
    assert max(jax.tree.leaves(moved)) > 1e-4


@pytest.mark.parametrize("name", ["ppo", pytest.param("sac", marks=pytest.mark.laws)])
def test_a_seed_alone_does_what_it_does_among_others(name):
    many, one = compiled(name), compiled(name, SEEDS[1:])
    both = many.advance(many.init(), 4)
    alone = one.advance(one.init(), 4)
    among = jax.tree.map(lambda x: x[1:], many.learner(both))
    same_bits(as_numpy(one.learner(alone)), as_numpy(among), "a seed alone")


def test_lag_delays_the_acting_policy_by_whole_blocks(monkeypatch):
    """With lag 2, block ``b`` is played by the learner as it was two blocks earlier."""
    loop = host("a2c", lag=2)
    carry, learnt, acted = loop.init(), [], []
    for _ in range(5):
        learnt.append(as_numpy(loop._policies(loop.parts, loop.learner(carry).method, len(SEEDS))))
        acted.append(as_numpy(carry.policies[0]))
        carry = loop.advance(carry, 1)
    for b in range(2, 5):
        same_bits(acted[b], learnt[b - 2], f"block {b}")
    with pytest.raises(Exception, match="differs"):
        same_bits(acted[4], learnt[4], "no lag")


def test_chunks_do_not_matter():
    """One chunk of six blocks, and six of one, across the end of the warm-up."""
    loop = compiled("sac with choices")
    assert 0 < loop.warmup < 6
    whole, pieces = loop.advance(loop.init(), 6), loop.init()
    for _ in range(6):
        pieces = loop.advance(pieces, 1)
    same_bits(whole, pieces, "chunks do not matter")


@pytest.mark.parametrize(
    "name", ["bc", "sac", pytest.param("dpo", marks=pytest.mark.laws), pytest.param("spin", marks=pytest.mark.laws)]
)
def test_logged_loop_resumes(name, tmp_path):
    case = CASES[name]
    steps = jax.tree.map(lambda x: x[:, 0], random_steps(case.world.spec, np.random.default_rng(1), 40, 1))
    place = np.arange(40) % 3  # episodes of three steps, which belong together by two
    steps = dataclasses.replace(steps, truncated=place == 2, terminated=np.zeros(40, bool), first=place == 0)
    loop = LoggedLoop(parts(name), case.world.spec, steps, SEEDS, 2)
    carry = loop.advance(loop.init(), 3)
    checkpoint.save(tmp_path / "a.ckpt", loop.snapshot(carry), {})
    snapshot = checkpoint.load(tmp_path / "a.ckpt", loop.snapshot(carry))[0]
    end = as_numpy(loop.advance(carry, 3))
    same_bits(end, as_numpy(loop.advance(loop.restore(snapshot)[0], 3)), "the logged loop resumes")
    assert int(end.updates) == 6 and end.tally.updates.tolist() == [6, 6]


def test_replay_holds_what_the_world_did():
    """Next observations are those of the same episode and the next step, also where episodes ended."""
    loop = compiled("ddpg")
    carry = loop.advance(loop.init(), 4)
    steps = as_numpy(loop.learner(carry).store.steps)
    now, after = steps.view.observation[:, :8], steps.next_view.observation[:, :8]  # the 8 ticks written
    ended = (steps.terminated | steps.truncated)[:, :8]
    np.testing.assert_array_equal(after[..., 0], now[..., 0])  # the episode's number
    np.testing.assert_array_equal(after[..., 1], now[..., 1] + 1)  # the step
    assert ended.sum() > 5
    np.testing.assert_array_equal(steps.first[:, 1:8], ended[:, :7])
    np.testing.assert_array_equal(now[:, 1:, :, 1] == 0, steps.first[:, 1:8])
    fresh = now[:, 1:][ended[:, :7]]
    assert len(np.unique(fresh[:, 0])) == len(fresh)  # each restart is an episode of its own


def test_worlds_keep_their_stream_when_there_are_more_of_them():
    """World 1 of seed 3 sees the same first observations among 3 and among 5."""
    views = []
    for envs in (3, 5):
        loop = CompiledLoop(parts("a2c"), CASES["a2c"].world, envs, SEEDS, STEPS)
        views.append(as_numpy(loop.init().world.view.observation)[:, :3])
    np.testing.assert_array_equal(*views)


def test_no_two_worlds_of_any_seed_begin_alike():
    """32 seeds with 16 worlds each: 512 different episodes."""
    loop = CompiledLoop(parts("a2c"), CASES["a2c"].world, 16, list(range(32)), STEPS)
    episodes = as_numpy(loop.init().world.view.observation)[..., 0]
    assert len(np.unique(episodes)) == 512


def test_episode_statistics_are_those_of_the_episodes():
    """The tally's sums against sums over what replay holds, episode by episode."""
    loop = compiled("sac with choices")
    carry = loop.advance(loop.init(), 5)  # 10 ticks, and room for 10: nothing has been overwritten
    steps = as_numpy(loop.learner(carry).store.steps)
    tally = as_numpy(carry.tally)
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
        assert tally.episodes[seed] == len(returns)
        assert tally.lengths[seed] == sum(lengths)
        assert tally.returns[seed] == pytest.approx(sum(returns), abs=1e-4)


def test_a_ring_is_no_larger_than_asked_for_or_than_the_run():
    """30 transitions of 3 environments are 10 ticks; a run of 12 steps fills 4."""
    assert CASES["ddpg"].method.feed.capacity == 30
    for steps, rows in ((STEPS, 10), (12, 4)):
        loop = CompiledLoop(parts("ddpg"), CASES["ddpg"].world, ENVS, SEEDS, steps)
        assert loop.shapes().learner.store.steps.reward.shape == (len(SEEDS), rows, ENVS)
