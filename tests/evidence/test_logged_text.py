"""Bench of logged dialogues: its log and its symptom agree with rules on words, and with counts by loops."""

from typing import Any

import numpy as np
import pytest

from thespis.core.errors import UserError
from thespis.core.spaces import END
from thespis.evaluation.run import Run
from thespis.evidence.benches.logged_text import (
    BASELINE,
    ECHO,
    ECHO_ENV,
    LOG,
    NUM_DIALOGUES,
    PERFECT_LOG,
    unrewarded_share,
)
from thespis.evidence.measures import untrained_return
from thespis.methods.language.sft import SFT
from thespis.training.data_sources import build_dataset

SPACE: Any = ECHO.spec.action_space
WORDS = SPACE.vocabulary.words


class ImitationRun(Run):
    """A run without files, of supervised fine-tuning on a log."""

    path = "nowhere"

    def __init__(self, method, log):
        self._method = method
        self._config = {"seeds": [0, 1], "env": ECHO_ENV, "options": log}

    @property
    def config(self):
        return self._config

    @property
    def method(self):
        return self._method

    @property
    def final_scores(self):
        return {"greedy": {"scores": [[1.0, 2.0]]}, "untrained": self._config.get("untrained")}


def dialogues(log):
    """For each logged dialogue its pairs of a word that was shown and the word of the response."""
    steps = build_dataset(log["data"], ECHO_ENV, BASELINE).steps
    pairs = []
    for first, shown, response in zip(steps.is_first, steps.view.observation, steps.action, strict=True):
        if first:
            pairs.append([])
        assert WORDS[response[1]] == END
        pairs[-1].append((WORDS[shown[shown >= 0][-2]], WORDS[response[0]]))
    return pairs


def test_the_log_is_random_and_the_perfect_one_repeats_every_word():
    log, perfect = dialogues(LOG), dialogues(PERFECT_LOG)
    assert len(log) == len(perfect) == NUM_DIALOGUES and {len(pairs) for pairs in log} == {4}
    assert all(shown == said for pairs in perfect for shown, said in pairs)
    assert [pairs[0][0] for pairs in log] == [pairs[0][0] for pairs in perfect]
    right = np.mean([shown == said for pairs in log for shown, said in pairs])
    assert 0.2 < right < 0.3


@pytest.mark.parametrize("min_return", [-np.inf, 2.0, 3.0])
def test_unrewarded_responses_are_those_that_repeat_no_word(min_return):
    imitated = [pairs for pairs in dialogues(LOG) if sum(shown == said for shown, said in pairs) >= min_return]
    wrong = [shown != said for pairs in imitated for shown, said in pairs]
    scores = unrewarded_share().compute(ImitationRun(SFT(min_return=min_return), LOG))
    np.testing.assert_allclose(scores, [np.mean(wrong)] * 2)
    assert unrewarded_share().compute(ImitationRun(SFT(min_return=min_return), PERFECT_LOG)).tolist() == [0.0, 0.0]


def test_returns_before_training_are_read_where_there_are_any():
    run = ImitationRun(BASELINE, LOG)
    with pytest.raises(UserError, match="before training"):
        untrained_return().compute(run)
    run.config["untrained"] = {"scores": [[1.0, 0.0], [3.0, 2.0]]}
    assert untrained_return().compute(run).tolist() == [0.5, 2.5]
