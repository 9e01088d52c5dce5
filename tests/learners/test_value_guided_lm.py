"""CriticControl, value-guided decoding of a frozen language model: targets, trained parameters and guidance."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import synthetic_batches
from synthetic_batches import quick_key

from thespis.core.contracts import Mode
from thespis.core.records import Batch, Transition, View
from thespis.curricula.fixed import FixedCurriculum
from thespis.data.feeds import Episodes
from thespis.envs.host.wrapper import HostWrapper
from thespis.envs.text.maze import Maze
from thespis.envs.text.review import Review
from thespis.envs.text.task import TextEnv
from thespis.evaluation.rollout import play_episodes
from thespis.feedback.environment import EnvironmentReward
from thespis.language.generation import CriticLogitsProcessor
from thespis.learners.language.advantage_estimators import TokenGAE
from thespis.learners.language.dialogues import Dialogues
from thespis.papers.criticcontrol.method import CriticControl
from thespis.training.compiled_loop import CompiledLoop
from thespis.training.components import Components, with_array_leaves
from thespis.training.method_setup import prepare_method

SMALL = {"model": "blank", "num_layers": 1, "hidden_size": 32}


def make_dialogues() -> Dialogues:
    """Dialogues of two turns and of one, with responses of one and two tokens; the second is truncated."""
    transcript = np.array([[4, 3, 5, 2, 6, 3, 2, 7], [4, 3, 6, 7, -1, -1, -1, -1]], "int32")
    starts = np.array([[2, 2], [6, 4], [8, 4]], "int32")
    responses = np.array([[[5, 2], [6, 7]], [[2, -1], [-1, -1]]], "int32")
    alive = np.array([[True, True], [True, False]])
    reward = np.array([[0.5, 2.0], [1.0, 9.0]], "float32")
    return Dialogues(*jax.device_put((transcript, starts, responses, alive, reward, np.array([False, True]))))


def gae_targets(
    values: list[float], rewards: list[float], final_value: float, discount: float, trace: float
) -> list[float]:
    """GAE targets by the definition: values plus discounted sums of later TD errors."""
    next_values = [*values[1:], final_value]
    errors = [r + discount * v - w for r, v, w in zip(rewards, next_values, values, strict=True)]
    return [
        values[i] + sum((discount * trace) ** (j - i) * errors[j] for j in range(i, len(errors)))
        for i in range(len(values))
    ]


@pytest.mark.long
def test_token_values_and_targets_match_the_definition():
    method = with_array_leaves(CriticControl(**SMALL, advantage_estimator=TokenGAE(0.9, 0.8)))
    dialogues = make_dialogues()
    spec, weight = TextEnv(Maze(size=2, max_turns=2)).spec, np.random.default_rng(0).normal(size=32).astype("float32")
    positions = [[(0, 0, 2), (0, 1, 3), (0, 2, 4), (1, 0, 6), (1, 1, 7)], [(0, 0, 2), (0, 1, 3), (0, 2, 4)]]

    @jax.jit
    def both(key, weight, dialogues):
        model = dataclasses.replace(method.init(spec, key).model, value_weight=weight, value_bias=jnp.float32(0.1))
        features = {
            end: model.model(dialogues.transcript[:, :end], jnp.arange(2 * end).reshape(2, end) % end)[:, -1]
            for end in (2, 3, 4, 6, 7)
        }
        return method.evaluate_tokens(model, dialogues)[0], features

    evaluation, features = jax.tree.map(np.asarray, both(quick_key(0), weight, dialogues))

    def value(row: int, count: int) -> float:
        return float(features[count][row] @ weight / 32**0.5 + 0.1)

    rewards, final_values = [[0.0, 0.0, 0.5, 0.0, 1.0], [0.0, 0.0, 2.0]], [0.0, value(1, 4)]
    expected_mask = np.zeros(evaluation.value_mask.shape, bool)
    for row, row_positions in enumerate(positions):
        values = [value(row, count) for *_, count in row_positions]
        targets = gae_targets(values, rewards[row], final_values[row], 0.8, 0.9)
        for (turn, i, _), expected_value, target in zip(row_positions, values, targets, strict=True):
            expected_mask[turn, row, i] = True
            assert evaluation.value[turn, row, i] == pytest.approx(expected_value, abs=1e-4)
            assert evaluation.target[turn, row, i] == pytest.approx(target, abs=1e-4)
    np.testing.assert_array_equal(evaluation.value_mask, expected_mask)


@pytest.mark.long
def test_only_the_critic_is_trained_and_only_evaluation_is_guided():
    env = TextEnv(Review(num_clauses=1))
    method = with_array_leaves(CriticControl(**SMALL, advantage_estimator=TokenGAE(1.0, 1.0), num_critic_updates=50))
    state = synthetic_batches.init_state(method, env.spec)
    obs, responses = (
        np.array([[[8, 4, 14, 3, *[-1] * 6]] * 2], "int32"),
        np.array([[[6, 4, 9, 2], [6, 4, 12, 2]]], "int32"),
    )
    next_obs = np.concatenate([obs[..., :4], responses, obs[..., 8:]], axis=-1)
    false, reward = np.zeros((1, 2), bool), np.array([[1.0, -1.0]], "float32")
    arrays = (obs, responses, reward, ~false, false, next_obs, ~false, np.zeros(responses.shape, "float32"))
    obs, responses, reward, is_first, false, next_obs, is_last, log_probs = jax.device_put(arrays)
    steps = Transition(View(obs), responses, reward, is_first, false, View(next_obs), is_last, log_probs)
    batch = Batch(steps, is_first, (), jax.device_put(np.int32(0)))
    update, trained = jax.jit(lambda *arrays: method.update(*arrays)), state
    for _ in range(20):
        trained, report = update(trained, batch, quick_key(1))
    for a, b in zip(jax.tree.leaves(state.model.model), jax.tree.leaves(trained.model.model), strict=True):
        np.testing.assert_array_equal(a, b)
    evaluation = jax.jit(
        lambda model, batch: method.evaluate_tokens(model, Dialogues.from_transitions(batch.steps, batch.mask))[0]
    )(trained.model, batch)
    evaluation = jax.tree.map(np.asarray, evaluation)
    np.testing.assert_allclose(evaluation.target[0], np.broadcast_to(np.asarray(reward).T, (2, 5)), atol=1e-5)
    np.testing.assert_allclose(evaluation.value[0, :, 3], [1.0, -1.0], atol=0.3)
    np.testing.assert_allclose(evaluation.value[0, 0, :3], evaluation.value[0, 1, :3], atol=1e-5)
    assert report.metrics["critic_loss"] < 0.9
    assert method.policy(trained, Mode.EXPLORE).logits_processor is None
    for mode in (Mode.SAMPLE, Mode.EXPLOIT):
        assert isinstance(method.policy(trained, mode).logits_processor, CriticLogitsProcessor)


def test_texts_of_training_have_a_temperature_of_their_own():
    spec = TextEnv(Review(num_clauses=1)).spec
    method = with_array_leaves(CriticControl(**SMALL, temperature=0.5, training_temperature=4.0))
    state = synthetic_batches.init_state(method, spec)
    temperatures = {mode: float(method.policy(state, mode).sampler.temperature) for mode in Mode}
    assert temperatures.pop(Mode.EXPLORE) == 2.0 and set(temperatures.values()) == {0.5}


@pytest.mark.slow
def test_guidance_increases_the_reward_of_reviews():
    env, rows = TextEnv(Review()), 256
    method = prepare_method(
        CriticControl(num_layers=2, hidden_size=64, guidance_top_k=4, feed=Episodes(1, num_envs=64)), env
    )
    assert isinstance(method, CriticControl)
    loop = CompiledLoop(Components(method, EnvironmentReward(), FixedCurriculum()), env, 64, [0], 10)
    states = loop.learner_state(loop.advance(loop.init(), 60)).method

    def mean_return(scale: float) -> float:
        guided = with_array_leaves(dataclasses.replace(method, guidance_scale=scale))
        return float(play_episodes(guided, states, HostWrapper(env, rows), [0], Mode.SAMPLE).episode_returns.mean())

    weak, strong, plain = mean_return(1.0), mean_return(3.0), mean_return(0.0)
    assert abs(plain) < 0.5 and weak > plain + 0.5 and strong > weak
