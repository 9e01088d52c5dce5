"""MBPO and Dyna: imagined rollouts against true ones, the buffer of imagined steps, mixed batches, and learning."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from linear_env import LinearEnv, exact_model, linear_rollout
from method_cases import CASES, small_model
from synthetic_batches import quick_key

import thespis
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.records import Batch, Draw
from thespis.curricula.fixed import FixedCurriculum
from thespis.data.feeds import PrioritizedSampler, Replay
from thespis.data.ring_buffer import RingBuffer
from thespis.data.stored_steps import BufferSteps
from thespis.envs.host.wrapper import HostWrapper
from thespis.envs.rollout import act_once, rollout, start_rollout
from thespis.evaluation.rollout import play_episodes
from thespis.feedback.environment import EnvironmentReward
from thespis.learners.model_based.imagination import (
    FixedRolloutLength,
    LinearRolloutLength,
    imagine,
    init_imagined_steps,
)
from thespis.learners.model_based.learned_env import LearnedEnv
from thespis.learners.model_based.termination import HealthyRange
from thespis.methods.online.mbpo import MBPO
from thespis.methods.online.sac import SAC
from thespis.runtime.keys import fold, indexed_keys
from thespis.training.compiled_loop import CompiledLoop
from thespis.training.components import Components

SMALL_SAC = SAC(hidden_sizes=(8,), feed=Replay(batch_size=8, learning_starts=10, num_updates=2))


def policy_of(method, spec):
    state = method.init(spec, quick_key(0))
    return method.policy(state, Mode.SAMPLE)


# -- imagination -----------------------------------------------------------------------------------------------


def true_rollout(env, method, policy, observations, ticks, key):
    """Steps in the true environment, with the keys of imagination, through the rollout function."""
    count = len(observations)
    first = jax.vmap(env.reset, (None, 0))((), indexed_keys(key, count))[1]
    first = dataclasses.replace(first, observation=observations)

    def act(memory, view, is_first, t):
        return act_once(method, env.spec.action_space, policy, memory, view, is_first, fold(key, "act", t))

    def step(state, action, t):
        return jax.vmap(env.step)(state, action, indexed_keys(fold(key, "step", t), count))

    state = observations, jnp.zeros(count, "int32")
    start = start_rollout(state, first, method.init_memory(policy, count), Draw(()))
    return jax.jit(lambda now: rollout(act, step, None, now, jnp.arange(ticks)))(start)[1][0]


@pytest.mark.long
def test_imagination_with_a_perfect_model_is_the_true_rollout():
    """The same steps as in the environment, in order of ticks, each rollout up to its termination."""
    env = LinearEnv(bound=0.5)
    policy = policy_of(SMALL_SAC, env.spec)
    observations = 0.7 * jax.random.normal(jax.random.key(3), (12, 2))
    rule = HealthyRange(-1e9, 0.5, 1e9, 1e9)
    model = LearnedEnv(exact_model([env]), rule, observations)
    steps = true_rollout(env, SMALL_SAC, policy, observations, 6, quick_key(1))
    going = np.cumsum(np.asarray(steps.terminated), axis=0) - np.asarray(steps.terminated) == 0
    assert 12 < going.sum() < 6 * 12
    buffer = init_imagined_steps(jax.tree.map(lambda x: x[0, 0], steps), 100)
    run = jax.jit(lambda n: imagine(SMALL_SAC, policy, model, observations, n, buffer, quick_key(1)))
    imagined = run(6)
    assert int(imagined.num_written) == going.sum()
    for ours, true in zip(jax.tree.leaves(imagined.steps), jax.tree.leaves(steps), strict=True):
        np.testing.assert_allclose(np.asarray(ours)[: going.sum()], np.asarray(true)[going], atol=1e-4)
    assert int(run(2).num_written) == going[:2].sum()


@pytest.mark.long
def test_imagined_steps_are_a_ring_of_the_steps_in_the_mask():
    rng, capacity, written = np.random.default_rng(0), 20, []
    example = jax.tree.map(lambda x: x[0, 0], linear_rollout(LinearEnv(), 1, 1))
    buffer, add = init_imagined_steps(example, capacity), jax.jit(lambda b, s, m: b.add(s, m))
    sample = jax.jit(lambda b, n: b.sample(quick_key(len(written)), 2_000, n).reward)
    for i in range(12):
        steps = jax.tree.map(lambda x: x[0], linear_rollout(LinearEnv(), 1, 7, seed=i))
        mask = rng.uniform(size=7) < (0.0 if i == 3 else 0.6)
        buffer = add(buffer, steps, jnp.asarray(mask))
        written += list(np.asarray(steps.reward)[mask])
        assert int(buffer.num_written) == len(written)
        for newest in (5, 100):
            wanted = written[-min(newest, capacity) :]
            rewards = np.asarray(sample(buffer, newest))
            values, counts = np.unique(rewards, return_counts=True)
            assert set(values) == set(wanted)
            assert np.all(np.abs(counts - 2_000 / len(wanted)) < 6 * np.sqrt(2_000 / len(wanted)))
            assert int(buffer.num_available(jnp.int32(newest))) == len(wanted)


def test_rollout_lengths():
    length = LinearRolloutLength(1, 15, 20_000, 150_000)
    for phase in (0, 19_999, 20_000, 29_285, 29_286, 85_000, 149_999, 150_000, 10**6):
        share = min(max(phase - 20_000, 0) / 130_000, 1.0)
        assert int(length.at(jnp.int32(phase))) == int(1 + share * 14), phase
    assert (length.longest, FixedRolloutLength(3).longest, int(FixedRolloutLength(3).at(jnp.int32(9)))) == (15, 3, 3)
    with pytest.raises(UserError, match="grows"):
        LinearRolloutLength(3, 2)


# -- batches ---------------------------------------------------------------------------------------------------


def batch_of(steps, rows, index, **parts):
    stored = BufferSteps(RingBuffer(steps), jnp.asarray(steps.reward.shape[0], "int32"))
    real = jax.tree.map(lambda x: x[:1, :rows], steps)
    return Batch(real, jnp.ones((1, rows), bool), (), jnp.asarray(index, "int32"), stored=stored, **parts)


@pytest.mark.long
def test_batches_are_mixed_and_the_model_is_fitted_at_its_times():
    """Of 8 rows 2 are real, the others imagined; the model changes at updates 0, 6 and 12 alone."""
    env, learner = LinearEnv(noise=0.1), dataclasses.replace(small_model(termination=None), model_interval=3)
    spec, method_state = env.spec, SMALL_SAC.init(env.spec, quick_key(0))
    state = learner.init(SMALL_SAC, spec, method_state, quick_key(1))
    steps = linear_rollout(env, 10, 8)
    update = jax.jit(lambda s, b, key: learner.update(SMALL_SAC, s, method_state, b, key))
    for index in range(13):
        before = state
        state, mixed, metrics = update(state, batch_of(steps, 8, index), quick_key(index))
        changed = float(
            jnp.abs(
                state.dynamics.network.ensemble.layers[0].weight - before.dynamics.network.ensemble.layers[0].weight
            ).max()
        )
        assert (changed > 0) == (index in (0, 6, 12)), index
        assert int(state.imagined.num_written) == 10 * (1 + index // 6)
        assert metrics["num_imagined_steps"] == min(10 * (1 + index // 6), 20)
        np.testing.assert_array_equal(mixed.steps.reward[0, :2], steps.reward[0, :2])
        imagined = np.asarray(state.imagined.steps.reward)[: int(state.imagined.num_written)]
        assert np.isin(np.asarray(mixed.steps.reward)[0, 2:], imagined).all()
        assert mixed.mask.shape == (1, 8) and mixed.stored is None and int(mixed.update_index) == index
    observations = np.asarray(state.imagined.steps.view.observation)
    starts = np.asarray(steps.view.observation).reshape(-1, 2)
    assert all((np.abs(starts - o).sum(axis=1) < 1e-6).any() for o in observations[:5])  # rollouts begin at real steps


@pytest.mark.long
def test_what_a_model_cannot_learn_from():
    env = LinearEnv()
    method_state = SMALL_SAC.init(env.spec, quick_key(0))
    learner = small_model()
    state = learner.init(SMALL_SAC, env.spec, method_state, quick_key(1))
    batch = batch_of(linear_rollout(env, 4, 8), 8, 0)
    with pytest.raises(UserError, match="feed=Replay"):
        learner.update(SMALL_SAC, state, method_state, dataclasses.replace(batch, stored=None), quick_key(0))
    with pytest.raises(UserError, match="priorities"):
        weighted = dataclasses.replace(batch, weights=jnp.ones(8), indices=jnp.arange(8))
        learner.update(SMALL_SAC, state, method_state, weighted, quick_key(0))
    longer = dataclasses.replace(SMALL_SAC, feed=Replay(sequence_length=2))
    with pytest.raises(UserError, match="sequence_length"):
        MBPO(longer).init(env.spec, quick_key(0))
    with pytest.raises(UserError, match="priorities"):
        sampled = dataclasses.replace(CASES["mbpo"].method.method.feed, sampler=PrioritizedSampler())
        method = MBPO(dataclasses.replace(SMALL_SAC, feed=sampled), learner)
        CompiledLoop(Components(method, EnvironmentReward(), FixedCurriculum()), env, 2, [0], 100)


# -- the learned environment in use ----------------------------------------------------------------------------


EXACT = LearnedEnv(exact_model([LinearEnv()]), None, jnp.asarray([[1.0, -1.0]]), 50)


@pytest.mark.long
def test_evaluation_in_a_learned_environment():
    """A model that is exact: episodes of the environment and of its model are the same."""
    env, x = LinearEnv(), jnp.asarray([1.0, -1.0])
    method_state = jax.tree.map(lambda x: x[None], SMALL_SAC.init(env.spec, quick_key(0)))
    played = play_episodes(SMALL_SAC, method_state, HostWrapper(EXACT, 2), [0], Mode.EXPLOIT, num_kept=1)
    assert (played.episode_lengths == 50).all()
    (episode,) = played.episodes[0]
    truth = jax.jit(lambda x, action: (env.reward(x, action), env.mean_step(x, action)))
    for t in range(50):
        np.testing.assert_allclose(episode.view.observation[t], x, atol=1e-4)
        reward, x = truth(x, 2.0 * np.clip(episode.action[t], -1.0, 1.0))
        assert float(episode.reward[t]) == pytest.approx(float(reward), abs=1e-4)


@pytest.mark.slow
def test_a_method_trains_in_a_learned_environment(tmp_path):
    run = thespis.train(SMALL_SAC, env=EXACT, steps=60, episodes=2, out=tmp_path / "run")
    assert run.final_scores["greedy"]["lengths"] == [[50, 50]]


# -- learning --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_pendulum_is_swung_up_within_3000_steps(tmp_path):
    """Seeds 0 to 2 had -152 over 20 episodes each, and an IQM of -143 over 100: that of SAC after 50,000 steps."""
    run = thespis.train("mbpo", env="Pendulum-v1", seeds=3, episodes=20, out=tmp_path / "run")
    assert run.config["steps"] == 3_000
    assert np.mean(run.final_scores["greedy"]["scores"]) > -170
