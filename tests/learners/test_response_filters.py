"""Filters of sampled responses by the rank of their returns, against sorting by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from synthetic_batches import quick_key

from thespis.actors.lm_policy import DialogueSpec
from thespis.core.errors import UserError
from thespis.learners.language.advantage_estimators import LeaveOneOut, TurnBatch
from thespis.learners.language.dialogues import SampledDialogues
from thespis.learners.language.response_filters import RankFilter
from thespis.nets.decoder import DecoderConfig, init_decoder

GROUP = 5
MODEL = init_decoder(DecoderConfig(9, 32, 1, 1, 1, 32, 96), quick_key(0))
BEST, WORST, BEST_RANDOM = RankFilter(1, 0), RankFilter(0, 2), RankFilter(1, 0, 1)


def dialogues_with(returns: list[float]) -> SampledDialogues:
    """Dialogues of one turn, whose first token is their number."""
    rows = len(returns)
    empty = SampledDialogues.empty(rows, DialogueSpec(4, 2, 2, 1, (0,)), 1)
    transcript = empty.transcript.at[:, 0].set(jnp.arange(rows))
    reward = jnp.asarray(returns, "float32")[None]
    return dataclasses.replace(empty, transcript=transcript, reward=reward, alive=jnp.ones((1, rows), bool))


@jax.jit(static_argnums=0)
def kept_rows(rank_filter: RankFilter, dialogues: SampledDialogues, key: Array) -> Array:
    """Numbers of the dialogues that are kept."""
    return rank_filter((), dialogues, GROUP, key)[1].transcript[:, 0]


def test_the_best_the_worst_and_random_ones_of_each_group_are_kept():
    dialogues = dialogues_with([3, 1, 5, 2, 4, -1, -2, -5, -4, -3])
    key = quick_key(0)
    np.testing.assert_array_equal(kept_rows(RankFilter(), dialogues, key), [2, 1, 5, 7])
    np.testing.assert_array_equal(kept_rows(BEST, dialogues, key), [2, 5])
    np.testing.assert_array_equal(kept_rows(WORST, dialogues, key), [3, 1, 8, 7])
    draws = np.array([kept_rows(BEST_RANDOM, dialogues, quick_key(i)) for i in range(200)])
    assert (draws[:, 0] == 2).all() and (draws[:, 2] == 5).all()
    for column, others in ((1, [0, 1, 3, 4]), (3, [6, 7, 8, 9])):
        numbers, counts = np.unique(draws[:, column], return_counts=True)
        assert numbers.tolist() == others and counts.min() > 25
    everyone = np.asarray(kept_rows(RankFilter(0, 0, GROUP), dialogues, key)).reshape(2, GROUP)
    np.testing.assert_array_equal(np.sort(everyone, axis=1), np.arange(10).reshape(2, GROUP))


def test_equal_returns_are_ranked_at_random():
    dialogues = dialogues_with([1, 1, 1, 0, 0])
    draws = np.array([kept_rows(RankFilter(), dialogues, quick_key(i)) for i in range(200)])
    assert set(draws[:, 0]) == {0, 1, 2} and set(draws[:, 1]) == {3, 4}


def test_mistakes_are_refused():
    with pytest.raises(ValueError, match="keeps some dialogue"):
        RankFilter(0, 0)
    with pytest.raises(UserError, match=r"keeps 6 dialogues of each group of 5"):
        RankFilter(3, 3)((), dialogues_with([0.0] * GROUP), GROUP, quick_key(0))
    with pytest.raises(UserError, match="one player"):
        RankFilter().init(MODEL, DialogueSpec(4, 2, 2, 1, (0,), num_players=2), 1, quick_key(0))


def test_a_group_baseline_compares_what_is_kept():
    """With the best and the worst of each group, leave-one-out advantages are plus and minus their difference."""
    dialogues = dialogues_with([3, 1, 5, 2, 4, -1, -2, -5, -4, -3])
    kept = jax.jit(lambda key: RankFilter()((), dialogues, GROUP, key)[1])(quick_key(0))
    turns = TurnBatch(kept.reward, kept.alive, kept.truncated, kept.response_mask, RankFilter().num_kept)
    advantages = turns.subtract_baseline(LeaveOneOut(), turns.returns)
    np.testing.assert_allclose(advantages, [4, -4, 4, -4])
