"""CVaR and variance of returns, against NumPy, on runs that have only a final evaluation."""

import numpy as np

from thespis.evaluation.run import Run
from thespis.evidence.measures import cvar_return, return_variance

RETURNS = np.random.default_rng(0).normal(size=(3, 10))


class ScoresOnlyRun(Run):
    """A run with known final scores and no files."""

    def __init__(self):
        self.path = "nowhere"

    @property
    def final_scores(self):
        return {"greedy": {"scores": RETURNS}, "sampled": {"scores": -RETURNS}}


RUN = ScoresOnlyRun()


def test_cvar_is_the_mean_of_the_worst_share():
    worst = np.array([np.partition(row, 1)[:2].mean() for row in RETURNS])
    np.testing.assert_allclose(cvar_return(0.2).compute(RUN), worst)
    np.testing.assert_allclose(cvar_return(1.0, "sampled").compute(RUN), -RETURNS.mean(axis=1))
    np.testing.assert_allclose(cvar_return(0.01).compute(RUN), RETURNS.min(axis=1))
    assert cvar_return(0.2).larger_is_better


def test_lower_variance_is_better():
    np.testing.assert_allclose(return_variance().compute(RUN), (RETURNS**2).mean(axis=1) - RETURNS.mean(axis=1) ** 2)
    assert not return_variance().larger_is_better
