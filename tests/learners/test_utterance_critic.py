"""A critic of whole utterances: its places, its targets, its replay, and what it learns where values are known."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from made_up import quick_key
from talks import KEY, MODEL, TALKING, TIME, held

from thespis.core.errors import UserError
from thespis.learners.conversations import Conversations
from thespis.learners.utterance_critic import Judge, UtteranceCritic


def some_judge() -> Judge:
    rng = np.random.default_rng(3)
    heads = [rng.normal(size=shape).astype("float32") for shape in ((2, 32), (2, 32), (2, 2))]
    return Judge(MODEL, *jax.device_put(heads))


def test_utterances_are_judged_behind_their_last_id_and_states_before_their_first():
    talks = held([3, 8])
    said = np.array(talks.said)
    said[0, :, 1] = -1  # of one id
    talks = dataclasses.replace(talks, said=jax.device_put(said))

    @jax.jit
    def both(judge, talks):
        ids = talks.transcript[1]
        return judge(talks), {end: judge.model(ids[:end], jnp.arange(end))[-1] for end in (2, 3, 5, 7, 8)}

    judge = some_judge()
    (q, v), features = jax.tree.map(np.asarray, both(judge, talks))
    assert q.shape == (2, TIME, 2) and v.shape == (2, TIME + 1, 2)
    of_said, of_state, bias = map(np.asarray, (judge.said, judge.before, judge.bias))
    for turn, (start, count) in enumerate([(2, 1), (5, 2)]):
        wanted = of_said @ features[start + count] / 32**0.5 + bias[0]
        np.testing.assert_allclose(q[:, turn, 1], wanted, atol=1e-4)
        np.testing.assert_allclose(v[:, turn, 1], of_state @ features[start] / 32**0.5 + bias[1], atol=1e-4)
    np.testing.assert_allclose(v[:, 3, 1], of_state @ features[8] / 32**0.5 + bias[1], atol=1e-4)


def test_targets_are_those_of_one_s_own_next_turn():
    """Of rows that end, that are cut, and in which another speaks between two turns."""
    part = UtteranceCritic(discount=0.9)
    alive = np.array([[1, 1, 1], [1, 1, 0], [0, 1, 1]], bool)
    reward = np.array([[0.5, 0.0, 0.25], [1.0, 0.0, 9.0], [9.0, 2.0, 3.0]], "float32")
    value = np.stack([np.arange(12.0).reshape(4, 3), -np.arange(12.0).reshape(4, 3)]).astype("float32")

    @jax.jit
    def targets(value, alive, reward, cut):
        talks = dataclasses.replace(Conversations.none(3, TALKING, TIME), alive=alive, reward=reward, cut=cut)
        return part.targets(value, talks)

    found = np.asarray(targets(value, alive, reward, np.array([False, True, False])))
    wanted = {(0, 0): 0.5 + 0.9 * 3, (1, 0): 1.0, (0, 1): 0.9 * 4, (1, 1): 0.9 * 7, (2, 1): 2 + 0.9 * 10}
    wanted |= {(0, 2): 0.25 + 0.9 * 8, (2, 2): 3.0}
    assert set(wanted) == set(zip(*map(list, np.nonzero(alive)), strict=True))
    for (t, row), expected in wanted.items():
        assert found[0, t, row] == pytest.approx(expected, rel=1e-6)
    apart = [(t, row) for t, row in wanted if (t, row) not in [(1, 0), (2, 2)]]
    assert all(found[1, t, row] != found[0, t, row] for t, row in apart)


def test_the_latest_conversations_are_kept():
    part = UtteranceCritic(slots=5, steps=1, batch=2)
    step = jax.jit(lambda kept, talks: part(kept, talks, 1, KEY))
    kept = jax.jit(lambda: part.init(MODEL, TALKING, TIME, KEY))()
    rounds = [held([3, 8], seed) for seed in range(4)]
    for talks in rounds:
        kept, _, _ = step(kept, talks)
    replay, rounds = jax.tree.map(np.asarray, (kept.replay, rounds))
    rows = [(rounds[n // 2], n % 2) for n in (5, 6, 7, 3, 4)]  # conversation n lies in slot n % 5
    for slot, (talks, row) in enumerate(rows):
        np.testing.assert_array_equal(replay.transcript[slot], talks.transcript[row])
        np.testing.assert_array_equal(replay.reward[:, slot], talks.reward[:, row])
    with pytest.raises(UserError, match=r"experience\.slots=5 holds less than the 6 conversations"):
        part(kept, held([3] * 6), 1, KEY)


@pytest.mark.slow
def test_utterances_are_paid_what_they_were_better_than_expected():
    """Who says 8 first earns 1, discounted by a turn; half do. What comes later changes nothing any more."""
    part = UtteranceCritic(slots=64, steps=25, batch=16, learning_rate=3e-3, discount=0.8, warmup=1)
    step = jax.jit(lambda kept, talks, key: part(kept, talks, 1, key))
    kept = part.init(MODEL, TALKING, TIME, KEY)
    for i in range(24):
        talks = held([8, 3] * 8, seed=i % 4)
        kept, paid, _ = step(kept, talks, quick_key(i))
        if i == 0:
            assert not paid.reward.any(), "a critic that was taught nothing pays nothing"
    reward = np.asarray(paid.reward)
    assert (reward[0, ::2] > 0.2).all() and (reward[0, 1::2] < -0.2).all(), reward[0]
    np.testing.assert_allclose(reward[1], 0.0, atol=0.2)
    np.testing.assert_array_equal(reward[2], 0.0)
    q, v = (np.asarray(x[0]) for x in kept.judge(talks))
    np.testing.assert_allclose(q[0], np.where(np.arange(16) % 2 == 0, 0.8, 0.0), atol=0.15)
    np.testing.assert_allclose(v[0], 0.4, atol=0.15)
