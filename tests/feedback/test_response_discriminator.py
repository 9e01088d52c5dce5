"""Discriminator rewards for dialogues: the loss against cross-entropy, the learned reward, and data of experts."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_dialogues import KEY, MODEL, TIME, make_dialogues

from thespis.core.errors import UserError
from thespis.curricula.fixed import FixedCurriculum
from thespis.envs.text.maze import Maze
from thespis.envs.text.task import TextEnv
from thespis.feedback.response_discriminator import (
    ResponseDiscriminator,
    ResponseDiscriminatorState,
    discriminator_loss,
)
from thespis.learners.language.dialogues import Dialogues
from thespis.learners.language.lm_agent import LMWithValueHead, add_value_head
from thespis.methods.language.grpo import GRPO
from thespis.training.assembly import load_feed_data
from thespis.training.components import Components
from thespis.training.run_config import make_feedback

ENV, EXPERT_ENV = TextEnv(Maze(size=2, max_turns=3)), TextEnv(Maze(size=2, max_turns=3, demonstrator_random_cells=0.0))
BLANK = {"model": "blank", "num_layers": 1, "hidden_size": 32, "num_pretrain_steps": 0, "compute_dtype": "float32"}


@pytest.mark.long
def test_loss_is_the_cross_entropy_over_turns():
    rng = np.random.default_rng(2)
    discriminator = LMWithValueHead(MODEL, *jax.device_put((rng.normal(size=32).astype("float32"), np.float32(0.3))))
    expert, actor = make_dialogues([8, 8, 2], 0), make_dialogues([3, 4, 5, 6], 1, turns=3)
    ends = [4 + 3 * t for t in range(3)]  # each response is read up to its end

    @jax.jit
    def both(discriminator, expert, actor):
        tokens = jnp.concatenate([expert.transcript, actor.transcript])
        features = [
            discriminator.model(tokens[:, :end], jnp.broadcast_to(jnp.arange(end), (7, end)))[:, -1] for end in ends
        ]
        return discriminator_loss(discriminator, expert, actor)[0], discriminator.value(jnp.stack(features))

    loss, logits = both(discriminator, expert, actor)
    d = 1 / (1 + np.exp(-np.asarray(logits, "float64")))
    expected = np.mean(-np.log(d[:2, :3])) + np.mean(-np.log(1 - d[:, 3:]))
    assert float(loss) == pytest.approx(expected, rel=1e-4)


@pytest.mark.long
def test_reward_is_the_logit_of_expert_against_actor():
    """Experts always start with 8, the actor in half of the rows: the optimal logit of such a turn is log 2."""
    feedback = ResponseDiscriminator(learning_rate=3e-3, max_reward=2.0)
    model = jax.jit(lambda: add_value_head(MODEL, 32))()
    state = ResponseDiscriminatorState(model, jax.jit(feedback.optimizer.init)(model))
    score = jax.jit(lambda state, dialogues: feedback.score_turns(state, dialogues, KEY))
    learn = jax.jit(lambda state, own, expert: feedback.learn(state, own, expert, KEY))
    for i in range(90):
        dialogues = make_dialogues([8, 3] * 8, seed=i // 3)
        if i == 0:
            np.testing.assert_array_equal(score(state, dialogues), 0.0)
        before = state
        state, metrics = learn(state, dialogues, make_dialogues([8] * 16, seed=50 + i % 4))
        if i == 0:
            assert float(metrics["discriminator_loss"]) == pytest.approx(2 * np.log(2), abs=1e-4)
            assert metrics["expert_accuracy"] == 0.0 and metrics["learner_accuracy"] == 1.0
    reward = np.asarray(score(before, dialogues))
    assert np.median(reward[0, ::2]) == pytest.approx(np.log(2), abs=0.4) and np.median(reward[0, 1::2]) < -1.0, reward
    assert np.abs(reward).max() <= 2.0 and (reward[2] == 0).all(), "rewards are clipped, and 0 after the end"
    other = dataclasses.replace(dialogues, reward=jax.device_put(np.full((TIME, 16), -5.0, "float32")))
    np.testing.assert_array_equal(score(before, other), reward)  # rewards of the environment are not used


@pytest.mark.long
def test_absorbing_state_is_rewarded_by_the_exact_log_odds():
    """Experts end after one of three turns, half of the policy's dialogues after two; the others are truncated."""
    feedback = ResponseDiscriminator(absorbing_state=True, max_reward=1.5)
    model = jax.jit(lambda: add_value_head(MODEL, 32))()
    opt_state = jax.jit(feedback.optimizer.init)(model)
    expert, policy = make_dialogues([8] * 4, seed=1, turns=1), make_dialogues([3, 4, 5, 6], seed=2)
    policy = dataclasses.replace(policy, truncated=jax.device_put(np.array([False, False, True, True])))
    state = ResponseDiscriminatorState(model, opt_state, jax.device_put(np.float32(0.0)))
    state, metrics = jax.jit(lambda state: feedback.learn(state, policy, expert, KEY))(state)
    expert_share, policy_share = 9 / 14, 3 / 12  # a turn more on either side
    logit = np.log(expert_share / policy_share)
    assert float(metrics["absorbing_logit"]) == pytest.approx(logit, rel=1e-5)
    weights = 2 - expert_share - policy_share  # a head of zeros: each class has a cross-entropy of log 2
    assert float(metrics["discriminator_loss"]) == pytest.approx(weights * np.log(2), rel=1e-4)
    before = ResponseDiscriminatorState(model, opt_state, state.absorbing_logit)
    score = jax.jit(lambda state, dialogues: feedback.score_turns(state, dialogues, KEY))
    expected = np.zeros((TIME, 4))
    expected[1, :2] = logit
    np.testing.assert_allclose(score(before, policy), expected, rtol=1e-5)
    expected = np.zeros((TIME, 4))
    expected[0] = 2 * 1.5  # two turns in the absorbing state, each with a clipped reward
    far = dataclasses.replace(before, absorbing_logit=jax.device_put(np.float32(9.0)))
    np.testing.assert_allclose(score(far, expert), expected, rtol=1e-5)


