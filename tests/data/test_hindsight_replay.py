"""Hindsight replay against a list of episodes in plain Python: which goals, whose rewards, and how often."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import thespis
from thespis.core.contracts import GoalRewards
from thespis.core.errors import UserError
from thespis.core.laws.components import check_environment
from thespis.core.records import EnvSpec, Transition, View
from thespis.core.spaces import Box, Discrete, dict_space
from thespis.data.feeds import Replay
from thespis.data.hindsight import (
    GoalStrategy,
    HindsightFinal,
    HindsightFuture,
    HindsightStore,
    relabel_step,
    relabel_windows,
)
from thespis.data.prioritized import PrioritizedSampler
from thespis.data.sequence_replay import SequenceReplay
from thespis.envs.compiled.point_goal import PointGoal
from thespis.envs.goals import GoalReward, SparseGoal
from thespis.methods.online.sac import SAC
from thespis.runs.config import apply_settings, from_config, to_config

ENVS, TICKS, INTERVAL, ROWS = 3, 60, 2, 14
LINE = Box((1,), -1e6, 1e6)
NEVER = SparseGoal(0.1, goal_reward=5.0, step_reward=-1.0)
SPEC = EnvSpec(
    "line",
    dict_space(observation=LINE, achieved_goal=LINE, desired_goal=LINE),
    Discrete(2),
    goal_relabeler=NEVER,
)


def code(tick, env):
    """The goal that is achieved with a step: it says which step."""
    return 1_000.0 * env + tick + 1.0


def coded_steps(seed=0, end=0.25):
    """``[tick, env]`` steps of episodes of random lengths; every achieved goal is that of its step alone."""
    rng = np.random.default_rng(seed)
    ended = rng.uniform(size=(TICKS, ENVS)) < end
    first = np.concatenate([np.ones((1, ENVS), bool), ended[:-1]])
    terminated = ended & (rng.uniform(size=ended.shape) < 0.3)  # for another reason than the goal
    tick, env = np.meshgrid(np.arange(TICKS), np.arange(ENVS), indexing="ij")
    achieved = code(tick, env)[..., None].astype("float32")

    def observation(value):
        return {"observation": value, "achieved_goal": value, "desired_goal": np.full_like(value, -7.0)}

    reward = (tick + env / 10).astype("float32")
    steps = Transition(
        View(observation(achieved - 1)),
        np.zeros((TICKS, ENVS), "int32"),
        reward,
        terminated,
        ended & ~terminated,
        View(observation(achieved)),
        first,
    )
    return jax.tree.map(jnp.asarray, steps), ended


def ends_of_episodes(ended, written):
    """For every written step, the last tick of its episode that is written, by going through the list."""
    ends = np.zeros((written, ENVS), int)
    for env in range(ENVS):
        for t in range(written):
            last = t
            while last + 1 < written and not ended[last, env]:
                last += 1
            ends[t, env] = last
    return ends


def filled(feed, steps, written, interval=INTERVAL):
    store = feed.make_store(10_000).for_env(SPEC)
    state = store.init(jax.tree.map(lambda x: x[0, 0], steps), ENVS)
    add = jax.jit(store.add)
    for start in range(0, written, interval):
        state = add(state, jax.tree.map(lambda x, t=start: x[t : t + interval], steps), jnp.int32(start))
    return store, state


def places(batch):
    """Tick and environment of the first step of each row."""
    observed = np.asarray(batch.steps.view.observation["observation"])[0, :, 0]
    env = (observed // 1_000).astype(int)
    return (observed - 1_000 * env).astype(int), env


def feed(**settings):
    base = {"buffer_size": ROWS * ENVS, "batch_size": 42, "update_interval": INTERVAL, "relabel": HindsightFuture()}
    return Replay(**base | settings)


@pytest.mark.long
@pytest.mark.parametrize("sampler", [None, PrioritizedSampler()], ids=["uniform", "prioritized"])
@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("written", [6, 14, 32, 60])  # filling, full, and overwritten up to four times
def test_goals_are_of_the_same_episode_and_not_before_the_step(written, length, sampler):
    steps, ended = coded_steps(seed=written)
    ends, found = ends_of_episodes(ended, written), {}
    store, state = filled(feed(sequence_length=length, sampler=sampler), steps, written)
    sample = jax.jit(lambda key: store.sample(state, steps, (), jnp.int32(written), jnp.int32(0), key, ()))
    relabelled = total = 0
    for seed in range(40):
        batch = sample(jax.random.key(seed))
        ticks, envs = places(batch)
        goal = np.asarray(batch.steps.view.observation["desired_goal"])[..., 0]
        assert (goal == goal[0]).all()  # one goal for a whole window, before and after each step
        np.testing.assert_array_equal(batch.steps.next_view.observation["desired_goal"][..., 0], goal)
        for tick, env, new in zip(ticks, envs, goal[0], strict=True):
            assert max(written - ROWS, 0) <= tick < written
            total += 1
            if new == -7.0:
                continue
            relabelled += 1
            goal_tick = round(float(new - code(0, env)))
            assert tick <= goal_tick <= ends[tick, env], (tick, env, goal_tick, ends[tick, env])
            found.setdefault((tick, env), set()).add(goal_tick)
    assert relabelled / total == pytest.approx(0.8, abs=0.04)
    oldest = max(written - ROWS, 0)
    assert set(found) == {(t, e) for t in range(oldest, written - length + 1) for e in range(ENVS)}
    if length == 1:
        complete = sum(goals == set(range(t, ends[t, e] + 1)) for (t, e), goals in found.items())
        assert complete > 0.7 * len(found)  # all possible goals are drawn, where few of them


@pytest.mark.parametrize("interval", [1, 2, 5])
def test_goals_are_uniform_over_the_rest_of_the_episode(interval):
    """Chi-square test of one episode in a ring that was overwritten, at a level at which one in ten thousand fails."""
    steps, ended = coded_steps(seed=3, end=0.08)
    written = 50
    ends = ends_of_episodes(ended, written)
    settings = {"update_interval": interval, "buffer_size": 20 * ENVS, "batch_size": 30}
    _, state = filled(feed(**settings), steps, written, interval)
    oldest = written - 20
    tick, env = max(((t, e) for t in range(oldest, written) for e in range(ENVS)), key=lambda x: ends[x] - x[0])
    count = int(ends[tick, env]) - tick + 1
    assert count >= 6
    index = state.index
    draw = jax.jit(
        lambda key: HindsightFuture().choose_ticks(
            jnp.full(5_000, tick, "int32"),
            index.end_ticks(
                jnp.full(5_000, env, "int32"),
                jnp.full(5_000, int(np.asarray(steps.is_first)[: tick + 1, env].sum()), "int32"),
            ),
            key,
        )
    )
    drawn = np.asarray(draw(jax.random.key(interval))) - tick
    assert stats.chisquare(np.bincount(drawn, minlength=count)).pvalue > 1e-4 and drawn.max() < count


@dataclasses.dataclass(frozen=True)
class HindsightNow(GoalStrategy):
    """A strategy of a user: the goal that the window's first step achieved, for every window."""

    num_sampled_goals: float = 1e9

    def choose_ticks(self, tick, end, key):
        return tick


