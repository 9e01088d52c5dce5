"""Turns that the outcome misjudges, against dialogues that can be counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from thespis.evidence.benches.multi_turn_text import disagreement


def test_disagreement_of_turns_and_outcomes():
    good, bad = np.array([1.0, 1.0, 1.0, 0.0]), np.array([0.0, 0.0, 1.0, 0.0])
    assert disagreement([good, bad]) == pytest.approx(2 / 8)  # the bad turn of the good dialogue, and the reverse
    assert disagreement([np.ones(3), np.zeros(3)]) == 0.0


def test_independent_turns_disagree_as_often_as_binomials_say():
    rewards = (np.random.default_rng(0).random((20_000, 8)) < 0.5).astype(float)
    total = rewards.sum(axis=1)
    expected = np.mean([(rewards[:, i] > 0.5) != (total > 4.0) for i in range(8)])
    assert disagreement(list(rewards)) == pytest.approx(expected, abs=0.02)
    assert expected == pytest.approx(0.36, abs=0.02)
