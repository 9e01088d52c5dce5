"""Curricula: laws of the contract for every curriculum, and the distribution of domain randomization."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_envs import ANY_ROLLOUT

from thespis.core.contracts import Curriculum
from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, EpisodeStats
from thespis.core.spaces import Box, Discrete
from thespis.curricula.domain_randomization import DomainRandomization
from thespis.curricula.fixed import FixedCurriculum

KEY = jax.random.key(3)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Pole:
    """Environment parameters as in gymnax: a frozen dataclass of numbers."""

    length: float = 0.5
    gravity: float = 9.8
    limit: int = 500
    sticky: bool = False


DATACLASS, DICT = Pole(), {"pole": {"length": 0.5}, "wind": np.zeros(3, "float32")}
RANGES = (("length", 0.3, 0.8), ("limit", 10, 12))


def spec(params):
    return EnvSpec("pole", Box((3,)), Discrete(2), params=params)


CASES = [
    (FixedCurriculum(), DATACLASS),
    (FixedCurriculum(), DICT),
    (FixedCurriculum(), ()),
    (DomainRandomization(RANGES), DATACLASS),
    (DomainRandomization((("pole.length", 0.1, 0.2), ("wind", -1.0, 1.0))), DICT),
]


@pytest.mark.parametrize("curriculum, params", CASES, ids=lambda x: type(x).__name__)
def test_curriculum_laws(curriculum, params):
    assert isinstance(curriculum, Curriculum)
    state = curriculum.init(spec(params), KEY)
    draw = eqx.filter_jit(curriculum.draw)
    params_drawn, drawn_again = draw(state, KEY, 5).params, curriculum.draw(state, KEY, 5).params
    assert jax.tree.structure(params_drawn) == jax.tree.structure(params) == jax.tree.structure(drawn_again)
    for leaf, other, default in zip(*map(jax.tree.leaves, (params_drawn, drawn_again, params)), strict=True):
        np.testing.assert_array_equal(leaf, other)
        assert leaf.shape == (5, *np.shape(default)) and leaf.dtype == jnp.asarray(default).dtype
    stats = EpisodeStats(jnp.ones((2, 5), bool), jnp.ones((2, 5)), jnp.ones((2, 5), "int32"), params_drawn)
    updated, report = eqx.filter_jit(curriculum.update)(state, ANY_ROLLOUT, None, stats, KEY)
    assert jax.tree.structure(updated) == jax.tree.structure(state)
    assert all(np.isfinite(x) for x in report.metrics.values())


@pytest.mark.parametrize("curriculum, params", CASES, ids=lambda x: type(x).__name__)
def test_vmapped_seeds_equal_single_seeds(curriculum, params):
    def run(key):
        return curriculum.draw(curriculum.init(spec(params), key), key, 4).params

    keys = jax.random.split(KEY, 3)
    together = jax.vmap(run)(keys)
    for i, key in enumerate(keys):
        for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(run(key)), strict=True):
            np.testing.assert_array_equal(a[i], b)


def test_fixed_repeats_the_defaults():
    params = FixedCurriculum().draw(FixedCurriculum().init(spec(DATACLASS), KEY), KEY, 3).params
    np.testing.assert_array_equal(params.length, np.full(3, 0.5, "float32"))


def test_domain_randomization_samples_its_ranges_uniformly():
    curriculum = DomainRandomization(RANGES)
    params = curriculum.draw(curriculum.init(spec(DATACLASS), KEY), KEY, 4000).params
    assert params.length.min() >= 0.3 and params.length.max() <= 0.8
    assert float(params.length.mean()) == pytest.approx(0.55, abs=0.01)
    assert float(params.length.std()) == pytest.approx(0.5 / 12**0.5, abs=0.01)
    values, counts = np.unique(params.limit, return_counts=True)
    assert list(values) == [10, 11, 12] and (counts > 1200).all()
    assert (params.gravity == np.float32(9.8)).all() and not params.sticky.any()
    assert abs(np.corrcoef(params.length, params.limit)[0, 1]) < 0.05


def test_draws_do_not_depend_on_their_number_or_other_fields():
    both, first_only = DomainRandomization(RANGES), DomainRandomization(RANGES[:1])
    state = both.init(spec(DATACLASS), KEY)
    lengths = both.draw(state, KEY, 8).params.length
    np.testing.assert_array_equal(lengths[:3], both.draw(state, KEY, 3).params.length)
    np.testing.assert_array_equal(lengths, first_only.draw(state, KEY, 8).params.length)


def test_parse():
    parsed = DomainRandomization.parse(["length=0.3..0.8", " wind = -1..1e1 "])
    assert parsed.ranges == (("length", 0.3, 0.8), ("wind", -1.0, 10.0))
    for text in ("length", "length=1", "length=a..b", "a=1..2..3"):
        with pytest.raises(UserError, match=r"write it as field=low\.\.high"):
            DomainRandomization.parse([text])


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
def test_invalid_ranges_are_one_line_errors(ranges, params, message):
    curriculum = DomainRandomization(tuple((name, float(low), float(high)) for name, low, high in ranges))
    with pytest.raises(UserError, match=message) as error:
        curriculum.init(spec(params), KEY)
    assert "\n" not in str(error.value)


def test_parameters_of_gymnax_environments():
    gymnax = pytest.importorskip("gymnax")
    environment, params = gymnax.make("Pendulum-v1")
    curriculum = DomainRandomization.parse(["m=0.5..1.5", "max_steps_in_episode=100..200"])
    params_drawn = curriculum.draw(curriculum.init(spec(params), KEY), KEY, 6).params
    assert type(params_drawn) is type(params) and len(set(np.asarray(params_drawn.m).tolist())) == 6
    assert params_drawn.max_steps_in_episode.dtype == jnp.int32
    keys = jax.random.split(KEY, 6)
    observation, _ = jax.vmap(environment.reset)(keys, params_drawn)
    assert observation.shape == (6, 3)
