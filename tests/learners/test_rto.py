"""RTO: its advantages against GAE of dense rewards by a loop, its two stages, and what its reward of tokens learns."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from synthetic_batches import quick_key

from thespis.core.contracts import Mode
from thespis.core.records import Batch, Transition
from thespis.data.feeds import Episodes
from thespis.envs.text.review import BLAME, PRAISE, Review
from thespis.envs.text.task import TextEnv
from thespis.learners.language.advantage_estimators import TokenGAE
from thespis.learners.language.dialogues import sampled_dialogues
from thespis.methods.language.rto import RTO
from thespis.runtime.keys import fold
from thespis.training.components import with_array_leaves

ENV = TextEnv(Review(num_clauses=2))
ROWS, DISCOUNT, GAE_LAMBDA = 64, 0.9, 0.8
SETTINGS = {
    "model": "blank",
    "num_layers": 1,
    "hidden_size": 32,
    "learning_rate": 1e-3,
    "feed": Episodes(max_steps=1, group_size=2, num_envs=ROWS),
}


@pytest.fixture(scope="module")
def parts():
    """Method, its compiled update, its state, another one with random models, and a function that samples a batch."""
    estimator = TokenGAE(gae_lambda=GAE_LAMBDA, discount=DISCOUNT)
    method = with_array_leaves(
        RTO(**SETTINGS, advantage_estimator=estimator, num_preference_updates=2, token_reward_clip=0.1)
    )
    state = jax.jit(lambda: method.init(ENV.spec, quick_key(0)))()
    noise = jax.tree.map(
        lambda x: x + 0.1 * jax.random.normal(quick_key(x.size), x.shape), (state.preference_model, state.model)
    )
    trained = dataclasses.replace(state, preference_model=noise[0], model=noise[1])

    @jax.jit
    def sample(state, update_index, key):
        keys = jnp.repeat(jax.random.split(fold(key, "prompts"), ROWS // 2), 2)
        env_states, first = jax.vmap(ENV.reset, in_axes=(None, 0))((), keys)
        policy = method.policy(state, Mode.EXPLORE)
        responses, _, extras = method.act(policy, method.init_memory(policy, ROWS), first.view, fold(key, "respond"))
        _, last = jax.vmap(ENV.step)(env_states, responses, jax.random.split(fold(key, "step"), ROWS))
        alive = jnp.ones(ROWS, bool)
        fields = first.view, responses, last.reward, last.terminated, last.truncated, last.view, alive, extras
        steps = jax.tree.map(lambda x: x[None], Transition(*fields))
        return Batch(steps, alive[None], (), update_index)

    return method, jax.jit(lambda *args: method.update(*args)), state, trained, sample


@pytest.mark.long
def test_advantages_are_those_of_gae_with_a_reward_at_each_token(parts):
    method, _, _, trained, sample = parts
    batch = sample(trained, jnp.int32(5), quick_key(1))
    dialogues = sampled_dialogues(batch.steps, batch.mask)
    ppo = dataclasses.replace(method, token_reward_coef=jnp.float32(0.0))
    estimate = jax.jit(lambda method: method.estimate_advantages(trained, dialogues, 2)[1])
    result, plain = estimate(method), estimate(ppo)
    log_ratio = [
        dialogues.response_log_probs(model, method.sampler)[0][0]
        for model in (trained.preference_model, trained.initial_model)
    ]
    rewards = np.clip(0.05 * np.asarray(log_ratio[0] - log_ratio[1]), -0.1, 0.1)
    values, mask = np.asarray(plain.value[0]), np.asarray(dialogues.response_mask[0])
    assert (np.abs(rewards[mask]) < 0.0999).mean() > 0.1 and np.abs(rewards[mask]).max() > 0.01
    for row in range(ROWS):
        tokens, advantage, following = np.flatnonzero(mask[row]), 0.0, 0.0
        for i, token in reversed(list(enumerate(tokens))):
            reward = rewards[row, token] + (float(dialogues.reward[0, row]) if i == len(tokens) - 1 else 0.0)
            advantage = reward + DISCOUNT * following - values[row, token] + DISCOUNT * GAE_LAMBDA * advantage
            following = values[row, token]
            np.testing.assert_allclose(result.advantage[0, row, token], advantage, rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(result.target[0, row, token], advantage + following, rtol=1e-4, atol=1e-4)


@pytest.mark.long
def test_the_policy_is_trained_after_the_preference_model(parts):
    _, update, state, _, sample = parts

    def changed(before, after):
        return any((a != b).any() for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True))

    for index, is_first_stage in ((0, True), (1, True), (2, False), (3, False)):
        new, _ = update(state, sample(state, jnp.int32(index), quick_key(index)), quick_key(index))
        assert changed(state.preference_model, new.preference_model) == is_first_stage
        assert changed(state.preference_opt_state, new.preference_opt_state) == is_first_stage
        assert changed((state.model, state.opt_state), (new.model, new.opt_state)) != is_first_stage
        assert not changed((state.initial_model, state.reference), (new.initial_model, new.reference))
        state = new


@pytest.mark.slow
def test_words_that_are_preferred_have_the_larger_reward(parts):
    """From returns of whole reviews, of random words, DPO learns which words they count."""
    method, update, state, _, sample = parts
    for index in range(30):
        state, _ = update(state, sample(state, jnp.int32(0), quick_key(index)), quick_key(index))
    batch = sample(state, jnp.int32(5), quick_key(99))
    dialogues = sampled_dialogues(batch.steps, batch.mask)
    rewards, spec = np.asarray(method.token_rewards(state, dialogues)), ENV.task.task_spec
    praise, blame = (
        rewards[np.isin(np.asarray(dialogues.responses), spec.encode(" ".join(words)))] for words in (PRAISE, BLAME)
    )
    assert min(len(praise), len(blame)) > 20 and praise.mean() > blame.mean() + 0.01
    np.testing.assert_array_equal(rewards[~np.asarray(dialogues.response_mask)], 0.0)


def test_groups_without_pairs_are_refused():
    with pytest.raises(ValueError, match="an even number"):
        RTO(feed=Episodes(group_size=3, num_envs=6))
