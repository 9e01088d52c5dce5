"""The measure of ACE's trial: how far apart the weights of action dimensions are at the end of training."""

from types import SimpleNamespace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import synthetic_batches

from thespis.evidence.benches.multi_goal import FORAGING
from thespis.papers.ace.paper import PAPER, weight_spread


def test_weight_spread_reads_the_training_state():
    for name, expected in (("SAC", [0.0, 0.0]), ("ACE", [1.0, 0.5])):
        method = PAPER.miniature.arm(name).method
        states: Any = jax.eval_shape(
            lambda key, method=method: method.init(FORAGING.spec, key), synthetic_batches.quick_key(0)
        )
        if name == "ACE":
            weights = jnp.array([[1.5, 0.5], [0.75, 1.25]])
            states = eqx.tree_at(lambda s: s.entropy_state.action_weights, states, weights)
        run: Any = SimpleNamespace(states=states, config={"seeds": [0, 1]})
        np.testing.assert_allclose(weight_spread().compute(run), expected)
