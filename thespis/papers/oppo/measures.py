"""Measures of what is learned from preferences: whether new pairs of segments are put in the right order."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from thespis.envs.registry import make_compiled
from thespis.evidence.measures import Measure
from thespis.papers.cpl.method import PIQLTables
from thespis.papers.oppo.method import ContextModel
from thespis.papers.oppo.mixed_quality import simulate_pairs
from thespis.papers.regret_preference_model.envs import GridTables
from thespis.papers.regret_preference_model.method import SegmentLearner
from thespis.papers.regret_preference_model.segments import SegmentPairs
from thespis.runtime.keys import seed_key

NUM_PAIRS = 512


def preference_margin(
    learner: SegmentLearner, params: PyTree, pairs: SegmentPairs, tables: GridTables
) -> Float[Array, " pair"]:
    """Above 0 where the first segment is predicted to be preferred.

    Its context is nearer to the optimal one, or its learned return is larger; for learners that have neither, it is
    more likely under the policy.
    """
    if isinstance(params, ContextModel):
        return params.is_nearer(pairs)
    if isinstance(params, PIQLTables):
        scores = pairs.sum_of(params.rewards) + jnp.sum(~pairs.mask, axis=-1) * params.end_reward
    else:
        scores = pairs.sum_of(jax.nn.log_softmax(learner.policy_logits(params, tables)))
    return scores[:, 0] - scores[:, 1]


def preference_accuracy() -> Measure:
    """Share of new pairs of segments, with different true returns, that are put in the right order; ties count half."""

    def shares(run: Any) -> Float[np.ndarray, " seed"]:
        grid: Any = make_compiled(run.config["env"])
        method = run.method
        sizes = NUM_PAIRS, method.feed.num_steps
        pairs = simulate_pairs(grid.tables, method.lowest_random_prob, *sizes, seed_key(0))
        returns = pairs.sum_of(grid.tables.rewards)
        margin = returns[:, 0] - returns[:, 1]
        predicted = jax.vmap(lambda params: preference_margin(method.learner, params, pairs, grid.tables))(
            run.states.params
        )
        return np.asarray(jnp.mean(0.5 + 0.5 * jnp.sign(predicted * margin), axis=1, where=margin != 0))

    return Measure("share of new pairs of segments in the right order", shares, bounds=(0.0, 1.0))