@pytest.mark.long
@pytest.mark.parametrize("strategy", [HindsightFinal(), HindsightNow()], ids=lambda x: type(x).__name__)
def test_other_strategies_take_the_goals_that_they_say(strategy):
    steps, ended = coded_steps()
    written = 30
    ends = ends_of_episodes(ended, written)
    store, state = filled(feed(relabel=strategy), steps, written)
    shares = []
    for seed in range(20):
        batch = store.sample(state, steps, (), jnp.int32(written), jnp.int32(0), jax.random.key(seed), ())
        ticks, envs = places(batch)
        goal = np.asarray(batch.steps.view.observation["desired_goal"])[0, :, 0]
        chosen = goal != -7.0
        expected = ends[ticks, envs] if isinstance(strategy, HindsightFinal) else ticks
        np.testing.assert_array_equal(np.round(goal - 1_000.0 * envs - 1)[chosen], expected[chosen])
        shares.append(chosen.mean())
    assert np.mean(shares) == pytest.approx(0.8 if isinstance(strategy, HindsightFinal) else 1.0, abs=0.06)


def test_an_own_strategy_is_a_setting():
    method = apply_settings(SAC(), [f"feed.relabel={HindsightNow.__module__}:HindsightNow"])
    assert from_config(to_config(method)).feed.relabel == HindsightNow()


