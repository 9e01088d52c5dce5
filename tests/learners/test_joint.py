"""A team as one: what acting said is what learning says, the absent count nothing, edges fade."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import CASES
from test_teams import experienced, otherwise

from thespis.core.keys import key_of
from thespis.core.laws import same_bits
from thespis.core.records import Batch
from thespis.learners.joint import together
from thespis.learners.on_policy import replay
from thespis.methods.teams.bayesian import Fading

METHOD, SPEC = CASES["bayesian"].method, CASES["bayesian"].world.spec


@pytest.mark.slow
def test_what_acting_said_is_what_learning_says_and_the_absent_change_no_bit():
    state, batch = experienced(METHOD, SPEC)
    network, extras = state.learnt.network, batch.steps.extras
    joint = Batch(together(network.actor, batch.steps, extras), batch.mask, (), batch.index)
    seen = METHOD.method.assessor().see(network, state.learnt.scales, joint)
    np.testing.assert_allclose(replay(network, (), seen).log_prob, extras["log_prob"], atol=1e-5)
    update = jax.jit(METHOD.update)
    bare = dataclasses.replace(batch, steps=dataclasses.replace(batch.steps, extras=()))
    other = otherwise(bare, SPEC, True, later=False)
    other = dataclasses.replace(other, steps=dataclasses.replace(other.steps, extras=extras))
    assert any((batch.steps.action[n] != other.steps.action[n]).any() for n in ("movers", "x"))
    same_bits(update(state, batch, key_of(0)), update(state, other, key_of(0)), "the absent")


def test_edges_fade_and_are_struck_from_those_who_are_not_there():
    kept = [float(Fading(10.0, 30.0).kept(jnp.array(n))) for n in (0, 10, 15, 20, 30, 99)]
    np.testing.assert_allclose(kept, [1.0, 1.0, 0.75, 0.5, 0.0, 0.0])
    _, batch = experienced(METHOD, SPEC)
    alive = np.concatenate([batch.steps.view.alive[name] for name in ("movers", "x")], axis=-1)
    edges = np.asarray(batch.steps.extras["kept"]).reshape(*alive.shape, 3)
    np.testing.assert_array_equal(edges, np.broadcast_to(alive[..., None], edges.shape))
    assert 0 < alive.mean() < 1
