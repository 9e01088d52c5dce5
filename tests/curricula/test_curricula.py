"""The laws of the contract for every curriculum, and what domain randomisation draws."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.contracts import Curriculum
from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, Outcomes
from thespis.core.spaces import Box, Discrete
from thespis.curricula.domain_randomisation import DomainRandomisation
from thespis.curricula.fixed import Fixed

KEY = jax.random.key(3)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Pole:
    """As gymnax keeps parameters: a frozen dataclass of numbers."""

    length: float = 0.5
    gravity: float = 9.8
    limit: int = 500
    sticky: bool = False


DATACLASS, DICT = Pole(), {"pole": {"length": 0.5}, "wind": np.zeros(3, "float32")}
RANGES = (("length", 0.3, 0.8), ("limit", 10, 12))


def spec(params):
    return EnvSpec("pole", Box((3,)), Discrete(2), params=params)


CASES = [
    (Fixed(), DATACLASS),
    (Fixed(), DICT),
    (Fixed(), ()),
    (DomainRandomisation(RANGES), DATACLASS),
    (DomainRandomisation((("pole.length", 0.1, 0.2), ("wind", -1.0, 1.0))), DICT),
]


@pytest.mark.parametrize("curriculum, params", CASES, ids=lambda x: type(x).__name__)
def test_laws(curriculum, params):
    assert isinstance(curriculum, Curriculum)
    state = curriculum.init(spec(params), KEY)
    draw = eqx.filter_jit(curriculum.draw)
    drawn, again = draw(state, KEY, 5), curriculum.draw(state, KEY, 5)
    assert jax.tree.structure(drawn) == jax.tree.structure(params) == jax.tree.structure(again)
    for leaf, other, default in zip(*map(jax.tree.leaves, (drawn, again, params)), strict=True):
        np.testing.assert_array_equal(leaf, other)
        assert leaf.shape == (5, *np.shape(default)) and leaf.dtype == jnp.asarray(default).dtype
    outcomes = Outcomes(jnp.ones((2, 5), bool), jnp.ones((2, 5)), jnp.ones((2, 5), "int32"), drawn)
    moved, report = eqx.filter_jit(curriculum.update)(state, outcomes, KEY)
    assert jax.tree.structure(moved) == jax.tree.structure(state)
    assert all(np.isfinite(x) for x in report.metrics.values())


@pytest.mark.parametrize("curriculum, params", CASES, ids=lambda x: type(x).__name__)
def test_seeds_side_by_side_equal_seeds_alone(curriculum, params):
    def run(key):
        return curriculum.draw(curriculum.init(spec(params), key), key, 4)

    keys = jax.random.split(KEY, 3)
    together = jax.vmap(run)(keys)
    for i, key in enumerate(keys):
        for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(run(key)), strict=True):
            np.testing.assert_array_equal(a[i], b)


def test_fixed_repeats_the_defaults():
    drawn = Fixed().draw(Fixed().init(spec(DATACLASS), KEY), KEY, 3)
    np.testing.assert_array_equal(drawn.length, np.full(3, 0.5, "float32"))


def test_domain_randomisation_fills_its_ranges_and_leaves_the_rest():
    curriculum = DomainRandomisation(RANGES)
    drawn = curriculum.draw(curriculum.init(spec(DATACLASS), KEY), KEY, 4000)
    assert drawn.length.min() >= 0.3 and drawn.length.max() <= 0.8
    assert float(drawn.length.mean()) == pytest.approx(0.55, abs=0.01)
    assert float(drawn.length.std()) == pytest.approx(0.5 / 12**0.5, abs=0.01)
    values, counts = np.unique(drawn.limit, return_counts=True)
    assert list(values) == [10, 11, 12] and (counts > 1200).all()
    assert (drawn.gravity == np.float32(9.8)).all() and not drawn.sticky.any()
    assert abs(np.corrcoef(drawn.length, drawn.limit)[0, 1]) < 0.05


def test_a_draw_depends_neither_on_how_many_there_are_nor_on_the_other_fields():
    both, one = DomainRandomisation(RANGES), DomainRandomisation(RANGES[:1])
    state = both.init(spec(DATACLASS), KEY)
    lengths = both.draw(state, KEY, 8).length
    np.testing.assert_array_equal(lengths[:3], both.draw(state, KEY, 3).length)
    np.testing.assert_array_equal(lengths, one.draw(state, KEY, 8).length)


def test_parse():
    parsed = DomainRandomisation.parse(["length=0.3..0.8", " wind = -1..1e1 "])
    assert parsed.ranges == (("length", 0.3, 0.8), ("wind", -1.0, 10.0))
    for text in ("length", "length=1", "length=a..b", "a=1..2..3"):
        with pytest.raises(UserError, match=r"write it as field=low\.\.high"):
            DomainRandomisation.parse([text])


@pytest.mark.parametrize(
    "ranges, params, message",
    [
        ([("lenght", 0, 1)], DATACLASS, r"did you mean length\?.* it has: length, gravity, limit, sticky"),
        ([("zzz", 0, 1)], DICT, "no parameter 'zzz'; it has: pole.length, wind"),
        ([("length", 0, 1)], (), "pole has no parameters to randomise"),
        ([], DATACLASS, "needs at least one range"),
        ([("length", 1, 0)], DATACLASS, "empty or endless"),
        ([("length", 0, float("inf"))], DATACLASS, "empty or endless"),
        ([("length", 0, float("nan"))], DATACLASS, "empty or endless"),
        ([("limit", 0.5, 3)], DATACLASS, "is an integer"),
        ([("sticky", 0, 1)], DATACLASS, "only numbers"),
    ],
)
def test_what_cannot_be_randomised_is_one_line(ranges, params, message):
    curriculum = DomainRandomisation(tuple((name, float(low), float(high)) for name, low, high in ranges))
    with pytest.raises(UserError, match=message) as error:
        curriculum.init(spec(params), KEY)
    assert "\n" not in str(error.value)


def test_the_parameters_of_gymnax_worlds():
    gymnax = pytest.importorskip("gymnax")
    environment, params = gymnax.make("Pendulum-v1")
    curriculum = DomainRandomisation.parse(["m=0.5..1.5", "max_steps_in_episode=100..200"])
    drawn = curriculum.draw(curriculum.init(spec(params), KEY), KEY, 6)
    assert type(drawn) is type(params) and len(set(np.asarray(drawn.m).tolist())) == 6
    assert drawn.max_steps_in_episode.dtype == jnp.int32
    keys = jax.random.split(KEY, 6)
    observation, _ = jax.vmap(environment.reset)(keys, drawn)
    assert observation.shape == (6, 3)
