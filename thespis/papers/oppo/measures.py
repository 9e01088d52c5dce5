"""Measures of what is learned from preferences: whether new pairs of segments are put in the right order."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from thespis.envs.registry import make_compiled
from thespis.evidence.measures import Measure
from thespis.papers.oppo.mixed_quality import simulate_pairs
from thespis.runtime.keys import seed_key

NUM_PAIRS = 512


def preference_accuracy() -> Measure:
    """Share of new pairs of segments, with different true returns, that are put in the right order; ties count half."""

    def shares(run: Any) -> Float[np.ndarray, " seed"]:
        grid: Any = make_compiled(run.config["env"])
        method = run.method
        sizes = NUM_PAIRS, method.feed.num_steps
        pairs = simulate_pairs(grid.tables, method.lowest_random_prob, *sizes, seed_key(0))
        returns = pairs.sum_of(grid.tables.rewards)
        margin = returns[:, 0] - returns[:, 1]
        scores = jax.vmap(lambda params: method.learner.segment_scores(params, pairs, grid.tables))(run.states.params)
        predicted = scores[..., 0] - scores[..., 1]
        return np.asarray(jnp.mean(0.5 + 0.5 * jnp.sign(predicted * margin), axis=1, where=margin != 0))

    return Measure("share of new pairs of segments in the right order", shares, bounds=(0.0, 1.0))
