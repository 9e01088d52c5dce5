"""Prioritized level replay: scores by hand, probabilities by the formulas, the buffer against a model in Python."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from method_cases import SMALL

from thespis.core.contracts import Levels
from thespis.core.errors import UserError
from thespis.core.laws.assertions import assert_close, assert_same_bits, to_numpy
from thespis.core.laws.components import check_curriculum
from thespis.core.laws.random_samples import random_transitions
from thespis.core.records import Critique, EnvSpec, EpisodeStats, TimeStep
from thespis.core.spaces import Box, Discrete
from thespis.curricula.level_replay import EDITED, NEW, REPLAY, PrioritizedLevelReplay
from thespis.curricula.level_scores import LevelScore, MaxMonteCarlo, PositiveValueLoss
from thespis.curricula.random_levels import RandomLevels
from thespis.data.feeds import Rollouts
from thespis.feedback.environment import EnvironmentReward
from thespis.methods.online.ppo import PPO
from thespis.runs import checkpoint
from thespis.training.compiled_loop import CompiledLoop
from thespis.training.components import Components

NUM_TARGETS, ENVS, STEPS = 50, 4, 12
KEY = jax.random.key(3)


class TargetLevels(eqx.Module):
    """Levels of :class:`Corridor`: the number of steps to the right that are wanted."""

    def sample(self, key):
        return {"target": jax.random.randint(key, (), 1, NUM_TARGETS)}

    def mutate(self, level, key, num_edits):
        return {"target": level["target"] + 100 * num_edits}

    def solvable(self, level):
        return level["target"] <= NUM_TARGETS

    def encode(self, level):
        return level["target"][None]


class Corridor(eqx.Module):
    """Walk right ``target`` steps: the episode ends there with reward 1, or after 5 steps."""

    limit: ClassVar[int] = 5

    @property
    def spec(self) -> EnvSpec:
        params = {"target": jnp.int32(1)}
        return EnvSpec("corridor", Box((2,)), Discrete(2), time_limit=self.limit, params=params, levels=TargetLevels())

    def reset(self, params, key):
        state = params["target"], jnp.int32(0), jnp.int32(0)
        return state, self._step(state, jnp.zeros(()))

    def step(self, state, action, key):
        target, place, time = state
        state = target, place + action, time + 1
        return state, self._step(state, (state[1] >= target).astype("float32"))

    def _step(self, state, reward):
        target, place, time = state
        ended = reward > 0
        observation = jnp.stack([target, place]).astype("float32")
        return TimeStep(observation, reward, ended, (time >= self.limit) & ~ended)


SPEC = Corridor().spec
METHOD = PPO(hidden_sizes=SMALL, feed=Rollouts(STEPS, num_envs=ENVS), minibatch_size=24, num_epochs=1)


def small(**settings) -> PrioritizedLevelReplay:
    return PrioritizedLevelReplay(capacity=settings.pop("capacity", 6), **settings)


def scores_by_hand(values: np.ndarray, done: np.ndarray) -> np.ndarray:
    scores = []
    for env in range(values.shape[1]):
        means, start = [], 0
        for t in range(values.shape[0]):
            if done[t, env]:
                means.append(values[start : t + 1, env].mean())
                start = t + 1
        scores.append(np.mean(means) if means else 0.0)
    return np.array(scores)


@pytest.mark.parametrize("seed", range(3))
def test_scores_equal_those_by_hand(seed):
    rng = np.random.default_rng(seed)
    done = rng.uniform(size=(20, 5)) < 0.15
    done[:, 0] = False
    value, advantage = rng.normal(size=(2, 20, 5)).astype("float32")
    best = rng.normal(size=5).astype("float32")
    critique = Critique(value=jnp.asarray(value), advantage=jnp.asarray(advantage))
    np.testing.assert_allclose(
        PositiveValueLoss()(critique, jnp.asarray(done), jnp.asarray(best)),
        scores_by_hand(np.maximum(advantage.astype("float64"), 0), done),
        atol=1e-6,
    )
    np.testing.assert_allclose(
        MaxMonteCarlo()(critique, jnp.asarray(done), jnp.asarray(best)),
        scores_by_hand(best - value.astype("float64"), done),
        atol=1e-6,
    )


def with_buffer(curriculum, **fields):
    state = curriculum.init(SPEC, KEY)
    fields = {name: jnp.asarray(value) for name, value in fields.items()}
    return dataclasses.replace(state, buffer=dataclasses.replace(state.buffer, **fields))


@pytest.mark.parametrize("staleness, temperature", [(0.0, 1.0), (0.3, 0.3), (1.0, 0.1)])
def test_probabilities_follow_the_formulas(staleness, temperature):
    curriculum = small(staleness_coef=staleness, temperature=temperature)
    scores, last = np.array([0.1, 0.9, -0.3, 0.5, 9.0, 9.0], "float32"), np.array([3, 9, 1, 7, 0, 0], "int32")
    state = with_buffer(curriculum, scores=scores, last_played=last, size=np.int32(4), num_played=np.int32(10))
    ranks = np.array([3, 1, 4, 2])
    by_rank = (1.0 / ranks) ** (1.0 / temperature)
    stale = (10 - last[:4]).astype("float64")
    expected = (1 - staleness) * by_rank / by_rank.sum() + staleness * stale / stale.sum()
    probs = np.asarray(curriculum.replay_probs(state.buffer))
    np.testing.assert_allclose(probs[:4], expected, rtol=1e-5)
    assert (probs[4:] == 0).all()
    draws = np.asarray(curriculum.draw(dataclasses.replace(state, kind=jnp.int32(REPLAY)), KEY, 20_000).level)
    counts = np.bincount(draws, minlength=6)
    assert (counts[4:] == 0).all()
    errors = (counts[:4] - 20_000 * expected) ** 2 / (20_000 * expected)
    assert errors.sum() < 16.3, "chi-square with 3 degrees of freedom, p = 0.001"


def outcome(targets, returns, *, level=None, steps=3):
    """A rollout in which every environment ends one episode with its return, and a critic that says 0."""
    n = len(targets)
    done = np.zeros((steps, n), bool)
    done[-1] = True
    level = np.full(n, -1, "int32") if level is None else np.asarray(level, "int32")

    def all_steps(x):
        return jnp.broadcast_to(jnp.asarray(x), (steps, n))

    stats = EpisodeStats(
        jnp.asarray(done),
        all_steps(np.asarray(returns, "float32")),
        all_steps(np.full(n, steps, "int32")),
        {"target": all_steps(np.asarray(targets, "int32"))},
        level=all_steps(level),
    )
    rollout = random_transitions(SPEC, np.random.default_rng(0), steps, n)
    return rollout, Critique(value=jnp.zeros((steps, n)), advantage=jnp.zeros((steps, n))), stats


def contents(state) -> dict[int, float]:
    size = int(state.buffer.size)
    targets = np.asarray(state.buffer.levels["target"])[:size]
    assert len(set(targets.tolist())) == size, "no level is in the buffer twice"
    return dict(zip(targets.tolist(), np.asarray(state.buffer.scores)[:size].tolist(), strict=True))


@pytest.mark.long
def test_new_levels_enter_while_there_is_room_and_then_in_place_of_the_least_likely():
    """With a critic of 0 the score is the highest return of a level."""
    curriculum = small(staleness_coef=0.0, replay_prob=0.0)
    update = eqx.filter_jit(lambda state, seen: curriculum.update(state, *seen, KEY)[0])
    state = update(curriculum.init(SPEC, KEY), outcome([1, 2, 3, 1], [0.1, 0.2, 0.3, 0.05]))
    assert contents(state) == pytest.approx({1: 0.05, 2: 0.2, 3: 0.3}), "of a level played twice the last score counts"
    np.testing.assert_allclose(np.asarray(state.buffer.max_returns)[:3], [0.1, 0.2, 0.3])
    state = update(state, outcome([4, 5, 6], [0.4, 0.5, 0.6]))
    assert contents(state) == pytest.approx({1: 0.05, 2: 0.2, 3: 0.3, 4: 0.4, 5: 0.5, 6: 0.6})
    state = update(state, outcome([7, 8, 9], [0.25, 0.15, 0.9]))
    assert contents(state) == pytest.approx({7: 0.25, 9: 0.9, 3: 0.3, 4: 0.4, 5: 0.5, 6: 0.6})
    state = update(state, outcome([5, 10], [0.2, 0.01]))
    assert contents(state)[5] == pytest.approx(0.2) and 10 not in contents(state)


@pytest.mark.long
def test_replays_change_scores_and_an_unfinished_level_keeps_its_own():
    curriculum = small(staleness_coef=0.0)
    update = eqx.filter_jit(lambda state, seen: curriculum.update(state, *seen, KEY)[0])
    state = update(curriculum.init(SPEC, KEY), outcome([1, 2, 3], [0.1, 0.2, 0.3]))
    state = dataclasses.replace(state, kind=jnp.int32(REPLAY))
    rollout, critique, stats = outcome([1, 3], [0.7, 0.1], level=[0, 2])
    state = update(state, (rollout, critique, stats))
    assert contents(state) == pytest.approx({1: 0.7, 2: 0.2, 3: 0.3})
    unfinished = dataclasses.replace(stats, done=jnp.zeros_like(stats.done))
    again = update(dataclasses.replace(state, kind=jnp.int32(REPLAY)), (rollout, critique, unfinished))
    assert contents(again) == contents(state)
    np.testing.assert_array_equal(np.asarray(again.buffer.num_parents)[:3], [1, 0, 1])


@pytest.mark.long
def test_kinds_of_rollouts():
    """No replay before the buffer is full enough; after a replay, with edits, comes an edited rollout."""
    for num_edits, expected in ((0, REPLAY), (2, EDITED)):
        curriculum = small(replay_prob=1.0, min_fill=0.5, num_edits=num_edits, learns_from_new=False)
        update = eqx.filter_jit(lambda state, seen, c=curriculum: c.update(state, *seen, KEY)[0])
        state = update(curriculum.init(SPEC, KEY), outcome([1, 2], [0.1, 0.2]))
        assert int(state.kind) == NEW and not np.asarray(curriculum.draw(state, KEY, 2).learns).any()
        state = update(state, outcome([3, 4], [0.3, 0.2]))
        assert int(state.kind) == REPLAY
        drawn = curriculum.draw(state, KEY, 3)
        assert np.asarray(drawn.learns).all() and set(np.asarray(drawn.level).tolist()) <= {0, 1, 2, 3}
        state = update(state, outcome(np.asarray(drawn.params["target"]), [0.1] * 3, level=np.asarray(drawn.level)))
        assert int(state.kind) == expected
        if num_edits:
            edited = curriculum.draw(state, KEY, 3)
            targets = np.sort(np.asarray(edited.params["target"]))
            np.testing.assert_array_equal(targets, np.sort(np.asarray(drawn.params["target"])) + 200)
            assert not np.asarray(edited.learns).any() and (np.asarray(edited.level) == -1).all()
            state = update(state, outcome(targets, [0.9] * 3))
            assert int(state.kind) == REPLAY, "edits are not edited at once"
    always = small(replay_prob=1.0)
    assert always.draw(always.init(SPEC, KEY), KEY, 2).learns is None


def make_loop(curriculum, seeds=(0, 5), method: PPO = METHOD) -> CompiledLoop:
    return CompiledLoop(Components(method, EnvironmentReward(), curriculum), Corridor(), ENVS, list(seeds), 10_000)


ROBUST = small(replay_prob=0.7, min_fill=0.5, learns_from_new=False)
ACCEL = small(replay_prob=0.7, min_fill=0.5, learns_from_new=False, num_edits=1, score=PositiveValueLoss())


@pytest.mark.long
@pytest.mark.parametrize(
    "curriculum",
    [
        pytest.param(RandomLevels(), id="dr", marks=pytest.mark.slow),
        pytest.param(small(), id="plr", marks=pytest.mark.slow),
        pytest.param(ROBUST, id="robust", marks=pytest.mark.slow),
        pytest.param(ACCEL, id="accel"),
    ],
)
def test_runs_resume_exactly_and_seeds_do_not_disturb_each_other(curriculum, tmp_path):
    check_curriculum(curriculum, SPEC)
    loop = make_loop(curriculum)
    end = loop.advance(loop.init(), 9)
    half = loop.advance(loop.init(), 5)
    checkpoint.save(tmp_path / "a.ckpt", loop.snapshot(half), {})
    restored, _ = loop.restore(checkpoint.load(tmp_path / "a.ckpt", loop.checkpoint_template())[0])
    assert_same_bits(loop.learner_state(loop.advance(restored, 4)), loop.learner_state(end), "resumed")
    alone = make_loop(curriculum, (5,))
    one = to_numpy(alone.learner_state(alone.advance(alone.init(), 9)))
    both = jax.tree.map(lambda x: x[1:], to_numpy(loop.learner_state(end)))
    assert_same_bits((one.method, one.curriculum), (both.method, both.curriculum), "alone")


def test_a_robust_learner_changes_in_replays_alone():
    loop = make_loop(ROBUST, (0,))
    carry, kinds = loop.init(), []
    for _ in range(12):
        before = to_numpy(loop.learner_state(carry))
        carry = loop.advance(carry, 1)
        after = to_numpy(loop.learner_state(carry))
        pairs = zip(jax.tree.leaves(before.method), jax.tree.leaves(after.method), strict=True)
        kinds.append(int(before.curriculum.kind[0]))
        assert any(not np.array_equal(a, b) for a, b in pairs) == (kinds[-1] == REPLAY)
    assert {NEW, REPLAY} <= set(kinds)


class Recorder(eqx.Module):
    """Random levels that keep the rollout, to see which levels were played when."""

    name: ClassVar[str] = "recorder"
    citations: ClassVar[tuple] = ()
    needs_critique: ClassVar[bool] = True
    draws_per_rollout: ClassVar[bool] = True

    def init(self, spec, key):
        zero = jnp.zeros((STEPS, ENVS))
        return zero, zero > 0, zero > 0, zero, zero

    def draw(self, state, key, n):
        return RandomLevels().draw(RandomLevels().init(SPEC, key), key, n)

    def update(self, state, rollout, critique, stats, key):
        from thespis.core.records import Report

        target = rollout.view.observation[..., 0]
        return (target, rollout.is_first, rollout.truncated, critique.value, critique.advantage), Report({})


class SilentPPO(PPO):
    """PPO that does not report its critique, so that the loop asks it to judge every rollout."""

    def update(self, state, batch, key):
        state, report = super().update(state, batch, key)
        return state, dataclasses.replace(report, critique=None)


@pytest.mark.long
@pytest.mark.parametrize(
    "curriculum", [Recorder(), pytest.param(small(), marks=pytest.mark.slow)], ids=["recorder", "replay"]
)
def test_a_critique_is_the_same_whether_it_is_reported_or_asked_for(curriculum):
    """The estimates, those of before the update, the levels that follow from them, and the curriculum's metrics."""
    silent = SilentPPO(**{field.name: getattr(METHOD, field.name) for field in dataclasses.fields(METHOD)})
    loops = [make_loop(curriculum, (0, 5), method) for method in (METHOD, silent)]
    ends = [loop.advance(loop.init(), 6) for loop in loops]
    (learned, sums), (asked, other_sums) = (
        (to_numpy(loop.learner_state(end)), loop.pop_metric_sums(end)[1]) for loop, end in zip(loops, ends, strict=True)
    )
    assert_close((learned.method, learned.curriculum), (asked.method, asked.curriculum), "reported", 1e-5)
    assert_close(to_numpy(sums), to_numpy(other_sums), "metrics", 1e-5)
    assert "curriculum_score" in sums.sums or isinstance(curriculum, Recorder)


