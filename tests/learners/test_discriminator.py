"""Discriminator rewards for dialogues: the loss against cross-entropy, the learned reward, and expert data sets."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_dialogues import DIALOGUE_SPEC, KEY, MODEL, TIME, make_dialogues
from synthetic_batches import quick_key

from thespis.core.errors import UserError
from thespis.core.laws.components import check_method
from thespis.data.feeds import Episodes
from thespis.envs.text.maze import Maze
from thespis.envs.text.task import TextEnv
from thespis.learners.language.advantage_estimators import TurnGAE
from thespis.learners.language.discriminator import (
    EXPERT_CACHE_PREFIX,
    Discriminator,
    DiscriminatorState,
    discriminator_loss,
    expert_cache_path,
    load_experts,
)
from thespis.learners.language.lm_agent import LMWithValueHead, add_value_head
from thespis.learners.language.progress_attribution import turn_scores
from thespis.methods.language.ppo_lm import LanguagePPO
from thespis.runs.config import apply_settings
from thespis.training.data_sources import demonstration_dataset, with_expert_data

ENV, EXPERT_ENV = TextEnv(Maze(size=2, max_turns=3)), TextEnv(Maze(size=2, max_turns=3, demonstrator_random_cells=0.0))


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


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


def test_reward_is_the_logit_of_expert_against_actor():
    """Experts always start with 8, the actor in half of the rows: the optimal logit of such a turn is log 2."""
    transform = Discriminator(learning_rate=3e-3, num_gradient_steps=3, max_reward=2.0)
    state = jax.jit(lambda: (discriminator := add_value_head(MODEL, 32), transform.optimizer.init(discriminator)))()
    state = DiscriminatorState(*state, expert_dialogues=make_dialogues([8] * 64, seed=50))
    step = jax.jit(lambda state, dialogues, key: transform(state, dialogues, 1, key))
    for i in range(30):
        dialogues = make_dialogues([8, 3] * 8, seed=i)
        state, scored, metrics = step(state, dialogues, quick_key(i))
        if i == 0:
            np.testing.assert_array_equal(scored.reward, 0.0)
            assert float(metrics["discriminator_loss"]) <= 2 * np.log(2) + 1e-4
    reward = np.asarray(scored.reward)
    assert np.median(reward[0, ::2]) == pytest.approx(np.log(2), abs=0.4) and np.median(reward[0, 1::2]) < -1.0, reward
    assert np.abs(reward).max() <= 2.0 and (reward[2] == 0).all(), "rewards are clipped, and 0 after the end"
    other_rewards = make_dialogues([8, 3] * 8, seed=4)
    other_rewards = dataclasses.replace(other_rewards, reward=jax.device_put(np.full((TIME, 16), -5.0, "float32")))
    rewards = [step(state, t, quick_key(0))[1].reward for t in (make_dialogues([8, 3] * 8, seed=4), other_rewards)]
    np.testing.assert_array_equal(*rewards)  # rewards of the environment are not used


def test_expert_dialogues_are_cached_and_loaded():
    method = LanguagePPO(rollout_transform=Discriminator("demonstrations:7"))
    fitted = with_expert_data(method, EXPERT_ENV)
    assert fitted.rollout_transform.expert_data.startswith("shown:") and with_expert_data(fitted, EXPERT_ENV) == fitted
    path, demonstrations = (
        expert_cache_path(fitted.rollout_transform.expert_data.removeprefix(EXPERT_CACHE_PREFIX)),
        demonstration_dataset(EXPERT_ENV, 7).steps,
    )

    @jax.jit
    def load():
        state, loaded = fitted.rollout_transform.init(MODEL, DIALOGUE_SPEC, TIME, KEY), load_experts(str(path))
        return (
            state,
            loaded,
            turn_scores(LMWithValueHead(state.model.model, jnp.ones(32), jnp.zeros(())), state.expert_dialogues),
        )

    state, loaded, scores = jax.tree.map(np.asarray, load())
    jax.tree.map(np.testing.assert_array_equal, state.expert_dialogues, loaded)
    jax.tree.map(np.testing.assert_array_equal, state.model.model, MODEL)
    assert (state.model.value_weight == 0).all() and state.model.value_bias == 0
    assert loaded.alive.shape[1] == 7 and (np.where(loaded.alive, loaded.reward, 0.0).sum(axis=0) == 1).all()
    row, turn = np.nonzero(loaded.alive.T)
    np.testing.assert_array_equal(loaded.responses[turn, row], demonstrations.action)
    assert (scores[~loaded.alive] == 0).all()


@pytest.mark.slow
def test_experts_of_another_environment(monkeypatch):
    from thespis.evidence import language_tasks

    with_expert = with_expert_data(
        LanguagePPO(
            rollout_transform=Discriminator("demonstrations:20:thespis.evidence.language_tasks:MAZE_2X2_EXPERT")
        ),
        ENV,
    )
    assert bool((load_experts(with_expert.rollout_transform.expert_data).returns == 1).all()), (
        "the noiseless expert always arrives"
    )
    with_noise = with_expert_data(LanguagePPO(rollout_transform=Discriminator("demonstrations:20")), ENV)
    assert not (load_experts(with_noise.rollout_transform.expert_data).returns == 1).all()
    assert language_tasks.MAZE_2X2_EXPERT.spec.action_space == ENV.spec.action_space
    with pytest.raises(UserError, match="has another vocabulary"):
        with_expert_data(LanguagePPO(rollout_transform=Discriminator("demonstrations:4:text:echo")), ENV)
    with pytest.raises(UserError, match="expert dialogues cached in"):
        load_experts("shown:nothing")


@pytest.mark.slow
def test_method_laws_hold_with_expert_data():
    method = LanguagePPO(
        model="blank",
        num_layers=1,
        hidden_size=32,
        minibatch_size=2,
        advantage_estimator=TurnGAE(),
        feed=Episodes(3, num_envs=3),
        rollout_transform=Discriminator("demonstrations:5"),
    )
    check_method(with_expert_data(method, ENV), ENV.spec)


def test_discriminator_is_set_by_name():
    method = apply_settings(
        LanguagePPO(), ["rollout_transform=Discriminator", "rollout_transform.expert_data=runs/experts"]
    )
    assert method.rollout_transform.expert_data == "runs/experts"
