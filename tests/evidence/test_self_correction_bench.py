"""Bench of self-correction: accuracies of attempts against the sums that the words state."""

from __future__ import annotations

import numpy as np
import pytest

import thespis
from thespis.core.contracts import Mode
from thespis.data.feeds import Episodes
from thespis.envs.host.wrapper import HostWrapper
from thespis.envs.registry import make_compiled
from thespis.evaluation.rollout import play_episodes
from thespis.evidence.benches.self_correction import (
    SUM_ENV,
    correction_gain,
    correction_rate,
    first_accuracy,
    second_accuracy,
    uncorrected_share,
    untrained_second_accuracy,
)
from thespis.methods.language.rloo import RLOO

NUM_EPISODES = 40


def right_attempts(run):
    """Whether each sampled attempt is the sum of the terms in the prompt, ``[attempt, seed, episode]``."""
    env, seeds = make_compiled(SUM_ENV), run.config["seeds"]
    envs = HostWrapper(env, NUM_EPISODES * len(seeds))
    result = play_episodes(run.method, run.states, envs, seeds, Mode.SAMPLE, stream="elsewhere", num_kept=NUM_EPISODES)
    words = env.spec.action_space.vocabulary.words
    right = np.zeros((2, len(seeds), NUM_EPISODES), bool)
    for s, episodes in enumerate(result.episodes):
        for e, episode in enumerate(episodes):
            opening = "".join(words[i] for i in episode.view.observation[0] if i >= 0)
            left, _, rest = opening.partition("+")
            total = int(left) + int(rest.removesuffix(">"))
            for attempt in range(2):
                text = "".join(words[i] for i in episode.action[attempt] if i >= 0)
                answer = text.removesuffix("<end>")
                right[attempt, s, e] = text.endswith("<end>") and answer.isdigit() and int(answer) == total
    return right


@pytest.mark.slow
def test_accuracies_are_those_of_the_words(tmp_path):
    method = RLOO(
        model="tiny",
        num_layers=1,
        hidden_size=32,
        num_pretrain_steps=1_500,
        minibatch_size=4,
        feed=Episodes(max_steps=2, group_size=2, num_envs=4),
    )
    run = thespis.train(
        method, SUM_ENV, steps=16, seeds=[0, 1], episodes=2, preset=None, evaluate_every=0, out=tmp_path / "run"
    )
    first, second = right_attempts(run)
    assert 0 < first.mean() < 1 and 0 < second.mean() < 1 and (~first & second).any()
    expected = {
        first_accuracy: first.mean(axis=1),
        second_accuracy: second.mean(axis=1),
        uncorrected_share: (~first & ~second).sum(axis=1) / (~first).sum(axis=1),
        correction_gain: second.mean(axis=1) - first.mean(axis=1),
        correction_rate: (~first & second).sum(axis=1) / (~first).sum(axis=1),
    }
    for measure, shares in expected.items():
        np.testing.assert_allclose(measure(NUM_EPISODES).compute(run), shares)
    before = untrained_second_accuracy(NUM_EPISODES).compute(run)
    assert before.shape == (2,) and ((before >= 0) & (before <= 1)).all()
