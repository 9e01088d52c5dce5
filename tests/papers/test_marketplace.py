"""Marketplace against plain Python: what customers buy, rate and get, and what is false."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.laws.environments import check_environment
from thespis.papers.rlhs.envs import HINDSIGHT, Marketplace, MarketplaceState
from thespis.runtime.keys import indexed_keys, seed_key

TASK = Marketplace()
SPEC = TASK.task_spec
NOUNS, KNOWN, CLAIMS = ("first", "second", "third"), ("has", "lacks", "unknown"), ("has", "lacks", "unsure")
PRICE_SHARES = (1.0, 0.8, 2 / 3)


def text(words):
    tokens = SPEC.encode(words)[: SPEC.max_response_tokens]
    return jnp.asarray(np.pad(tokens, (0, SPEC.max_response_tokens - len(tokens)), constant_values=-1))


def state(known, has_feature):
    return MarketplaceState(jnp.array([KNOWN.index(x) for x in known]), jnp.array(has_feature))


def test_all_responses_are_worth_what_the_rules_say():
    cases = list(itertools.product(itertools.product(KNOWN, repeat=3), range(3), CLAIMS))
    truths = [[x == "has" or (x == "unknown" and i != 1) for i, x in enumerate(known)] for known, _, _ in cases]
    states = MarketplaceState(jnp.array([[KNOWN.index(x) for x in known] for known, _, _ in cases]), jnp.array(truths))
    responses = jnp.stack([text(f"{NOUNS[i]} {claim} <end>") for _, i, claim in cases])
    steps = jax.jit(jax.vmap(lambda state, response: TASK.step(state, response, seed_key(0))[1]))(states, responses)
    aspects = jax.jit(jax.vmap(TASK.aspects))(states, responses)
    for row, (known, i, claim) in enumerate(cases):
        is_bought, has_feature = claim == "has", truths[row][i]
        utility = (PRICE_SHARES[i] if has_feature else -1.0) if is_bought else 0.0
        assert aspects["utility"][row] == steps.reward[row] == pytest.approx(utility)
        assert aspects["rating"][row] == pytest.approx(PRICE_SHARES[i] if is_bought else 0.0)
        assert aspects["false"][row] == float(claim != "unsure" and claim != known[i])
        assert aspects["regret"][row] == float(is_bought and not has_feature)
    assert steps.terminated.all()


@pytest.mark.parametrize("words", ["first", "has first <end>", "first has has", "first first <end>", "<end>"])
def test_other_responses_sell_nothing(words):
    aspects = TASK.aspects(state(KNOWN, (True, False, True)), text(words))
    assert not any(float(x) for x in aspects.values())


@pytest.mark.parametrize(
    ("objective", "known_mean", "unknown_mean"),
    [("immediate", 1.0, 1.0), ("hindsight", -1.0, 0.0), ("observed", -1.0, 1.0)],
)
def test_ratings_are_of_what_is_believed_simulated_or_observed(objective, known_mean, unknown_mean):
    """Of an item that is known to lack the feature, and of an unknown one that has it."""
    task, response = Marketplace(objective=objective, rationality=5.0), text("first has <end>")
    episodes = state(("lacks", "has", "has"), (False, True, True)), state(("unknown", "has", "has"), (True, True, True))
    for episode, mean in zip(episodes, (known_mean, unknown_mean), strict=True):
        keys = indexed_keys(seed_key(1), 4_000)
        ratings = jax.vmap(lambda key, s=episode: task.step(s, response, key)[1].reward)(keys)
        assert ratings.mean() == pytest.approx(mean, abs=0.06)


def test_items_are_known_and_true_at_their_rates():
    states, prompts = jax.vmap(TASK.init)(indexed_keys(seed_key(0), 4_000))
    shares = [(np.asarray(states.known) == i).mean() for i in range(3)]
    np.testing.assert_allclose(shares, [0.6, 0.2, 0.2], atol=0.02)
    assert (states.has_feature[states.known == 0]).all() and not (states.has_feature[states.known == 1]).any()
    assert states.has_feature[states.known == 2].mean() == pytest.approx(0.5, abs=0.04)
    words = [SPEC.vocabulary.words[token] for token in np.asarray(prompts[0])]
    assert words == [*(KNOWN[int(i)] for i in states.known[0]), ">"]


def test_the_demonstrator_is_honest_or_random():
    honest = Marketplace(demonstrator_noise=0.0)
    states, _ = jax.vmap(honest.init)(indexed_keys(seed_key(0), 500))
    responses = jax.vmap(honest.demonstrator_response)(states, indexed_keys(seed_key(1), 500))
    aspects = jax.vmap(honest.aspects)(states, responses)
    assert not aspects["false"].any() and not aspects["regret"].any()
    cheapest = np.asarray(states.known == 0)
    best = np.where(cheapest.any(axis=1), np.asarray(PRICE_SHARES)[cheapest.argmax(axis=1)], 0.0)
    np.testing.assert_allclose(aspects["utility"], best, rtol=1e-5)
    random = jax.vmap(TASK.demonstrator_response)(states, indexed_keys(seed_key(1), 500))
    assert len({tuple(row) for row in np.asarray(random)}) == 9


def test_the_environment_keeps_the_laws():
    check_environment(HINDSIGHT)
