"""What annealing draws as steps go by, and that it is composed with what draws the rest."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.conformance import check_curriculum
from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, Outcomes
from thespis.core.spaces import Box
from thespis.curricula.annealing import Annealing, for_hovering
from thespis.curricula.domain_randomisation import DomainRandomisation
from thespis.envs.compiled.quadrotor import Quadrotor

KEY = jax.random.key(0)
SPEC = EnvSpec("task", Box((3,)), Box((1,), -1.0, 1.0), params={"price": {"fuel": 2.0, "delay": 8.0}, "wind": 1.0})
GROWTHS = (("price.fuel", 1.5, 4.0), ("price.delay", 0.5, 3.0))


def after(curriculum, state, blocks, shape=(5, 2)):
    """The state after so many blocks of steps."""
    params = curriculum.draw(state, KEY, shape[1])
    zeros = jnp.zeros(shape)
    outcomes = Outcomes(zeros > 0, zeros, zeros.astype("int32"), params)
    for _ in range(blocks):
        state, _ = curriculum.update(state, outcomes, KEY)
    return state


@pytest.mark.parametrize("base", [None, DomainRandomisation((("wind", 0.0, 1.0), ("price.fuel", 1.0, 2.0)))])
def test_laws(base):
    curriculum = Annealing(GROWTHS, 20) if base is None else Annealing(GROWTHS, 20, base)
    check_curriculum(curriculum, SPEC)
    assert curriculum.init(SPEC, KEY).steps.dtype == jnp.int32


def test_fields_grow_every_so_many_steps_as_far_as_their_bounds():
    curriculum = Annealing(GROWTHS, 20)
    state, fuel, delay = curriculum.init(SPEC, KEY), [], []
    for _ in range(9):  # ten steps each
        drawn = curriculum.draw(state, KEY, 3)
        fuel.append(float(drawn["price"]["fuel"][1]))
        delay.append(float(drawn["price"]["delay"][2]))
        np.testing.assert_array_equal(drawn["wind"], 1.0)
        state = after(curriculum, state, 1)
    np.testing.assert_allclose(fuel, [2, 2, 3, 3, 4, 4, 4, 4, 4])
    np.testing.assert_allclose(delay, [8, 8, 4, 4, 3, 3, 3, 3, 3])


def test_what_is_drawn_at_random_is_what_grows():
    base = DomainRandomisation((("price.fuel", 1.0, 2.0), ("wind", 0.0, 1.0)))
    curriculum = Annealing((("price.fuel", 2.0, 100.0),), 10, base)
    state = curriculum.init(SPEC, KEY)
    before, later = (curriculum.draw(s, KEY, 50) for s in (state, after(curriculum, state, 2)))
    assert np.ptp(before["price"]["fuel"]) > 0.5
    np.testing.assert_allclose(later["price"]["fuel"], 4 * np.asarray(before["price"]["fuel"]), rtol=1e-6)
    np.testing.assert_array_equal(later["wind"], before["wind"])


def test_the_published_schedule():
    curriculum, spec = for_hovering(), Quadrotor().spec
    state = curriculum.init(spec, KEY)
    late = jax.tree.map(lambda x: x + 250_000, state.steps)
    begun, grown = (curriculum.draw(type(state)(steps, state.base), KEY, 1).reward for steps in (state.steps, late))
    assert [float(w) for w in (begun.position[0], begun.velocity[0])] == pytest.approx([5.0, 0.01])
    told = [float(w[0]) for w in (grown.position, grown.velocity, grown.action, grown.attitude, grown.scale)]
    assert told == pytest.approx([5 * 1.2**2, 0.01 * 1.4**2, 0.01 * 1.4**2, 5.0, 0.5])
    far = curriculum.draw(type(state)(jnp.int32(10_000_000), state.base), KEY, 1).reward
    assert [float(w[0]) for w in (far.position, far.velocity, far.action)] == [40.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("growths", "every", "said"),
    [
        ((("price.fule", 2.0, 3.0),), 5, "did you mean price.fuel"),
        ((("wind", -1.0, 3.0),), 5, "positive factor"),
        ((), 5, "at least one field"),
        ((("wind", 2.0, 3.0),), 0, "at least one step"),
    ],
)
def test_mistakes_are_told(growths, every, said):
    with pytest.raises(UserError, match=said):
        Annealing(growths, every).init(SPEC, KEY)
