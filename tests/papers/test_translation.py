"""Translation with references: prompts, comparisons and episodes; the loss of gaps; and which responses are learned."""

from __future__ import annotations

import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.laws.environments import check_environment
from thespis.learners.language.dialogues import SampledDialogues, single_turn_dialogues
from thespis.papers.pit.envs import ReferenceParams, Translation, draw_dictionary
from thespis.papers.pit.feedback import gap_loss
from thespis.papers.pit.references import LastResponses
from thespis.runtime.keys import seed_key

ENV = Translation(num_words=3, num_pairs=64)
WORDS = ENV.spec.action_space.vocabulary.words  # pyright: ignore[reportAttributeAccessIssue]
NUM_EPISODES = 200


def text(tokens: Any) -> str:
    return " ".join(WORDS[token] for token in np.asarray(tokens).tolist() if token >= 0)


def right_words(phrase: Any) -> str:
    """The translation of a phrase, from the dictionary."""
    return " ".join(f"{'uvwxyz'[draw_dictionary(3)[i, word]]}{i + 1}" for i, word in enumerate(np.asarray(phrase)))


def begin(reference: float, preferred: float, own: float) -> Any:
    """States and observations of new episodes."""
    params = ReferenceParams(*(jnp.float32(x) for x in (reference, preferred, own)))
    return jax.jit(jax.vmap(lambda key: ENV.reset(params, key)))(jax.random.split(seed_key(0), NUM_EPISODES))


def test_laws() -> None:
    """What all environments must do."""
    check_environment(ENV)


def test_dataset_words_and_preferences() -> None:
    """Shares of right words, of shared ones, and the preferred response has more right ones."""
    pairs = jax.vmap(Translation(num_words=3, num_pairs=64, rationality=50.0).comparison)(jnp.arange(2_000))
    right = np.asarray(jax.vmap(lambda phrase: ENV.tell(ENV.translate(phrase)))(pairs.phrase))
    assert text(right[0]) == right_words(pairs.phrase[0]) + " <end>"
    counts = [(np.asarray(x) == right)[:, :3].sum(axis=1) for x in (pairs.preferred, pairs.other)]
    assert (counts[0] >= counts[1]).all()
    assert np.mean(counts) / 3 == pytest.approx(0.5 + 0.5 / 6, abs=0.02)
    same = np.asarray(pairs.preferred == pairs.other)[:, :3].mean()
    assert same == pytest.approx(0.5 + 0.5 * (0.25 + 2 * 0.25 / 6 + 0.25 / 6), abs=0.02)


@pytest.mark.parametrize(("preferred", "name"), [(0.0, "other"), (1.0, "preferred")])
def test_references_of_the_dataset(preferred: float, name: str) -> None:
    """The prompt has the phrase and one of its two responses, and the episode ends with the next response."""
    state, first = begin(1.0, preferred, 0.0)
    pairs = jax.vmap(ENV.comparison)(jnp.arange(64))
    dataset = {text(response) for response in getattr(pairs, name)}
    for i in range(20):
        phrase, reference = text(first.observation[i]).split(" > ")
        assert phrase == " ".join(f"{'abcdef'[word]}{j + 1}" for j, word in enumerate(np.asarray(state.phrase[i])))
        assert reference.endswith(" <end> improve >") and reference.removesuffix(" improve >") in dataset
    assert bool(state.is_answered.all())


def test_own_reference() -> None:
    """The first response becomes the reference: the transcript is the prompt that shows it, and a turn follows."""
    state, first = begin(1.0, 0.0, 1.0)
    responses = jax.vmap(ENV.tell)(jnp.zeros((NUM_EPISODES, 3), "int32"))
    state, outcome = jax.vmap(ENV.step)(state, responses, jax.random.split(seed_key(1), NUM_EPISODES))
    assert not bool(outcome.terminated.any()) and "improve" not in text(first.observation[0])
    assert np.array_equal(outcome.observation, jax.vmap(ENV.prompt)(state.phrase, responses))
    right = jax.vmap(lambda phrase: ENV.tell(ENV.translate(phrase)))(state.phrase)
    _, outcome = jax.vmap(ENV.step)(state, right, jax.random.split(seed_key(1), NUM_EPISODES))
    assert bool(outcome.terminated.all()) and bool((outcome.reward == 1.0).all())


def test_gap_loss_is_that_of_all_ordered_pairs() -> None:
    """Against plain Python: every pair of gaps with a different rank."""
    gaps = np.random.default_rng(0).normal(size=(4, 3))
    ranks = (2, 1, 1, 0)
    losses = [
        math.log1p(math.exp(-(gaps[a, i] - gaps[b, i])))
        for i in range(3)
        for a, b in itertools.product(range(4), repeat=2)
        if ranks[a] > ranks[b]
    ]
    assert len(losses) == 15
    assert float(gap_loss(jnp.asarray(gaps))) == pytest.approx(np.mean(losses), rel=1e-5)


def test_only_last_responses_are_learned() -> None:
    """Of two turns the second, of one turn that."""
    prompts, responses = jnp.zeros((2, 3), "int32"), jnp.ones((2, 2), "int32")
    one = single_turn_dialogues(prompts, responses, jnp.ones(2, bool))
    alive = jnp.array([[True, True], [True, False]])
    doubled = {name: jnp.concatenate([getattr(one, name)] * 2) for name in ("responses", "reward")}
    starts = jnp.concatenate([one.response_starts[:1], one.response_starts])
    dialogues = SampledDialogues(
        one.transcript,
        starts,
        doubled["responses"],
        alive,
        doubled["reward"] + 1.0,
        one.truncated,
        log_probs=jnp.zeros((2, 2, 2)),
    )
    _, learned, metrics = LastResponses()((), dialogues, 1, seed_key(0))
    assert learned.alive.tolist() == [[False, True], [True, False]]
    assert learned.reward.tolist() == [[0.0, 1.0], [1.0, 0.0]]
    assert float(metrics["own_references"]) == 0.5
