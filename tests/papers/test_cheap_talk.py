"""Cheap talk: messages against NumPy, unchanged dynamics, and inner training against the compiled loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_envs import TREE, Walk

from thespis.core.errors import UserError
from thespis.core.laws.components import check_environment
from thespis.core.spaces import Box, Discrete
from thespis.curricula.fixed import FixedCurriculum
from thespis.data.feeds import Rollouts
from thespis.feedback.environment import EnvironmentReward
from thespis.methods.online.a2c import A2C
from thespis.papers.adversarial_cheap_talk.envs import CheapTalk, CheapTalkParams, MetaTrainingEnv
from thespis.papers.adversarial_cheap_talk.method import ES
from thespis.runtime.keys import fold, seed_key
from thespis.training.compiled_loop import CompiledLoop
from thespis.training.components import Components

WALK = Walk(Discrete(3))
TALK_ENV = CheapTalk(WALK, message_size=2, hidden_size=4, message_scale=3.0)
LEARNER = A2C(hidden_sizes=(4,), feed=Rollouts(num_steps=3, num_envs=2))


def reference_message(speaker_params: np.ndarray, obs: np.ndarray) -> np.ndarray:
    """The equation of the module in NumPy: 3 inputs, 4 hidden units, 2 outputs."""
    weights, bias, last_weights, last_bias = (
        speaker_params[:12].reshape(4, 3),
        speaker_params[12:16],
        speaker_params[16:24].reshape(2, 4),
        speaker_params[24:],
    )
    return 3.0 * np.tanh(last_weights @ np.tanh(weights @ obs / 3**0.5 + bias) / 2 + last_bias)


def test_message_depends_on_the_observation_and_changes_nothing_else():
    speaker_params = np.asarray(jax.random.normal(seed_key(1), (TALK_ENV.num_params,)))
    assert (
        TALK_ENV.num_params == 26
        and TALK_ENV.spec.observation_space == Box((5,))
        and TALK_ENV.spec.time_limit == WALK.limit
    )
    params = CheapTalkParams(jnp.asarray(speaker_params), WALK.spec.params)
    (talk_state, talk_step), (plain_state, plain_step) = (
        TALK_ENV.reset(params, seed_key(2)),
        WALK.reset(WALK.spec.params, seed_key(2)),
    )
    for t in range(4):
        np.testing.assert_array_equal(talk_step.observation[:3], plain_step.observation)
        np.testing.assert_allclose(
            talk_step.observation[3:], reference_message(speaker_params, np.asarray(plain_step.observation)), rtol=1e-5
        )
        assert (talk_step.reward, talk_step.terminated, talk_step.truncated) == (
            plain_step.reward,
            plain_step.terminated,
            plain_step.truncated,
        )
        action, key = jnp.int32(t % 3), fold(seed_key(3), "step", t)
        (talk_state, talk_step), (plain_state, plain_step) = (
            TALK_ENV.step(talk_state, action, key),
            WALK.step(plain_state, action, key),
        )
    assert (TALK_ENV.reset(TALK_ENV.spec.params, seed_key(2))[1].observation[3:] == 0).all(), (
        "zero parameters give zero messages"
    )


@pytest.mark.slow
def test_inner_training_matches_the_compiled_loop():
    """Same learner and environment with other random keys: the means over many seeds agree."""
    meta_env = MetaTrainingEnv(TALK_ENV, LEARNER, num_updates=20)
    zero_params = jnp.zeros(TALK_ENV.num_params)
    inner_returns = jax.jit(jax.vmap(lambda key: meta_env.training_returns(zero_params, key)))(
        jax.random.split(seed_key(0), 200)
    )
    loop = CompiledLoop(
        Components(LEARNER, EnvironmentReward(), FixedCurriculum()), TALK_ENV, 2, list(range(200)), 1_000
    )
    carry = loop.advance(loop.init(), 20)
    metrics = loop.pop_metric_sums(carry)[1]
    per_step = metrics.return_sum.sum() / metrics.length_sum.sum()
    num_steps, num_episodes = 20 * 6 * 200, metrics.num_episodes.sum()
    expected = per_step * num_steps / (num_episodes + 200 * 20 * 2)
    assert np.asarray(inner_returns).mean() == pytest.approx(expected, abs=0.05)


@pytest.mark.slow
def test_meta_training_env_contract_and_reward_sign():
    meta_env = MetaTrainingEnv(TALK_ENV, LEARNER, num_updates=1)
    check_environment(meta_env, num_steps=2)
    step = jax.jit(meta_env.step)
    state, _ = meta_env.reset((), seed_key(0))
    harm_reward = step(state, jnp.ones(26), seed_key(5))[1].reward
    help_reward = (
        MetaTrainingEnv(TALK_ENV, LEARNER, num_updates=1, reward_sign=1.0)
        .step(state, jnp.ones(26), seed_key(5))[1]
        .reward
    )
    assert harm_reward == pytest.approx(-float(help_reward)) and float(help_reward) != 0


def test_errors_for_unsupported_spaces():
    with pytest.raises(UserError, match="one vector"):
        _ = CheapTalk(Walk(observation=TREE)).spec
    with pytest.raises(UserError, match="one box"):
        ES().init(WALK.spec, seed_key(0))
