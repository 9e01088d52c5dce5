"""Bench of controlled text generation: shares of reviews against a reading of their words."""

from __future__ import annotations

import re

import numpy as np
import pytest

import thespis
from thespis.core.contracts import Mode
from thespis.data.feeds import Episodes
from thespis.envs.host.wrapper import HostWrapper
from thespis.envs.registry import make_compiled
from thespis.evaluation.rollout import play_episodes
from thespis.evidence.benches.controlled_text import (
    REVIEW_ENV,
    controlled_share,
    grammatical_share,
    praising_share,
    uncontrolled_share,
    ungrammatical_share,
    untrained_controlled_share,
)
from thespis.papers.criticcontrol.method import CriticControl

CLAUSE = r"(food was (tasty|stale)|staff was (kind|rude)|room was (clean|dirty))"
REVIEW = re.compile(rf"{CLAUSE}( and {CLAUSE}){{2}}")
NUM_EPISODES = 30


def written_reviews(run):
    """The sampled reviews as words, ``[seed][episode]``."""
    env, seeds = make_compiled(REVIEW_ENV), run.config["seeds"]
    envs = HostWrapper(env, NUM_EPISODES * len(seeds))
    result = play_episodes(run.method, run.states, envs, seeds, Mode.SAMPLE, stream="elsewhere", num_kept=NUM_EPISODES)
    words = env.spec.action_space.vocabulary.words
    return [[[words[i] for i in e.action[0] if i >= 0] for e in episodes] for episodes in result.episodes]


@pytest.mark.slow
def test_shares_are_those_of_the_words(tmp_path):
    method = CriticControl(
        model="tiny", num_layers=1, hidden_size=32, num_pretrain_steps=300, feed=Episodes(max_steps=1, num_envs=4)
    )
    run = thespis.train(
        method, REVIEW_ENV, steps=8, seeds=[0, 1], episodes=2, preset=None, evaluate_every=0, out=tmp_path / "run"
    )
    praising, grammatical = np.zeros((2, 2, NUM_EPISODES), bool)
    for s, reviews in enumerate(written_reviews(run)):
        for e, words in enumerate(reviews):
            complete = words[-1] == "<end>"
            balance = sum((word in ["tasty", "kind", "clean"]) - (word in ["stale", "rude", "dirty"]) for word in words)
            praising[s, e] = complete and balance > 0
            grammatical[s, e] = complete and REVIEW.fullmatch(" ".join(words[:-1])) is not None
    assert 0 < praising.mean() < 1 and 0 < grammatical.mean() < 1
    expected = {
        praising_share: praising,
        grammatical_share: grammatical,
        ungrammatical_share: ~grammatical,
        controlled_share: praising & grammatical,
        uncontrolled_share: ~(praising & grammatical),
    }
    for measure, shares in expected.items():
        np.testing.assert_allclose(measure(NUM_EPISODES).compute(run), shares.mean(axis=1))
    before = untrained_controlled_share(NUM_EPISODES).compute(run)
    assert before.shape == (2,) and ((before >= 0) & (before <= 1)).all()
