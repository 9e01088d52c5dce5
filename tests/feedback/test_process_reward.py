"""Process reward model: targets, scores, loss, replay buffer and rewards, against loops and known success rates."""

from __future__ import annotations

import collections
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plain_decoder import features_of

from thespis.actors.lm_policy import DialogueSpec
from thespis.core.errors import UserError
from thespis.feedback import process_reward
from thespis.feedback.process_reward import (
    ProcessReward,
    ProcessRewardState,
    process_reward_loss,
    shared_prefix_mean,
)
from thespis.learners.language.dialogues import Dialogues, store_latest
from thespis.learners.language.lm_agent import LMWithValueHead, add_value_head
from thespis.learners.language.turn_scores import turn_scores
from thespis.nets.decoder import DecoderConfig, init_decoder
from thespis.runtime.keys import seed_key

TIME, WIDTH, LENGTH = 3, 2, 12
SPEC = DialogueSpec(LENGTH, 3, WIDTH, TIME, (0,))
MODEL, KEY = jax.jit(lambda key: init_decoder(DecoderConfig(9, 32, 1, 1, 1, 32, 96), key))(seed_key(0)), seed_key(1)


@functools.cache
def empty_dialogues(rows: int) -> Dialogues:
    return jax.jit(lambda: Dialogues.empty(rows, SPEC, TIME))()


scores = jax.jit(turn_scores)
loss_fn = jax.jit(process_reward_loss)


def make_dialogues(first: list[int], later: list[int], final_reward: list[float]) -> Dialogues:
    """Dialogues of two prompt tokens and two turns, with one environment token between the responses.

    A response is one token if that is even, else it has a second token. ``final_reward`` is paid in the second turn.
    """
    dialogues = empty_dialogues(len(first))
    transcript, responses, starts = (
        np.array(dialogues.transcript),
        np.array(dialogues.responses),
        np.array(dialogues.response_starts),
    )
    for row, row_responses in enumerate(zip(first, later, strict=True)):
        tokens = [1, 1]
        for t, token in enumerate(row_responses):
            starts[t, row] = len(tokens)
            response = [token] if token % 2 == 0 else [token, 2]
            responses[t, row, : len(response)] = response
            tokens += [*response, 4] if t == 0 else response
        transcript[row, : len(tokens)] = tokens
        starts[2:, row] = len(tokens)
    alive = np.repeat(np.array([[True], [True], [False]]), len(first), axis=1)
    reward = np.zeros((TIME, len(first)), "float32")
    reward[1], reward[2] = final_reward, 7.0  # rewards after the end do not count
    fields = {
        "transcript": transcript,
        "response_starts": starts,
        "responses": responses,
        "alive": alive,
        "reward": reward,
    }
    return dataclasses.replace(dialogues, **{name: jnp.asarray(x) for name, x in fields.items()})


def expected_success(dialogues: Dialogues, discount: float) -> np.ndarray:
    """Mean returns before and after each response, grouped by the transcript so far in a dictionary."""
    dialogues = jax.tree.map(np.asarray, dialogues)
    outcomes, shape = collections.defaultdict(list), (2, *dialogues.alive.shape)
    keys = np.empty(shape, object)
    for t, row in zip(*np.nonzero(np.asarray(dialogues.alive)), strict=True):
        last = max(s for s in range(TIME) if dialogues.alive[s, row])
        discounted_return = sum(discount ** (s - t) * float(dialogues.reward[s, row]) for s in range(t, last + 1))
        start, count = int(dialogues.response_starts[t, row]), int((np.asarray(dialogues.responses[t, row]) >= 0).sum())
        for position, end in enumerate((start, start + count)):
            keys[position, t, row] = tuple(np.asarray(dialogues.transcript[row, :end]).tolist())
            outcomes[keys[position, t, row], position].append(discounted_return)
    success = np.zeros(shape)
    for position, t, row in np.ndindex(*shape):
        if keys[position, t, row] is not None:
            success[position, t, row] = np.mean(outcomes[keys[position, t, row], position])
    return success


