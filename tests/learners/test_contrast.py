"""What an encoder learns of rivals, from the learner's own view alone, and what PPO is told of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.contracts import Mode
from thespis.core.feeds import Rollouts
from thespis.core.records import Batch, Transition, View
from thespis.envs.compiled.rivals import Rival, Rivals
from thespis.learners.contrast import Contrast
from thespis.methods.online.clam import CLAM
from thespis.methods.online.ppo import PPO

WORLD, ROWS, TIME = Rivals(rounds=16, slip=0.3), 90, 16


def batch(key):
    """A rollout of one episode in each row, the learner choosing at random; and who the rivals were."""
    member = np.arange(ROWS) % 9

    def row(member, key):
        def step(carry, key):
            match, seen = carry
            choice = jax.random.randint(key, (), 0, 3)
            match, answer = WORLD.step(match, choice, key)
            return (match, answer.observation), (seen, choice, answer)

        match, first = WORLD.reset(Rival(member), key)
        _, found = jax.lax.scan(step, (match, first.observation), jax.random.split(key, TIME))
        return found

    seen, choice, answer = jax.tree.map(
        lambda x: jnp.moveaxis(x, 0, 1), jax.vmap(row)(jnp.asarray(member), jax.random.split(key, ROWS))
    )
    first = jnp.zeros((TIME, ROWS), bool).at[0].set(True)
    extras = {"log_prob": jnp.full((TIME, ROWS), -np.log(3.0))}
    steps = Transition(View(seen), choice, answer.reward, answer.terminated, answer.truncated,
                       View(answer.observation), first, extras)  # fmt: skip
    return Batch(steps, jnp.ones((TIME, ROWS), bool), (), jnp.int32(0)), member


@pytest.mark.slow
def test_an_encoder_that_nobody_told_tells_rivals_apart():
    contrast = Contrast(hidden=(32,), learning_rate=3e-3, passes=2)
    begun = contrast.init(WORLD.spec.observation, jax.random.key(0))

    def step(model, key):
        steps, _ = batch(jax.random.fold_in(key, 1))
        return contrast.learn(model, model.encoder.begin(ROWS), steps, key)

    learnt, metrics = jax.jit(lambda m, k: jax.lax.scan(step, m, k))(begun, jax.random.split(jax.random.key(1), 400))
    seen, member = batch(jax.random.key(5))
    fresh, _ = batch(jax.random.key(6))

    def share(model):
        """How many episodes lie nearest to the mean of their own rival in others."""
        known, new = (np.asarray(model.encoder.unroll(model.encoder.begin(ROWS), b.steps.view.observation,
                      b.steps.first).mean[-1]) for b in (seen, fresh))  # fmt: skip
        centres = np.stack([known[member == m].mean(0) for m in range(9)])
        return np.mean(((new[:, None] - centres[None]) ** 2).sum(-1).argmin(1) == member)

    assert metrics["contrast_loss"][-1] < metrics["contrast_loss"][0] - 0.5
    assert share(learnt) > 0.6 and share(learnt) > share(begun) + 0.1


@pytest.mark.slow
def test_ppo_is_told_and_does_not_teach_the_encoder():
    steps, _ = batch(jax.random.key(2))
    ppo = PPO(hidden=(8,), epochs=1, minibatch=TIME * ROWS, feed=Rollouts(TIME, ROWS))
    still = CLAM(ppo, Contrast(hidden=(8,), learning_rate=0.0))
    state = still.init(WORLD.spec, jax.random.key(3))
    memory = still.begin(still.policy(state, Mode.EXPLORE), ROWS)
    after, report = jax.jit(still.update)(state, Batch(steps.steps, steps.mask, memory, steps.index), jax.random.key(4))
    same = jax.tree.map(lambda a, b: bool((a == b).all()), state.model.encoder, after.model.encoder)
    assert all(jax.tree.leaves(same)) and report.metrics["gradient"] > 0
    first = after.learnt.network.body.mlp.layers[0].weight
    assert first.shape == (8 + 8, 8)  # what the encoder says, and two choices of four
    moved = jnp.abs(first - state.learnt.network.body.mlp.layers[0].weight).max(axis=1)
    assert moved[:8].min() > 0  # by what the encoder said

    views = jax.tree.map(lambda x: x[0], steps.steps.view)
    actor = still.policy(state, Mode.EXPLOIT)
    _, memory, _ = still.act(actor, memory, views, jax.random.key(5))
    alone = still.act(actor, jax.tree.map(lambda x: x[:1], still.begin(actor, ROWS)),
                      jax.tree.map(lambda x: x[:1], views), jax.random.key(5))  # fmt: skip
    np.testing.assert_allclose(memory[0].mean[0], alone[1][0].mean[0], atol=1e-6)
    assert not np.allclose(memory[0].mean[0], 0.0)
