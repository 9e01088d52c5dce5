"""The bench of many actions: what its measure counts, against levers set by hand."""

from unittest.mock import Mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.evaluation.run import Run
from thespis.evidence.benches.many_actions import FORTY_LEVERS, missed_levers


def test_missed_levers_are_what_the_mean_return_lacks():
    """A policy that sets ten of forty levers wrongly misses a quarter, up to the noise of the rewards."""
    keys = jax.random.split(jax.random.key(0), 400)

    def episode(key):
        state, _ = FORTY_LEVERS.reset((), key)

        def step(state, key):
            action = FORTY_LEVERS.target_positions(state.cue)
            action = jnp.where(jnp.arange(40) < 10, (action + 1) % FORTY_LEVERS.num_choices, action)
            state, timestep = FORTY_LEVERS.step(state, action, key)
            return state, timestep.reward

        return jax.lax.scan(step, state, jax.random.split(key, FORTY_LEVERS.time_limit))[1].sum()

    returns = np.asarray(jax.vmap(episode)(keys))
    run = Mock(spec=Run, final_scores={"greedy": {"scores": [returns, np.full(400, 20.0)]}})
    np.testing.assert_allclose(missed_levers().compute(run), [0.25, 0.0], atol=0.01)
    assert FORTY_LEVERS.spec.time_limit == pytest.approx(20)
