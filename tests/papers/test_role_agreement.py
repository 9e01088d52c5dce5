"""Agreement of roles with trades: the adjusted Rand index against loops over pairs, and agents with known roles."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from unittest.mock import Mock

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.envs.compiled.hidden_trades import GROUP
from thespis.evaluation.run import Run
from thespis.evidence.benches.hidden_trades import VISIBLE_ENV
from thespis.papers.acorm.role_agreement import adjusted_rand, role_agreement


def adjusted_rand_by_permutation(labels, classes):
    """Pairs joined by both, minus their mean over all orders of the classes, over the most that is possible."""

    def joined(a, b):
        return sum(a[i] == a[j] and b[i] == b[j] for i, j in itertools.combinations(range(len(a)), 2))

    expected = np.mean([joined(labels, order) for order in itertools.permutations(classes)])
    largest = (joined(labels, labels) + joined(classes, classes)) / 2
    return (joined(labels, classes) - expected) / (largest - expected)


@pytest.mark.parametrize("seed", range(4))
def test_adjusted_rand_matches_all_permutations(seed):
    labels, classes = np.random.default_rng(seed).integers(0, 3, (2, 6)).astype("int32")
    expected = adjusted_rand_by_permutation(labels.tolist(), classes.tolist())
    np.testing.assert_allclose(adjusted_rand(jnp.asarray(labels), jnp.asarray(classes)), expected, atol=1e-5)


def test_adjusted_rand_of_equal_and_trivial_partitions():
    labels = jnp.array([0, 0, 1, 1, 2, 2], "int32")
    assert adjusted_rand(labels, (labels + 1) % 3) == 1.0
    assert adjusted_rand(jnp.zeros(4, "int32"), jnp.zeros(4, "int32")) == 1.0
    assert adjusted_rand(labels, jnp.zeros(6, "int32")) == 0.0


class KnownRoles(eqx.Module):
    """Agents whose role is their visible trade or, with a state of 1, the same for all."""

    def policy(self, state, mode):
        def body(memory, seen):
            return {"role": seen["own"][-3:] * (state == 0)}, memory

        network = SimpleNamespace(body=body, body_input=lambda seen: seen)
        return SimpleNamespace(network=SimpleNamespace(agent_networks={GROUP: network}))

    def init_memory(self, policy, n):
        return {GROUP: jnp.zeros((n, 6))}

    def act(self, policy, memory, view, key):
        return {GROUP: jnp.argmax(view.observation[GROUP][..., -3:], axis=-1).astype("int32")}, memory, ()


def test_roles_that_are_trades_agree_more_than_beliefs_and_equal_ones_not_at_all():
    run = Mock(
        spec=Run, config={"env": VISIBLE_ENV, "seeds": [3, 4]}, states=jnp.array([0.0, 1.0]), method=KnownRoles()
    )
    known, equal = role_agreement(50).compute(run)
    assert 1.0 <= known < 1.5
    assert equal == pytest.approx(0.0, abs=1e-6)
