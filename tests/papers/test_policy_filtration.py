"""PF-PPO: reliability of rewards that filters keep, against loops and NumPy, and the order of filters."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from synthetic_batches import quick_key

import thespis
from thespis.evidence.benches.over_optimization import PENALIZED
from thespis.evidence.claims import CONTRADICTED, NOT_SHOWN, SHOWN
from thespis.evidence.measures import Measure
from thespis.feedback.fitted_reward import ComparisonReward
from thespis.learners.language.response_filters import RankFilter
from thespis.papers.pf_ppo import measures
from thespis.papers.pf_ppo.claims import RankCorrelation, kendall_tau
from thespis.papers.pf_ppo.measures import RatedTexts, bin_means, kept_texts, middle_deviation, r_squared
from thespis.papers.rluf.envs import REACTIONS_ENV
from thespis.runtime.keys import fold, root_keys


def rated(num_groups: int = 30, noise: float = 0.5) -> RatedTexts:
    """Groups of five texts with noisy rewards."""
    rng = np.random.default_rng(0)
    score = rng.uniform(size=(num_groups, 5))
    return RatedTexts(score + noise * rng.standard_normal(score.shape), score)


def test_r_squared_is_the_squared_correlation():
    texts = rated()
    correlation = np.corrcoef(texts.reward.ravel(), texts.score.ravel())[0, 1]
    np.testing.assert_allclose(r_squared(*texts), correlation**2)
    np.testing.assert_allclose(r_squared(texts.score, 3 * texts.score - 1), 1.0)
    assert r_squared(texts.reward, np.ones_like(texts.score)) == 0.0
    assert r_squared(np.ones_like(texts.reward), texts.score) == 0.0


def test_bins_are_means_of_texts_with_similar_rewards():
    texts = rated(num_groups=8)
    reward, score = bin_means(texts, 10)
    ordered = sorted(zip(texts.reward.ravel(), texts.score.ravel(), strict=True))
    for i in range(4):
        np.testing.assert_allclose([reward[i], score[i]], np.mean(ordered[10 * i : 10 * i + 10], axis=0))
    assert len(reward) == 4


def test_a_filter_keeps_rewards_with_their_scores():
    texts = rated()
    kept = kept_texts(texts, RankFilter(1, 1), quick_key(0))
    for group, (reward, score) in enumerate(zip(texts.reward, texts.score, strict=True)):
        best, worst = int(np.argmax(reward)), int(np.argmin(reward))
        np.testing.assert_array_equal(kept.reward[group], reward[[best, worst]])
        np.testing.assert_array_equal(kept.score[group], score[[best, worst]])
    assert kept_texts(texts, None, quick_key(0)) is texts
    assert r_squared(*kept) > r_squared(*texts) > r_squared(*kept_texts(texts, RankFilter(1, 0), quick_key(0)))


def test_deviation_of_middle_ranks_against_a_loop():
    texts = rated(num_groups=3)
    slope, intercept = np.polyfit(texts.reward.ravel(), texts.score.ravel(), 1)
    squares: dict[bool, list[float]] = {True: [], False: []}
    for rewards, scores in zip(texts.reward, texts.score, strict=True):
        for rank, i in enumerate(sorted(range(5), key=lambda i: -rewards[i])):
            squares[0 < rank < 4].append((scores[i] - intercept - slope * rewards[i]) ** 2)
    expected = np.sqrt(np.mean(squares[True]) / np.mean(squares[False]))
    np.testing.assert_allclose(middle_deviation(texts), expected)


def test_rank_correlation_against_a_loop():
    a, b = np.random.default_rng(1).normal(size=(2, 6, 4))
    for x, y, tau in zip(a, b, kendall_tau(a, b), strict=True):
        agreeing = [np.sign((x[i] - x[j]) * (y[i] - y[j])) for i in range(4) for j in range(i)]
        np.testing.assert_allclose(tau, np.mean(agreeing))


@pytest.mark.parametrize(("sign", "verdict"), [(1, SHOWN), (-1, CONTRADICTED), (0, NOT_SHOWN)])
def test_the_order_of_arms_is_judged_over_seeds(sign: int, verdict: str):
    rng = np.random.default_rng(2)
    predicted = {arm: rng.normal(size=(10, 1)) for arm in "abc"}
    noise = {arm: rng.normal(size=(10, 1)) for arm in "abc"}
    outcomes = {arm: sign * predicted[arm] if sign else noise[arm] for arm in "abc"}
    predictor, outcome = (Measure(name, lambda run: np.zeros(1)) for name in ("predictor", "outcome"))
    tables = {"predictor": predicted, "outcome": outcomes}
    results = SimpleNamespace(scores=lambda arm, measure: tables[measure.name][arm])
    claim = RankCorrelation(("a", "b", "c"), predictor, outcome)
    finding = claim.evaluate(results, 0.95)  # pyright: ignore[reportArgumentType]
    assert finding.verdict == verdict and claim.sentence.startswith("predictor orders a, b and c as outcome does")
    assert finding.estimate == sign or not sign


@pytest.mark.long
def test_rewards_are_those_of_the_runs_own_reward_model(tmp_path, monkeypatch):
    monkeypatch.setattr(measures, "NUM_GROUPS", 4)
    method = dataclasses.replace(PENALIZED, model="blank", rollout_transform=RankFilter(1, 1), minibatch_size=4)
    method = dataclasses.replace(method, feed=dataclasses.replace(method.feed, group_size=5, num_envs=10))
    feedback = ComparisonReward(labelling_env=REACTIONS_ENV, num_prompts=8, num_reward_steps=4)
    run = thespis.train(method, REACTIONS_ENV, steps=20, seeds=[3, 4], feedback=feedback, episodes=2, out=tmp_path)
    fitted: Any = feedback.for_method(run.method)
    spec, refitted = run.spec, jax.vmap(lambda seed: fitted.init(spec, fold(seed, "feedback")))
    shapes = jax.eval_shape(refitted, root_keys([3, 4]))
    checkpoint = run.directory.load_checkpoint(shapes, "['carry'].learner.feedback")
    assert checkpoint is not None
    for a, b in zip(*map(jax.tree.leaves, (checkpoint.tree, jax.jit(refitted)(root_keys([3, 4])))), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
    texts = measures.rated_texts(run)
    assert [x.reward.shape for x in texts] == [(4, 5)] * 2 and len(np.unique(texts[0].reward)) > 4
    assert measures.RELIABILITY.compute(run).shape == (2,)
    assert np.abs(run.metrics()["kept_return"]).max() > 0
