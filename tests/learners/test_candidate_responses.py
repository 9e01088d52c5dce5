"""Methods that choose among listed responses: sampling and soft targets, against probabilities written out."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.records import Batch, Transition, View
from thespis.data.feeds import Replay, Rollouts
from thespis.envs.text.maze import Maze
from thespis.envs.text.task import TextEnv
from thespis.learners.language.candidate_scoring import to_discrete_actions
from thespis.learners.off_policy.temperature import FixedTemperature
from thespis.methods.language.glam import GLAM
from thespis.methods.online.ppo import PPO
from thespis.methods.online.sac import SAC
from thespis.papers.sac_glam.method import SACGLAM
from thespis.runtime.keys import seed_key

ENV = TextEnv(Maze(size=2, max_turns=3))
SPEC = ENV.spec
CHOICES = np.asarray(SPEC.action_space.choices, "int32")
SMALL: dict[str, Any] = {"model": "blank", "num_layers": 1, "hidden_size": 32}
GAMMA, ALPHA = 0.9, 0.3


def glam(**changed) -> GLAM:
    return GLAM(
        **SMALL, method=PPO(hidden_sizes=(8,), num_epochs=2, minibatch_size=8, feed=Rollouts(4, num_envs=4), **changed)
    )


def sac_glam(**changed) -> SACGLAM:
    sac = SAC(
        discount=GAMMA,
        learning_rate=1e-3,
        temperature=FixedTemperature(ALPHA),
        hidden_sizes=(8,),
        feed=Replay(batch_size=4, sequence_length=3),
    )
    return SACGLAM(**SMALL, method=sac, **({"critic_warmup_updates": 0, "hindsight": None} | changed))


@functools.cache
def init_state(method_of):
    """A method and its initial state."""
    method = method_of()
    return method, jax.jit(lambda key: method.init(SPEC, key))(seed_key(0))


@functools.cache
def first_views(rows: int) -> View:
    observations = jax.jit(jax.vmap(lambda key: ENV.reset((), key)[1].observation))(jax.random.split(seed_key(7), 16))
    return View(jnp.asarray(np.asarray(observations)[:rows]))


@jax.jit
def next_token_log_probs(model, texts):
    return jax.vmap(lambda text: jax.nn.log_softmax(model.logits(model(text, jnp.arange(text.shape[0])))))(texts)


def response_log_probs(model, text) -> np.ndarray:
    """Log-probabilities of the four responses, each appended to the text and followed by padding."""
    count = int((np.asarray(text) >= 0).sum())
    texts = np.zeros((len(CHOICES), 48), "int32")
    texts[:, :count], texts[:, count : count + CHOICES.shape[1]] = np.asarray(text)[:count], CHOICES
    logs, positions = np.asarray(next_token_log_probs(model, texts)), np.arange(CHOICES.shape[1])
    scores = np.array([logs[i, count - 1 + positions, tokens].sum() for i, tokens in enumerate(CHOICES)])
    return scores - np.log(np.exp(scores).sum())


@pytest.mark.long
@pytest.mark.parametrize("make_method", [pytest.param(glam, marks=pytest.mark.slow), sac_glam])
def test_responses_are_sampled_with_the_model_probabilities(make_method):
    (method, state), view = init_state(make_method), first_views(1)
    actor = state.method_state.network.actor if isinstance(method, GLAM) else state.method_state.actor
    logs = response_log_probs(actor.scorer.model, view.observation[0])
    many = jax.tree.map(lambda x: np.repeat(x, 3_000, axis=0), view)
    responses, _, extras = jax.jit(method.act)(method.policy(state, Mode.SAMPLE), (), many, seed_key(1))
    chosen = (np.asarray(responses)[:, None] == CHOICES).all(axis=-1)
    assert (chosen.sum(axis=1) == 1).all()
    np.testing.assert_allclose(chosen.mean(axis=0), np.exp(logs), atol=0.04)
    if isinstance(method, GLAM):
        np.testing.assert_allclose(extras["log_prob"], logs[chosen.argmax(axis=1)], atol=1e-4)
        probs = method.action_probs(method.policy(state, Mode.SAMPLE), (), view)
        np.testing.assert_allclose(probs[0], np.exp(logs), atol=1e-4)
    best, _, _ = jax.jit(method.act)(method.policy(state, Mode.EXPLOIT), (), view, seed_key(1))
    np.testing.assert_array_equal(best[0], CHOICES[logs.argmax()])


def test_responses_are_mapped_to_their_index():
    dialogue_spec = init_state(sac_glam)[1].dialogue_spec
    responses, no_ends = CHOICES[[2, 0, 3]][None], np.zeros((1, 3), bool)
    view = jax.tree.map(lambda x: np.asarray(x)[None], first_views(3))
    transition = Transition(view, responses, np.zeros((1, 3), "float32"), no_ends, no_ends, view, no_ends)
    indices = jax.jit(lambda responses: to_discrete_actions(dialogue_spec, responses).action)(transition)
    np.testing.assert_array_equal(indices, [[2, 0, 3]])


def windows() -> Batch:
    """Four windows of three steps: the first ends after one step, the second after two."""
    rng, view = np.random.default_rng(0), first_views(16)
    observation, next_observation = (np.asarray(view.observation)[rng.integers(0, 16, (3, 4))] for _ in range(2))
    ends = np.asarray([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]], bool)
    mask = np.asarray([[1, 1, 1, 1], [0, 1, 1, 1], [0, 0, 1, 1]], bool)
    reward = np.asarray([[1.0, 0.5, 0.0, 0.0], [9.0, 0.25, 0.0, 2.0], [9.0, 9.0, 4.0, 0.0]], "float32")
    action = CHOICES[rng.integers(0, 4, (3, 4))]
    false = np.zeros((3, 4), bool)
    steps = Transition(View(observation), action, reward, ends, false, View(next_observation), false)
    return Batch(steps, mask, (), jnp.asarray(0))


@pytest.mark.long
@pytest.mark.parametrize("n_step", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_critics_learn_n_step_soft_returns(n_step):
    """The loss of one update, against sums over the listed responses."""
    method, batch = sac_glam(n_step=n_step), windows()
    state = init_state(sac_glam)[1]
    _, report = jax.jit(method.update)(state, batch, seed_key(1))
    sac_state, steps, losses = state.method_state, batch.steps, []

    critic_values = jax.jit(lambda critics, text: jax.vmap(lambda critic: critic(text, jnp.arange(4)))(critics))

    def values(text) -> np.ndarray:
        return np.asarray(critic_values(sac_state.critics, text))

    for row in range(4):
        reward_sum, factor = 0.0, 1.0
        for t in range(n_step):
            reward_sum += factor * float(steps.reward[t, row])
            factor *= 0.0 if steps.terminated[t, row] else GAMMA
            if steps.terminated[t, row]:
                break
        text = steps.next_view.observation[t, row]
        logs = response_log_probs(sac_state.actor.scorer.model, text)
        target = reward_sum + factor * float((np.exp(logs) * (values(text).min(axis=0) - ALPHA * logs)).sum())
        index = int((np.asarray(steps.action[0, row]) == CHOICES).all(axis=1).argmax())
        losses.append((values(steps.view.observation[0, row])[:, index] - target) ** 2)
    assert float(report.metrics["critic_loss"]) == pytest.approx(np.mean(losses), rel=1e-3)


@pytest.mark.long
def test_actor_is_frozen_during_critic_warmup():
    method, batch = sac_glam(critic_warmup_updates=2), windows()
    state, update = init_state(sac_glam)[1], jax.jit(method.update)
    for index, actor_moves in [(0, False), (1, False), (2, True)]:
        after, _ = update(state, dataclasses.replace(batch, update_index=jnp.asarray(index)), seed_key(index))
        assert not is_equal(after.method_state.critics, state.method_state.critics)
        assert is_equal(after.method_state.actor, state.method_state.actor) is not actor_moves
        assert is_equal(after.method_state.actor_opt_state, state.method_state.actor_opt_state) is not actor_moves
        state = after


def is_equal(first, second) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (first, second)), strict=True))


def test_environments_without_listed_responses_are_refused():
    unlisted = dataclasses.replace(SPEC, action_space=dataclasses.replace(SPEC.action_space, choices=()))
    with pytest.raises(UserError, match="has no list of responses"):
        glam().init(unlisted, seed_key(0))
