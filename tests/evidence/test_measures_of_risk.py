"""Tails and variances of returns, of runs that are nothing but their final evaluation."""

import numpy as np

from thespis.evidence.measures import tail_return, variance_of_returns
from thespis.trained import Run

RETURNS = np.random.default_rng(0).normal(size=(3, 10))


class Finished(Run):
    def __init__(self):
        self.path = "nowhere"

    @property
    def final(self):
        return {"greedy": {"scores": RETURNS}, "sampled": {"scores": -RETURNS}}


RUN = Finished()


def test_the_tail_is_the_mean_of_the_worst_share():
    worst = np.array([np.partition(row, 1)[:2].mean() for row in RETURNS])
    np.testing.assert_allclose(tail_return(0.2).of(RUN), worst)
    np.testing.assert_allclose(tail_return(1.0, "sampled").of(RUN), -RETURNS.mean(axis=1))
    np.testing.assert_allclose(tail_return(0.01).of(RUN), RETURNS.min(axis=1))
    assert tail_return(0.2).larger_is_better


def test_less_variance_is_better():
    np.testing.assert_allclose(variance_of_returns().of(RUN), (RETURNS**2).mean(axis=1) - RETURNS.mean(axis=1) ** 2)
    assert not variance_of_returns().larger_is_better