@pytest.mark.long
def test_weight_decay_is_decoupled():
    model = jax.jit(lambda: add_value_head(MODEL, 32))()
    dialogues = make_dialogues([8, 3]), make_dialogues([8, 8], seed=1)

    def learned(weight_decay: float) -> tuple[np.ndarray, np.ndarray]:
        feedback = ResponseDiscriminator(learning_rate=0.1, weight_decay=weight_decay)
        state = ResponseDiscriminatorState(model, feedback.optimizer.init(model))
        state, _ = jax.jit(lambda state: feedback.learn(state, *dialogues, KEY))(state)
        return np.asarray(state.model.model.embedding), np.asarray(model.model.embedding)

    (decayed, initial), (plain, _) = learned(0.5), learned(0.0)
    np.testing.assert_allclose(plain - decayed, 0.05 * initial, atol=1e-6)


def experts(data: str, batch_size: int = 64) -> Dialogues:
    """Dialogues of experts that a discriminator gets in one batch, beside a method in ``ENV``."""
    feedback = ResponseDiscriminator(data=data, batch_size=batch_size, **BLANK)
    sampler = load_feed_data(Components(GRPO(), feedback, FixedCurriculum()), ENV).feedback  # pyright: ignore
    return jax.jit(lambda sampler, key: Dialogues.from_transitions(*sampler.sample(key)))(sampler, KEY)


@pytest.mark.slow
def test_experts_are_demonstrations_of_this_or_another_environment():
    noiseless = experts("demonstrations:20:thespis.evidence.language_tasks:MAZE_2X2_EXPERT")
    assert noiseless.alive.shape[1] == 64 and (noiseless.returns == 1).all(), "the noiseless expert always arrives"
    assert not (experts("demonstrations:20").returns == 1).all()
    with pytest.raises(UserError, match="demonstrations:4:text:echo has observations of"):
        experts("demonstrations:4:text:echo")


def test_discriminator_is_set_by_name():
    feedback = make_feedback("response-discriminator", ["data=runs/experts", "num_updates=3"])
    assert feedback == ResponseDiscriminator(data="runs/experts", num_updates=3)
    assert feedback.feed.data == "runs/experts" and feedback.feed.num_updates == 3