@pytest.mark.long
def test_an_interrupted_episode_has_no_goals_of_the_next():
    """An episode may stop without an end, where its environment could not be restored: ``is_first`` says so."""
    steps, _ = coded_steps(end=0.0)
    steps = dataclasses.replace(steps, is_first=steps.is_first.at[7].set(True))
    store, state = filled(feed(update_interval=1), steps, 12, 1)
    for seed in range(20):
        batch = store.sample(state, steps, (), jnp.int32(12), jnp.int32(0), jax.random.key(seed), ())
        ticks, envs = places(batch)
        goal = np.asarray(batch.steps.view.observation["desired_goal"])[0, :, 0]
        chosen = goal != -7.0
        goal_ticks = np.round(goal - 1_000.0 * envs - 1)[chosen]
        assert ((ticks[chosen] < 7) == (goal_ticks < 7)).all() and chosen.any()


def test_other_goals_pay_other_rewards():
    steps, ended = coded_steps()
    store, state = filled(feed(sequence_length=3), steps, 30)
    batch = store.sample(state, steps, (), jnp.int32(30), jnp.int32(0), jax.random.key(0), ())
    ticks, envs = places(batch)
    goal = np.asarray(batch.steps.view.observation["desired_goal"])[0, :, 0]
    reached = 0
    for row, (tick, env) in enumerate(zip(ticks, envs, strict=True)):
        own_mask = [not ended[tick : tick + i, env].any() for i in range(3)]
        assert np.asarray(batch.mask)[:, row].tolist() == own_mask  # no goal ends an episode here
        for i in range(3):
            if not own_mask[i]:
                continue
            at_goal = goal[row] == code(tick + i, env)
            expected = tick + i + env / 10 if goal[row] == -7.0 else 5.0 if at_goal else -1.0
            assert float(batch.steps.reward[i, row]) == pytest.approx(expected)
            assert bool(batch.steps.terminated[i, row]) == bool(steps.terminated[tick + i, env])
            reached += at_goal
    assert reached > 5


def one_step(position, next_position, goal, terminated=False, truncated=False):
    def observation(x):
        return {k: jnp.asarray([v]) for k, v in (("observation", x), ("achieved_goal", x), ("desired_goal", goal))}

    flags = jnp.asarray(terminated), jnp.asarray(truncated)
    view, next_view = View(observation(position)), View(observation(next_position))
    return Transition(view, jnp.int32(0), jnp.float32(9.0), *flags, next_view, jnp.asarray(False))


ENDING = SparseGoal(0.5, terminates=True)


@pytest.mark.parametrize(
    ("step", "goal", "reward", "terminated", "truncated"),
    [
        (one_step(0.0, 1.0, 1.0, terminated=True), 3.0, 0.0, False, False),  # another goal: nothing ended
        (one_step(0.0, 1.0, 3.0), 1.2, 1.0, True, False),  # now it is the goal
        (one_step(0.0, 1.0, 3.0, truncated=True), 1.2, 1.0, True, False),
        (one_step(0.0, 1.0, 3.0, truncated=True), 4.0, 0.0, False, True),
        (one_step(0.0, 1.0, 3.0, terminated=True), 4.0, 0.0, True, False),  # it fell, whatever the goal
    ],
)
def test_a_step_with_another_goal(step, goal, reward, terminated, truncated):
    new = relabel_step(ENDING, step, jnp.asarray([goal]))
    assert float(new.reward) == reward
    assert (bool(new.terminated), bool(new.truncated)) == (terminated, truncated)
    for view in (new.view, new.next_view):
        assert view.observation["desired_goal"].tolist() == [jnp.float32(goal)]
    assert new.next_view.observation["achieved_goal"].tolist() == [1.0]


