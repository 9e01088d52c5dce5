"""PF-PPO: its filter against sorting by hand, the reliability of what it keeps against listing all groups."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from synthetic_batches import quick_key

from thespis.actors.lm_policy import DialogueSpec
from thespis.core.errors import UserError
from thespis.envs.text.bandit import Bandit
from thespis.learners.language.dialogues import SampledDialogues, single_turn_dialogues
from thespis.learners.language.response_filters import RankFilter
from thespis.nets.decoder import DecoderConfig, init_decoder
from thespis.papers.pf_ppo import measures
from thespis.papers.pf_ppo.reward_model import PermutedReward

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


@pytest.mark.parametrize("rank_filter", [RankFilter(), BEST, BEST_RANDOM, RankFilter(0, 0, 2), RankFilter(1, 1, 1)])
def test_expected_counts_are_those_of_all_groups(rank_filter):
    size = 3
    probs, rewards = np.array([0.1, 0.4, 0.2, 0.3]), np.array([0.5, -1.0, 2.0, 0.0])
    expected = np.zeros(4)
    for group in itertools.product(range(4), repeat=size):
        ranked = sorted(group, key=lambda word: -rewards[word])
        end = size - rank_filter.num_worst
        middle = ranked[rank_filter.num_best : end]
        weight = np.prod(probs[list(group)])
        for word in [*ranked[: rank_filter.num_best], *ranked[end:]]:
            expected[word] += weight
        for word in middle:
            expected[word] += weight * rank_filter.num_random / len(middle)
    counts = measures.kept_counts(probs, rewards, rank_filter, size)
    np.testing.assert_allclose(counts, expected, atol=1e-12)
    assert counts.sum() == pytest.approx(rank_filter.num_kept)


def test_determination_is_that_of_a_regression_on_repeated_points():
    rng = np.random.default_rng(0)
    rewards, scores, repeats = rng.normal(size=6), rng.normal(size=6), rng.integers(1, 5, 6)
    x, y = np.repeat(rewards, repeats), np.repeat(scores, repeats)
    residual = y - np.polyval(np.polyfit(x, y, 1), x)
    expected = 1 - residual.var() / y.var()
    assert measures.determination(repeats / repeats.sum(), rewards, scores) == pytest.approx(expected)


def test_rewards_are_utilities_at_both_ends_and_permuted_between_them():
    task = Bandit(num_words=8, num_prompts=3)
    model = PermutedReward(task, num_reliable=2, seed=1)
    for rewards, utilities in zip(model.rewards, task.utilities, strict=True):
        order = np.argsort(utilities)
        ends, middle = order[[0, 1, -2, -1]], order[2:-2]
        np.testing.assert_array_equal(rewards[ends], utilities[ends])
        np.testing.assert_array_equal(np.sort(rewards[middle]), np.sort(utilities[middle]))
    assert (model.rewards != task.utilities).sum() >= 6
    np.testing.assert_array_equal(PermutedReward(task, num_reliable=4).rewards, task.utilities)


def test_responses_are_scored_by_prompt_and_word_and_others_by_the_environment():
    task = Bandit(num_words=4, num_prompts=3)
    model = PermutedReward(task, num_reliable=1, seed=3)
    words = [task.task_spec.encode(f"{word} <end>") for word in ("c", "a", "d")]
    responses = np.stack([*words, task.task_spec.encode("a a")])
    prompts = task.prompt_tokens[[2, 0, 1, 1]]
    dialogues = single_turn_dialogues(jnp.asarray(prompts), jnp.asarray(responses), jnp.ones(4, bool))
    dialogues = dataclasses.replace(dialogues, reward=jnp.full((1, 4), -7.0))
    expected = [model.rewards[2, 2], model.rewards[0, 0], model.rewards[1, 3], -7.0]
    np.testing.assert_allclose(model.score_turns((), dialogues, quick_key(0))[0], expected)