def monte_carlo_targets(model: ProcessReward, dialogues: Dialogues) -> np.ndarray:
    return np.asarray(TARGETS(model, dialogues))


TARGETS = jax.jit(
    lambda model, dialogues: process_reward.monte_carlo_targets(dialogues, model.discount, model.max_return)
)


def random_dialogues() -> Dialogues:
    rng = np.random.default_rng(0)
    first, later = (rng.choice([3, 5, 6], 24).tolist() for _ in range(2))
    return make_dialogues(first, later, rng.integers(0, 2, 24).astype(float).tolist())


def test_targets_average_outcomes_over_equal_prefixes():
    dialogues = random_dialogues()
    result, expected = (
        monte_carlo_targets(ProcessReward(discount=0.9), dialogues),
        expected_success(dialogues, 0.9)[1],
    )
    np.testing.assert_allclose(np.where(dialogues.alive, result, 0.0), expected, atol=1e-6)
    assert len(np.unique(expected.round(5))) > 8
    halved = dataclasses.replace(dialogues, reward=jnp.asarray(np.asarray(dialogues.reward) / 2))
    np.testing.assert_allclose(
        monte_carlo_targets(ProcessReward(discount=0.9, max_return=0.5), halved), result, atol=1e-6
    )


@pytest.mark.long
def test_empty_slots_give_no_target_and_no_loss():
    dialogues = empty_dialogues(4)
    assert not np.any(monte_carlo_targets(ProcessReward(), dialogues))
    estimator = LMWithValueHead(MODEL, jnp.asarray(np.ones(32, "float32")), jnp.float32(1.0))
    assert loss_fn(estimator, dialogues, np.zeros((TIME, 4), "float32"))[0] == 0


def test_scores_are_read_at_the_end_of_each_response():
    rng = np.random.default_rng(1)
    estimator = LMWithValueHead(MODEL, jnp.asarray(rng.normal(size=32), "float32"), jnp.float32(0.2))
    dialogues = make_dialogues([3, 6], [5, 5], [1.0, 0.0])
    logit = np.asarray(scores(estimator, dialogues))
    for row, ends in enumerate([[4, 7], [3, 6]]):
        for t, end in enumerate(ends):
            features = np.asarray(features_of(MODEL, np.asarray(dialogues.transcript)[row, :end]))[-1]
            expected = float(features @ np.asarray(estimator.value_weight)) / 32**0.5 + 0.2
            assert logit[t, row] == pytest.approx(expected, abs=1e-4)


@pytest.mark.long
def test_loss_is_the_mean_cross_entropy_of_all_responses():
    rng = np.random.default_rng(2)
    estimator = LMWithValueHead(MODEL, jnp.asarray(rng.normal(size=32), "float32"), jnp.float32(0.2))
    dialogues = random_dialogues()
    p, targets = (
        1 / (1 + np.exp(-np.asarray(scores(estimator, dialogues), float))),
        expected_success(dialogues, 0.95)[1],
    )
    losses = [
        -targets[t, row] * np.log(p[t, row]) - (1 - targets[t, row]) * np.log(1 - p[t, row])
        for t, row in np.argwhere(np.asarray(dialogues.alive))
    ]
    assert float(loss_fn(estimator, dialogues, targets.astype("float32"))[0]) == pytest.approx(
        np.mean(losses), rel=1e-4
    )


def test_shared_prefix_mean_averages_equal_prefixes():
    """Means of random numbers over rows with the same transcript before the response."""
    dialogues, num_partial = random_dialogues(), 0
    x = np.random.default_rng(4).normal(size=dialogues.alive.shape).astype("float32")
    result = np.asarray(
        jax.jit(lambda dialogues, x: shared_prefix_mean(dialogues, dialogues.response_starts[:-1], x))(dialogues, x)
    )
    dialogues = jax.tree.map(np.asarray, dialogues)
    transcript = np.asarray(dialogues.transcript)
    for t, row in np.argwhere(np.asarray(dialogues.alive)):
        end = int(dialogues.response_starts[t, row])
        same_prefix = [
            i
            for i in range(24)
            if dialogues.response_starts[t, i] == end and (transcript[i, :end] == transcript[row, :end]).all()
        ]
        assert float(result[t, row]) == pytest.approx(np.mean([float(x[t, i]) for i in same_prefix]), abs=1e-5)
        num_partial += len(same_prefix) < 24
    assert num_partial


