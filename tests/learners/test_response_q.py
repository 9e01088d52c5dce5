"""Off-policy turn critic: token positions, targets, replay and advantages, against loops and known values."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_dialogues import DIALOGUE_SPEC, KEY, MODEL, TIME, make_dialogues
from synthetic_batches import quick_key

from thespis.core.errors import UserError
from thespis.learners.language.dialogues import SampledDialogues
from thespis.learners.language.turn_critic import OffPolicyTurnCritic, TurnQVNetwork


def random_critic() -> TurnQVNetwork:
    rng = np.random.default_rng(3)
    heads = [rng.normal(size=shape).astype("float32") for shape in ((2, 32), (2, 32), (2, 2))]
    return TurnQVNetwork(MODEL, *jax.device_put(heads))


def test_q_reads_the_last_token_and_v_the_last_prompt_token():
    dialogues = make_dialogues([3, 8])
    responses = np.array(dialogues.responses)
    responses[0, :, 1] = -1  # a response of one token
    dialogues = dataclasses.replace(dialogues, responses=jax.device_put(responses))

    @jax.jit
    def both(critic, dialogues):
        tokens = dialogues.transcript[1]
        return critic(dialogues), {end: critic.model(tokens[:end], jnp.arange(end))[-1] for end in (2, 3, 5, 7, 8)}

    critic = random_critic()
    (q, v), features = jax.tree.map(np.asarray, both(critic, dialogues))
    assert q.shape == (2, TIME, 2) and v.shape == (2, TIME + 1, 2)
    q_weights, v_weights, bias = map(np.asarray, (critic.q_weights, critic.v_weights, critic.bias))
    for turn, (start, count) in enumerate([(2, 1), (5, 2)]):
        expected = q_weights @ features[start + count] / 32**0.5 + bias[0]
        np.testing.assert_allclose(q[:, turn, 1], expected, atol=1e-4)
        np.testing.assert_allclose(v[:, turn, 1], v_weights @ features[start] / 32**0.5 + bias[1], atol=1e-4)
    np.testing.assert_allclose(v[:, 3, 1], v_weights @ features[8] / 32**0.5 + bias[1], atol=1e-4)


def test_targets_bootstrap_from_the_players_next_turn():
    """Rows that terminate, that are truncated, and in which another player has a turn in between."""
    transform = OffPolicyTurnCritic(discount=0.9)
    alive = np.array([[1, 1, 1], [1, 1, 0], [0, 1, 1]], bool)
    reward = np.array([[0.5, 0.0, 0.25], [1.0, 0.0, 9.0], [9.0, 2.0, 3.0]], "float32")
    value = np.stack([np.arange(12.0).reshape(4, 3), -np.arange(12.0).reshape(4, 3)]).astype("float32")

    @jax.jit
    def targets(value, alive, reward, truncated):
        dialogues = dataclasses.replace(
            SampledDialogues.empty(3, DIALOGUE_SPEC, TIME), alive=alive, reward=reward, truncated=truncated
        )
        return transform.q_targets(value, dialogues)

    result = np.asarray(targets(value, alive, reward, np.array([False, True, False])))
    expected = {(0, 0): 0.5 + 0.9 * 3, (1, 0): 1.0, (0, 1): 0.9 * 4, (1, 1): 0.9 * 7, (2, 1): 2 + 0.9 * 10}
    expected |= {(0, 2): 0.25 + 0.9 * 8, (2, 2): 3.0}
    assert set(expected) == set(zip(*map(list, np.nonzero(alive)), strict=True))
    for (t, row), target in expected.items():
        assert result[0, t, row] == pytest.approx(target, rel=1e-6)
    non_terminal = [(t, row) for t, row in expected if (t, row) not in [(1, 0), (2, 2)]]
    assert all(result[1, t, row] != result[0, t, row] for t, row in non_terminal)


def test_buffer_keeps_the_latest_dialogues():
    transform = OffPolicyTurnCritic(buffer_size=5, num_gradient_steps=1, batch_size=2)
    step = jax.jit(lambda state, dialogues: transform(state, dialogues, 1, KEY))
    state = jax.jit(lambda: transform.init(MODEL, DIALOGUE_SPEC, TIME, KEY))()
    batches = [make_dialogues([3, 8], seed) for seed in range(4)]
    for dialogues in batches:
        state, _, _ = step(state, dialogues)
    replay, batches = jax.tree.map(np.asarray, (state.replay, batches))
    rows = [(batches[n // 2], n % 2) for n in (5, 6, 7, 3, 4)]  # dialogue n is in slot n % 5
    for slot, (dialogues, row) in enumerate(rows):
        np.testing.assert_array_equal(replay.transcript[slot], dialogues.transcript[row])
        np.testing.assert_array_equal(replay.reward[:, slot], dialogues.reward[:, row])
    with pytest.raises(UserError, match=r"rollout_transform\.buffer_size=5 is less than the 6 dialogues"):
        transform(state, make_dialogues([3] * 6), 1, KEY)


@pytest.mark.slow
def test_responses_are_rewarded_with_their_advantage():
    """Half of the dialogues start with token 8 and get reward 1 a turn later; the second response does not matter."""
    transform = OffPolicyTurnCritic(
        buffer_size=64, num_gradient_steps=25, batch_size=16, learning_rate=3e-3, discount=0.8, num_warmup_batches=1
    )
    step = jax.jit(lambda state, dialogues, key: transform(state, dialogues, 1, key))
    state = transform.init(MODEL, DIALOGUE_SPEC, TIME, KEY)
    for i in range(24):
        dialogues = make_dialogues([8, 3] * 8, seed=i % 4)
        state, rewarded, _ = step(state, dialogues, quick_key(i))
        if i == 0:
            assert not rewarded.reward.any(), "no rewards before the warm-up is over"
    reward = np.asarray(rewarded.reward)
    assert (reward[0, ::2] > 0.2).all() and (reward[0, 1::2] < -0.2).all(), reward[0]
    np.testing.assert_allclose(reward[1], 0.0, atol=0.2)
    np.testing.assert_array_equal(reward[2], 0.0)
    q, v = (np.asarray(x[0]) for x in state.critic(dialogues))
    np.testing.assert_allclose(q[0], np.where(np.arange(16) % 2 == 0, 0.8, 0.0), atol=0.15)
    np.testing.assert_allclose(v[0], 0.4, atol=0.15)