def test_environments_play_one_level_in_a_rollout_and_start_again_in_the_next():
    loop = make_loop(Recorder(), (0,))
    carry, seen = loop.init(), []
    for _ in range(3):
        before = jax.tree.map(lambda x: x[0], loop.learner_state(carry).method)
        carry = loop.advance(carry, 1)
        target, first, truncated, value, advantage = jax.tree.map(
            lambda x: np.asarray(x[0]), loop.learner_state(carry).curriculum
        )
        assert (target == target[0]).all() and first[0].all() and first[1:].any()
        seen.append(target[0])
        assert np.isfinite(value).all() and np.isfinite(advantage).all() and value.shape == (STEPS, ENVS)
        observation = np.stack([target[0], np.zeros(ENVS)], axis=-1).astype("float32")
        network = before.network
        expected, _ = network.values(
            network.init_memory(ENVS), jnp.asarray(observation)[None], jnp.ones((1, ENVS), bool)
        )
        np.testing.assert_allclose(value[0], np.asarray(expected)[0], rtol=1e-4, atol=1e-5)
    assert not np.array_equal(seen[0], seen[1])
    assert truncated[-1].any() or first[1:].any()


def test_errors_are_one_line():
    bare = dataclasses.replace(SPEC, levels=None)
    for curriculum in (RandomLevels(), small()):
        with pytest.raises(UserError, match="corridor has no levels"):
            curriculum.init(bare, KEY)
    with pytest.raises(UserError, match=r"curriculum\.capacity is at least 1"):
        small(capacity=0).init(SPEC, KEY)
    assert isinstance(TargetLevels(), Levels) and issubclass(MaxMonteCarlo, LevelScore)