def initial_state(feedback: ProcessReward) -> ProcessRewardState:
    """The state at the start: a copy of the model with a head of zeros, and an empty buffer."""

    @jax.jit
    def init():
        model = add_value_head(MODEL, 32)
        replay = Dialogues.empty(feedback.buffer_size, SPEC, TIME)
        return ProcessRewardState(model, feedback.optimizer.init(model), replay, jnp.zeros((), "int32"))

    return init()


@pytest.mark.long
def test_responses_are_rewarded_with_the_change_in_success():
    """Dialogues whose first response starts with token 5 (one in four) succeed, whatever the second response is."""
    feedback = ProcessReward(
        buffer_size=32, num_gradient_steps=30, batch_size=16, learning_rate=3e-3, discount=0.8, num_warmup_batches=1
    )
    dialogues = make_dialogues([5, 3, 6, 7] * 4, [3, 5, 6, 7] * 2 + [7, 6, 5, 3] * 2, [1.0, 0.0, 0.0, 0.0] * 4)
    score = jax.jit(lambda state: jnp.where(dialogues.alive, feedback.score_turns(state, dialogues, KEY), 0.0))
    learn = jax.jit(lambda state, key: feedback.learn(state, dialogues, None, key))
    state = initial_state(feedback)
    np.testing.assert_array_equal(score(state), np.where(dialogues.alive, dialogues.reward, 0.0))
    for i in range(11):
        state, metrics = learn(state, seed_key(i))
    is_success, reward = np.arange(16) % 4 == 0, np.asarray(score(state))
    # success after the first response: 0.8 in one row of four and 0 in the others, on average 0.2
    np.testing.assert_allclose(reward[0], np.where(is_success, 0.6, -0.2), atol=0.12)
    np.testing.assert_allclose(reward[1], 0.0, atol=0.15)
    np.testing.assert_array_equal(reward[2], 0.0)
    assert metrics["process_loss"] < 0.6


def test_buffer_keeps_the_latest_dialogues():
    replay = empty_dialogues(5)
    store = jax.jit(store_latest)
    batches = [make_dialogues([3, 5], [n + 3, n + 4], [0.0, 1.0]) for n in range(4)]
    for n, dialogues in enumerate(batches):
        replay, num_stored = store(replay, dialogues, jnp.asarray(n))
        assert num_stored == min(2 * n + 2, 5)
    for slot, n in enumerate((5, 6, 7, 3, 4)):  # dialogue n is in slot n % 5
        expected = np.asarray(batches[n // 2].transcript)[n % 2]
        np.testing.assert_array_equal(np.asarray(replay.transcript)[slot], expected)
    with pytest.raises(UserError, match="buffer_size=5 is less than the 6 dialogues"):
        store_latest(replay, make_dialogues([3] * 6, [3] * 6, [0.0] * 6), jnp.zeros((), "int32"))


def test_shorter_arrays_are_stored_as_padded_ones():
    """A batch of two turns and narrower arrays is stored as the same dialogues in arrays for three turns."""
    whole = make_dialogues([3, 5], [6, 7], [0.0, 1.0])
    narrow = Dialogues(
        whole.transcript[:, :8],
        whole.response_starts[:3],
        whole.responses[:2],
        whole.alive[:2],
        whole.reward[:2],
        whole.truncated,
    )
    padded = jax.jit(lambda part: part.padded_like(empty_dialogues(4)))(narrow)
    expected = dataclasses.replace(whole, reward=jnp.where(whole.alive, whole.reward, 0.0))
    jax.tree.map(np.testing.assert_array_equal, padded, expected)
    cut = jax.jit(lambda part: part.padded_like(narrow))(whole)
    np.testing.assert_array_equal(cut.responses, narrow.responses)
