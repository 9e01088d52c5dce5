"""The measure of ACE's trial: how much larger the causal weights of the joints are than those of dummy actions."""

from types import SimpleNamespace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import synthetic_batches

from thespis.evidence.claims import MinimumScore
from thespis.evidence.continuous_control import PADDED_REACHER
from thespis.papers.ace.paper import PAPER


def test_weight_difference_reads_the_training_state():
    _, claim = PAPER.miniature.named_claims[-1]
    assert isinstance(claim, MinimumScore)
    (measure,) = claim.measures
    for name, expected in (("SAC", [0.0, 0.0]), ("causal entropy", [1.0, -0.5])):
        method = PAPER.miniature.arm(name).method
        states: Any = jax.eval_shape(
            lambda key, method=method: method.init(PADDED_REACHER.spec, key), synthetic_batches.quick_key(0)
        )
        if name != "SAC":
            weights = np.ones((2, 10))
            weights[0, :2], weights[1, 2:] = 2.0, 1.5
            states = eqx.tree_at(lambda s: s.entropy_state.action_weights, states, jnp.asarray(weights))
        run: Any = SimpleNamespace(states=states, config={"seeds": [0, 1]})
        np.testing.assert_allclose(measure.compute(run), expected)
