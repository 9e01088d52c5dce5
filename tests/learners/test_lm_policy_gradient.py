"""Policy gradients for language models: sampler and trainer agree on log-probabilities; padding changes nothing."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.actors.lm_policy import response_features, token_log_probs
from thespis.core.contracts import Mode
from thespis.core.records import Batch
from thespis.curricula.fixed import FixedCurriculum
from thespis.data.feeds import Episodes
from thespis.data.ring_buffer import first_episode_mask
from thespis.envs.text.maze import Maze
from thespis.envs.text.task import TextEnv
from thespis.feedback.environment import EnvironmentReward
from thespis.language.sampling import TemperatureSampler
from thespis.learners.language.advantage_estimators import RewardToGo, TokenGAE, TurnGAE
from thespis.methods.language.grpo import GRPO
from thespis.methods.language.ppo_lm import LanguagePPO
from thespis.methods.language.rloo import RLOO
from thespis.runtime.keys import fold, seed_key
from thespis.training.compiled_loop import CompiledLoop
from thespis.training.components import Components, with_array_leaves

TURNS, ROWS = 4, 6
ENV = TextEnv(Maze(size=2, max_turns=TURNS))
SMALL = {
    "model": "blank",
    "num_layers": 1,
    "hidden_size": 32,
    "minibatch_size": 3,
    "feed": Episodes(TURNS, group_size=3, num_envs=ROWS),
}


EPISODE_MASK = jax.jit(first_episode_mask)


@jax.jit
def one_pass_log_probs(model, transcript, starts, responses):
    """Log-probabilities of the responses, in one pass over each dialogue."""
    return token_log_probs(model, TemperatureSampler(0.7), response_features(model, transcript, starts, 2), responses)[
        0
    ]


def init_state(method):
    return jax.jit(lambda key: method.init(ENV.spec, key))(seed_key(1))


@pytest.fixture(scope="module")
def dialogues():
    """Method, state and transitions ``[time, env]`` of one block of a compiled loop; the policy is far from uniform."""
    method = with_array_leaves(RLOO(**SMALL | {"num_layers": 2}, temperature=0.7))
    state = init_state(method)
    model = jax.tree.map(lambda x: jnp.asarray(3 * np.asarray(x)), state.model.model)
    state = dataclasses.replace(state, model=dataclasses.replace(state.model, model=model))
    loop = CompiledLoop(Components(method, EnvironmentReward(), FixedCurriculum()), ENV, ROWS, [0], 100)
    carry = loop.init()

    def block(parts, root, learner, env_state):
        env_state = loop._reset_envs(parts, learner.curriculum, root, jnp.int32(0), env_state.memory)
        policy = parts.method.policy(learner.method, Mode.EXPLORE)
        return loop._collect(parts, root, policy, learner.curriculum, env_state, jnp.arange(TURNS))[1][0]

    @jax.jit
    def run_block(parts, carry, state):
        root, learner, env_state = jax.tree.map(lambda x: x[0], (carry.root_keys, carry.learner, carry.env_state))
        return block(parts, root, dataclasses.replace(learner, method=state), env_state)

    return method, state, jax.tree.map(np.asarray, run_block(loop.components, carry, state))


def test_groups_share_their_start_and_diverge(dialogues):
    _, _, steps = dialogues
    observations = np.asarray(steps.view.observation)
    assert (observations[0].reshape(2, 3, -1) == observations[0].reshape(2, 3, -1)[:, :1]).all()
    assert (observations[0][0] != observations[0][3]).any() or (observations[-1][0] != observations[-1][3]).any()
    assert (observations[-1].reshape(2, 3, -1) != observations[-1].reshape(2, 3, -1)[:, :1]).any()


def test_sampler_and_trainer_agree_over_turns(dialogues):
    """Log-probabilities with the cache kept between turns equal those of one pass over the whole dialogue."""
    _, state, steps = dialogues
    mask = np.asarray(EPISODE_MASK(steps.done))
    last = mask.sum(axis=0) - 1
    transcript = steps.next_view.observation[last, np.arange(ROWS)]
    starts = (steps.view.observation >= 0).sum(axis=-1)
    log_probs = one_pass_log_probs(state.model.model, transcript, starts, steps.action)
    is_token = np.asarray((steps.action >= 0) & mask[..., None])
    assert is_token.sum() > 20
    np.testing.assert_allclose(np.asarray(log_probs)[is_token], np.asarray(steps.extras)[is_token], atol=1e-5)
    # the transcript contains each response at its start, token by token
    for t in range(TURNS):
        for row in range(ROWS):
            for i in np.flatnonzero(is_token[t, row]):
                assert transcript[row, starts[t, row] + i] == steps.action[t, row, i]


@pytest.mark.long
@pytest.mark.parametrize("estimator", [None, TurnGAE(), TokenGAE(), RewardToGo()], ids=lambda x: type(x).__name__)
def test_padding_and_the_last_reply_change_nothing(dialogues, estimator):
    _, _, steps = dialogues
    kind = GRPO if estimator is None else LanguagePPO
    method = with_array_leaves(kind(**SMALL) if estimator is None else kind(**SMALL, advantage_estimator=estimator))
    state = init_state(method)
    terminated = steps.terminated.copy()
    terminated[1, 0] = True
    steps = dataclasses.replace(steps, terminated=terminated)
    mask = np.asarray(EPISODE_MASK(steps.done))
    update = jax.jit(lambda *args: method.update(*args))
    batch = Batch(steps, mask, (), jnp.int32(0))
    result = update(state, batch, seed_key(2))

    rng = np.random.default_rng(0)
    padding = ~mask

    def randomize(x):
        noise = rng.integers(0, 5, x.shape).astype(x.dtype) if x.dtype != bool else rng.uniform(size=x.shape) < 0.5
        return np.where(padding.reshape(padding.shape + (1,) * (x.ndim - 2)), noise, x)

    changed = jax.tree.map(randomize, steps)
    changed_result = update(state, Batch(changed, mask, (), jnp.int32(0)), seed_key(2))
    for a, b in zip(jax.tree.leaves(result), jax.tree.leaves(changed_result), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    assert padding.any()

    # no one reads the reply to the last response: only the critic of a truncated dialogue uses it
    ended = (steps.terminated & mask).any(axis=0)
    final = steps.next_view.observation
    starts = (steps.view.observation >= 0).sum(axis=-1) + (steps.action >= 0).sum(axis=-1)
    positions = np.arange(final.shape[-1])
    over = steps.terminated & ended
    reply = (positions >= starts[..., None]) & (final >= 0) & over[..., None]
    changed_reply = dataclasses.replace(steps.next_view, observation=np.where(reply, 3, final).astype(final.dtype))
    reply_result = update(
        state, Batch(dataclasses.replace(steps, next_view=changed_reply), mask, (), jnp.int32(0)), seed_key(2)
    )
    for a, b in zip(jax.tree.leaves(result), jax.tree.leaves(reply_result), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.long
def test_bfloat16_compute_keeps_float32_parameters(dialogues):
    """The update has nearly the direction of float32, and all parameters stay float32."""
    _, _, steps = dialogues
    batch, steps_taken = Batch(steps, np.asarray(EPISODE_MASK(steps.done)), (), jnp.int32(0)), []
    for compute in ("float32", "bfloat16"):
        method = with_array_leaves(RLOO(**SMALL, compute_dtype=compute, learning_rate=1e-3))
        state = init_state(method)
        new_state, report = jax.jit(lambda *args, method=method: method.update(*args))(state, batch, seed_key(2))
        assert new_state.model.model.compute_dtype == compute and np.isfinite(report.metrics["gradient"])
        assert {leaf.dtype for leaf in jax.tree.leaves(new_state.model)} == {jnp.dtype("float32")}
        old_params, new_params = (
            np.concatenate([np.ravel(x) for x in jax.tree.leaves(x_state.model)]) for x_state in (state, new_state)
        )
        steps_taken.append(new_params - old_params)
    exact, rounded = steps_taken
    assert 0.9 < exact @ rounded / (np.linalg.norm(exact) * np.linalg.norm(rounded)) < 1 - 1e-9


@pytest.mark.long
def test_cache_can_be_reused_without_limit(dialogues):
    """Rows restart at any time and the ring buffer is overwritten: log-probabilities still equal those of one pass."""
    method, state, _ = dialogues
    policy = method.policy(state, Mode.EXPLORE)
    act, rng = jax.jit(lambda *args: method.act(*args)), np.random.default_rng(0)
    reset = jax.jit(lambda key: jax.vmap(ENV.reset, in_axes=(None, 0))((), jax.random.split(key, ROWS)))
    empty_memory = jax.tree.map(np.asarray, method.init_memory(policy, ROWS))

    @jax.jit
    def env_step(env_state, action, tick):
        keys = jax.random.split(fold(seed_key(4), "step", tick), ROWS)
        return *jax.vmap(ENV.step)(env_state, action, keys), *reset(fold(seed_key(5), "r", tick))

    env_state, time_step = jax.tree.map(np.asarray, reset(seed_key(3)))
    memory, observations = empty_memory, time_step.observation
    for tick in range(3 * TURNS):
        view = dataclasses.replace(time_step.view, observation=observations)
        action, memory, logs = jax.tree.map(np.asarray, act(policy, memory, view, seed_key(tick)))
        count = (observations >= 0).sum(axis=1)
        transcript = np.full((ROWS, observations.shape[1]), -1, observations.dtype)
        for row in range(ROWS):
            response = action[row][action[row] >= 0]
            transcript[row, : count[row]] = observations[row][: count[row]]
            transcript[row, count[row] : count[row] + len(response)] = response
        log_probs = one_pass_log_probs(state.model.model, transcript, count[None].astype("int32"), action[None])[0]
        is_token = action >= 0
        np.testing.assert_allclose(np.asarray(log_probs)[is_token], logs[is_token], atol=1e-5)
        env_state, step, new_env_state, first_step = jax.tree.map(np.asarray, env_step(env_state, action, tick))
        restarts = step.terminated | step.truncated | (rng.uniform(size=ROWS) < 0.2)

        def choose(a, b, restarts=restarts):
            return np.where(restarts.reshape(-1, *[1] * (a.ndim - 1)), a, b)

        env_state = jax.tree.map(choose, new_env_state, env_state)
        memory = jax.tree.map(choose, empty_memory, memory)
        observations = choose(first_step.observation, step.observation)


@jax.jit
def update(method, state, batch, key):
    """Update of a method whose numbers are arrays: those that differ in numbers alone share a program."""
    return method.update(state, batch, key)


@pytest.mark.long
def test_a_separate_value_model_learns_alone(dialogues):
    """Values are those of its own head and decoder, and their loss does not change the policy; a shared one does."""
    _, _, steps = dialogues
    batch = Batch(steps, np.asarray(EPISODE_MASK(steps.done)), (), jnp.int32(0))
    head = np.linspace(-1, 1, 32, dtype="float32")

    def flat(model):
        return np.concatenate([np.ravel(x) for x in jax.tree.leaves(model)])

    def learn(separate, vf_coef):
        settings = {"separate_value_model": separate, "vf_coef": vf_coef, "max_grad_norm": 1e6, "num_epochs": 1}
        method = with_array_leaves(LanguagePPO(**SMALL, **settings))
        state = init_state(method)
        assert (state.model.value_model is not None) == separate
        state = dataclasses.replace(state, model=dataclasses.replace(state.model, value_weight=jnp.asarray(head)))
        return method, state, update(method, state, batch, seed_key(2))[0]

    method, before, after = learn(True, 1.0)
    _, _, policy_alone = learn(True, 0.0)
    assert (flat(after.model.model) == flat(policy_alone.model.model)).all()
    assert (flat(before.model.model) != flat(after.model.model)).any()
    assert (flat(before.model.value_model) == flat(before.model.model)).all()
    assert (flat(before.model.value_model) == flat(policy_alone.model.value_model)).all()
    assert (flat(before.model.value_model) != flat(after.model.value_model)).any()
    shared = [flat(learn(False, vf_coef)[2].model.model) for vf_coef in (0.0, 1.0)]
    assert (shared[0] != shared[1]).any()

    # values of the first dialogue, from the features of the value model in one pass
    length = int(np.asarray(batch.mask)[:, 0].sum())
    episode = jax.tree.map(lambda x: jnp.asarray(x[:length, 0]), steps)
    values = jax.jit(lambda *args: method.judge(*args))(after, episode).value
    transcript = steps.next_view.observation[length - 1, :1]
    starts = (steps.view.observation[:length, :1] >= 0).sum(axis=-1)
    for model, is_equal in ((after.model.value_model, True), (after.model.model, False)):
        features = jax.jit(response_features, static_argnums=3)(model, transcript, starts, 2)[:, 0, 0]
        weight, bias = np.asarray(after.model.value_weight), np.asarray(after.model.value_bias)
        expected = np.asarray(features) @ weight / np.sqrt(32) + bias
        assert np.allclose(values, expected, atol=1e-5) == is_equal


@pytest.mark.long
def test_recomputed_log_probs_are_those_of_the_model_before_the_update(dialogues):
    """What was recorded while sampling does not count then; it is what one pass over the dialogues says."""
    _, _, steps = dialogues
    rewards = np.random.default_rng(3).normal(size=steps.reward.shape).astype("float32")
    steps = dataclasses.replace(steps, reward=rewards)
    mask = np.asarray(EPISODE_MASK(steps.done))
    state = init_state(with_array_leaves(GRPO(**SMALL)))
    last = mask.sum(axis=0) - 1
    transcript = steps.next_view.observation[last, np.arange(ROWS)]
    starts = (steps.view.observation >= 0).sum(axis=-1)

    @jax.jit
    def one_pass(model, transcript, starts, responses):
        features = response_features(model, transcript, starts, 2)
        return token_log_probs(model, TemperatureSampler(), features, responses)[0]

    log_probs = one_pass(state.model.model, transcript, starts, steps.action)

    def learn(recompute, extras):
        settings = with_array_leaves(GRPO(**SMALL, learning_rate=1e-2, num_epochs=2, recompute_log_probs=recompute))
        batch = Batch(dataclasses.replace(steps, extras=np.asarray(extras)), mask, (), jnp.int32(0))
        new_state, _ = update(settings, state, batch, seed_key(2))
        return np.concatenate([np.ravel(x) for x in jax.tree.leaves(new_state.model)])

    expected, recorded = learn(False, log_probs), learn(False, steps.extras)
    np.testing.assert_allclose(learn(True, steps.extras), expected, atol=1e-5)
    assert (learn(True, steps.extras) == learn(True, 0.0 * steps.extras)).all()
    assert np.abs(recorded - expected).max() > 1e-3