def test_windows_are_cut_where_the_new_goal_ends_the_episode():
    steps = jax.tree.map(lambda *x: jnp.stack(x)[:, None], *(one_step(float(i), i + 1.0, 9.0) for i in range(4)))
    steps = jax.tree.map(lambda x: jnp.concatenate([x, x], axis=1), steps)
    goal, mask = jnp.asarray([[2.0], [2.0]]), jnp.ones((4, 2), bool)
    new, cut = relabel_windows(ENDING, steps, mask, goal, jnp.asarray([True, False]))
    assert np.asarray(cut).T.tolist() == [[True, True, False, False], [True] * 4]
    assert np.asarray(new.terminated).T.tolist() == [[False, True, False, False], [False] * 4]
    assert np.asarray(new.reward).T.tolist() == [[0.0, 1.0, 0.0, 0.0], [9.0] * 4]


def test_rewards_of_ones_own():
    rewards = GoalReward(lambda a, d: -jnp.abs(a - d).sum(), lambda a, d: jnp.all(a == d))
    assert isinstance(rewards, GoalRewards) and isinstance(SparseGoal(0.1), GoalRewards)
    assert float(rewards.compute_reward(jnp.asarray([1.0, 2.0]), jnp.asarray([0.0, 4.0]))) == -3.0
    assert bool(rewards.compute_terminated(jnp.ones(2), jnp.ones(2)))
    assert not bool(GoalReward(lambda a, d: 0.0).compute_terminated(jnp.ones(2), jnp.ones(2)))


def test_environments_without_goals_are_refused():
    with pytest.raises(UserError, match="dicts with observation, achieved_goal, desired_goal"):
        feed().make_store(100).for_env(EnvSpec("plain", LINE, Discrete(2)))
    with pytest.raises(UserError, match="an attribute goal_relabeler"):
        feed().make_store(100).for_env(dataclasses.replace(SPEC, goal_relabeler=None))
    with pytest.raises(UserError, match=r"feed\.relabel=none"):
        feed().make_sampler(coded_steps()[0])
    assert isinstance(feed().make_store(100), HindsightStore)
    sequences = SequenceReplay(stored_memory=False).make_store(100)
    assert sequences.for_env(SPEC) == sequences


@pytest.mark.long
@pytest.mark.parametrize("terminates", [False, True])
def test_point_goal_keeps_the_laws_and_its_own_rewards(terminates):
    env = PointGoal(goal_radius=0.3, terminates=terminates, time_limit=12)
    check_environment(env)
    state, step = env.reset((), jax.random.key(2))
    position, goal, hits = np.zeros(2), np.asarray(state.goal), 0
    rng = np.random.default_rng(0)
    for t in range(12):
        direction = np.clip((goal - position) / 0.1, -1.5, 1.5) if t > 3 else rng.uniform(-2, 2, 2)
        state, step = env.step(state, jnp.asarray(direction, "float32"), jax.random.key(t))
        position = np.clip(position + 0.1 * np.clip(direction, -1, 1), -1, 1)
        at_goal = np.linalg.norm(position - goal) <= 0.3
        np.testing.assert_allclose(step.observation["achieved_goal"], position, atol=1e-5)
        assert float(step.reward) == at_goal and bool(step.terminated) == (at_goal and terminates)
        assert bool(step.truncated) == (t == 11 and not (at_goal and terminates))
        hits += int(at_goal)
    assert hits > 0


FAR = SAC(
    hidden_sizes=(64, 64),
    learning_rate=1e-3,
    discount=0.95,
    feed=Replay(buffer_size=50_000, batch_size=128, learning_starts=600, num_envs=4, relabel=HindsightFuture()),
)


@pytest.mark.slow
@pytest.mark.parametrize("hindsight", [True, False])
def test_sparse_goals_need_hindsight(hindsight, tmp_path):
    method = FAR if hindsight else dataclasses.replace(FAR, feed=dataclasses.replace(FAR.feed, relabel=None))
    run = thespis.train(method, env=PointGoal(), steps=24_000, episodes=100, out=tmp_path / "run")
    success = np.mean(np.asarray(run.final_scores["greedy"]["scores"]) > 0)
    assert success >= 0.9 if hindsight else success < 0.2, success
