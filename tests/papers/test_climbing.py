"""The climbing game against its table, played out in every way."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from thespis.core.conformance import check_environment
from thespis.envs.compiled.climbing import PAYS, Climbing


def test_it_keeps_the_contract():
    check_environment(Climbing())


def test_two_are_paid_by_the_table_and_the_third_counts_nothing():
    world, plans = Climbing(), list(itertools.product(range(3), range(3), range(3), range(3)))
    out, *done = np.array(plans, "int32").T
    actions = {"agent": jnp.stack([jnp.asarray(x) for x in done], axis=1)}
    _, answer = jax.jit(jax.vmap(world.step, in_axes=(0, 0, None)))(jnp.asarray(out), actions, jax.random.key(0))
    wanted = [
        PAYS[a][b] for left, *all_of_them in plans for a, b in [[x for i, x in enumerate(all_of_them) if i != left]]
    ]
    np.testing.assert_array_equal(answer.reward, wanted)
    assert max(wanted) == 11.0 and bool(answer.terminated.all())
    np.testing.assert_array_equal(answer.observation["agent"][:, 2], np.eye(3)[out])
