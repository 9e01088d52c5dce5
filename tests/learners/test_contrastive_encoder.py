"""CLAM's contrastive encoder: it separates opponents by the learner's own view; PPO uses it and does not train it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.contracts import Mode
from thespis.core.records import Batch, Transition, View
from thespis.data.feeds import Rollouts
from thespis.methods.online.ppo import PPO
from thespis.papers.clam.attention_pooling import ContrastiveEncoder
from thespis.papers.clam.envs import RockPaperScissors, RockPaperScissorsParams
from thespis.papers.clam.method import CLAM

ENV, ROWS, TIME = RockPaperScissors(num_rounds=16, slip_prob=0.3), 90, 16


def batch(key):
    """A rollout with one episode per row and random actions, and the index of the opponent in each row."""
    opponent = np.arange(ROWS) % 9

    def row(opponent, key):
        def step(carry, key):
            match, observation = carry
            action = jax.random.randint(key, (), 0, 3)
            match, time_step = ENV.step(match, action, key)
            return (match, time_step.observation), (observation, action, time_step)

        match, reset_step = ENV.reset(RockPaperScissorsParams(opponent), key)
        _, episode = jax.lax.scan(step, (match, reset_step.observation), jax.random.split(key, TIME))
        return episode

    observation, action, time_step = jax.tree.map(
        lambda x: jnp.moveaxis(x, 0, 1), jax.vmap(row)(jnp.asarray(opponent), jax.random.split(key, ROWS))
    )
    is_first = jnp.zeros((TIME, ROWS), bool).at[0].set(True)
    extras = {"log_prob": jnp.full((TIME, ROWS), -np.log(3.0))}
    steps = Transition(
        View(observation),
        action,
        time_step.reward,
        time_step.terminated,
        time_step.truncated,
        View(time_step.observation),
        is_first,
        extras,
    )
    return Batch(steps, jnp.ones((TIME, ROWS), bool), (), jnp.int32(0)), opponent


@pytest.mark.slow
def test_encoder_separates_opponents_without_labels():
    contrast = ContrastiveEncoder(hidden_sizes=(32,), learning_rate=3e-3, num_epochs=2)
    init_model = contrast.init(ENV.spec.observation_space, jax.random.key(0))

    def step(model, key):
        steps, _ = batch(jax.random.fold_in(key, 1))
        return contrast.update(model, model.encoder.init_memory(ROWS), steps, key)

    trained, metrics = jax.jit(lambda m, k: jax.lax.scan(step, m, k))(
        init_model, jax.random.split(jax.random.key(1), 400)
    )
    known_batch, opponent = batch(jax.random.key(5))
    new_batch, _ = batch(jax.random.key(6))

    def accuracy(model):
        """Share of new episodes whose embedding is nearest to the mean of their own opponent."""
        known, new = (
            np.asarray(
                model.encoder.unroll(model.encoder.init_memory(ROWS), b.steps.view.observation, b.steps.is_first).mean[
                    -1
                ]
            )
            for b in (known_batch, new_batch)
        )
        centres = np.stack([known[opponent == m].mean(0) for m in range(9)])
        return np.mean(((new[:, None] - centres[None]) ** 2).sum(-1).argmin(1) == opponent)

    assert metrics["contrast_loss"][-1] < metrics["contrast_loss"][0] - 0.5
    assert accuracy(trained) > 0.6 and accuracy(trained) > accuracy(init_model) + 0.1


@pytest.mark.slow
def test_ppo_uses_the_embedding_and_does_not_train_the_encoder():
    rollout, _ = batch(jax.random.key(2))
    ppo = PPO(hidden_sizes=(8,), num_epochs=1, minibatch_size=TIME * ROWS, feed=Rollouts(TIME, ROWS))
    method = CLAM(ppo, ContrastiveEncoder(hidden_sizes=(8,), learning_rate=0.0))
    state = method.init(ENV.spec, jax.random.key(3))
    memory = method.init_memory(method.policy(state, Mode.EXPLORE), ROWS)
    new_state, report = jax.jit(method.update)(
        state, Batch(rollout.steps, rollout.mask, memory, rollout.update_index), jax.random.key(4)
    )
    unchanged = jax.tree.map(
        lambda a, b: bool((a == b).all()), state.agent_model_state.encoder, new_state.agent_model_state.encoder
    )
    assert all(jax.tree.leaves(unchanged)) and report.metrics["gradient"] > 0
    weight = new_state.method_state.network.body.mlp.layers[0].weight
    assert weight.shape == (8 + 8, 8)  # inputs: an embedding of 8, and two one-hot actions of 4
    moved = jnp.abs(weight - state.method_state.network.body.mlp.layers[0].weight).max(axis=1)
    assert moved[:8].min() > 0  # weights of the embedding

    views = jax.tree.map(lambda x: x[0], rollout.steps.view)
    actor = method.policy(state, Mode.EXPLOIT)
    _, memory, _ = method.act(actor, memory, views, jax.random.key(5))
    single_row = method.act(
        actor,
        jax.tree.map(lambda x: x[:1], method.init_memory(actor, ROWS)),
        jax.tree.map(lambda x: x[:1], views),
        jax.random.key(5),
    )
    np.testing.assert_allclose(memory[0].mean[0], single_row[1][0].mean[0], atol=1e-6)
    assert not np.allclose(memory[0].mean[0], 0.0)
