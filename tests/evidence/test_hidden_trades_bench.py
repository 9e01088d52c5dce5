"""Bench of hidden trades: play by exact beliefs against enumeration, and the share that greedy play misses of it."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from thespis.envs.compiled.hidden_trades import HIDDEN, HiddenTrades
from thespis.evaluation.run import Run
from thespis.evidence.benches import hidden_trades
from thespis.evidence.benches.hidden_trades import HIDDEN_ENV, belief_return, share_short_of_beliefs


def test_the_first_step_by_beliefs_is_random_and_later_ones_are_better():
    """With one worker of each of two trades there are four equally likely pairs of jobs."""
    env = HiddenTrades(num_trades=2, num_per_trade=1, skilled_prob=0.7, unskilled_prob=0.2, num_steps=1)
    assert belief_return(env) == pytest.approx((0.7**2 + 0.2**2) / 4, abs=0.015)
    assert 1.5 < belief_return(HIDDEN) < HIDDEN.optimal_return()


def test_share_that_greedy_play_misses(monkeypatch):
    monkeypatch.setattr(hidden_trades, "belief_return", lambda env: 9.0)
    scores = {"random": {"scores": [[1.0, 1.0]]}, "greedy": {"scores": [[5.0, 5.0], [9.0, 9.0]]}}
    run = Mock(spec=Run, final_scores=scores, config={"env": HIDDEN_ENV})
    assert share_short_of_beliefs().compute(run).tolist() == [0.5, 0.0]
