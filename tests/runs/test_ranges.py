"""Ranges of settings: by the field's name and by its declaration, from text and in Python, one line per mistake."""

import dataclasses
import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thespis
from thespis.core.errors import UserError
from thespis.core.records import Number
from thespis.data.feeds import Rollouts
from thespis.feedback.rnd import RandomNetworkDistillation
from thespis.methods.registry import METHODS, load_method
from thespis.runs.config import apply_settings
from thespis.runs.ranges import FRACTION, Range, check_ranges, in_range, range_of


class Part(eqx.Module):
    """A part with a number for which no range is known."""

    threshold: Number = -1.0


class OwnMethod(eqx.Module):
    """Settings of a method from outside the package."""

    discount: Number = 0.9
    tau: Number = 4.0
    gae_lambda: Number = eqx.field(default=2.0, metadata=in_range(Range(1, 3, low_open=True)))
    batch_size: int = eqx.field(static=True, default=8, metadata=in_range(None))
    num_levels: int = 2
    part: Part = eqx.field(default=Part(), metadata=in_range(FRACTION))
    sizes: tuple[int, ...] = (1,)


WRONG = [
    (thespis.PPO, "learning_rate=-1", "at least 0"),
    (thespis.PPO, "learning_rate=nan", "at least 0"),
    (thespis.PPO, "discount=1.5", "in [0, 1]"),
    (thespis.PPO, "gae_lambda=-1", "in [0, 1]"),
    (thespis.PPO, "vf_coef=-0.5", "at least 0"),
    (thespis.PPO, "num_epochs=0", "at least 1"),
    (thespis.PPO, "minibatch_size=0", "at least 1"),
    (thespis.PPO, "hidden_sizes=64,0", "at least 1"),
    (thespis.PPO, "feed.num_envs=0", "at least 1"),
    (thespis.SAC, "tau=2", "in (0, 1]"),
    (thespis.SAC, "batch_size=0", "at least 1"),
    (thespis.SAC, "temperature.init_value=0", "above 0"),
    (thespis.DQN, "final_epsilon=1.1", "in [0, 1]"),
    (OwnMethod, "discount=1.01", "in [0, 1]"),
    (OwnMethod, "gae_lambda=1", "in (1, 3]"),
]


@pytest.mark.parametrize(("make", "setting", "allowed"), WRONG, ids=lambda x: x if isinstance(x, str) else "")
def test_settings_out_of_range_are_refused_with_name_value_and_range(make, setting, allowed):
    name, _, text = setting.partition("=")
    with pytest.raises(UserError) as error:
        apply_settings(make(), [setting])
    message = str(error.value)
    assert "\n" not in message and f"setting {name}=" in message and message.endswith(f"it must be {allowed}"), message
    assert text.split(",")[-1].lstrip("-0.") in message


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (functools.partial(thespis.PPO, discount=1.5), "discount=1.5"),
        (functools.partial(thespis.PPO, feed=Rollouts(0)), "feed.num_steps=0"),
        (functools.partial(thespis.PPO, discount=jnp.float32(1.5)), "discount=1.5"),
    ],
)
def test_train_refuses_a_method_out_of_range(method, words):
    with pytest.raises(UserError) as error:
        thespis.train(method(), env="CartPole-v1", steps=64)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"envs": 0}, "envs=0"),
        ({"episodes": 0}, "episodes=0"),
        ({"checkpoint_seconds": -1.0}, "checkpoint_seconds=-1.0"),
        ({"feedback": RandomNetworkDistillation(bonus_coef=-1.0)}, "feedback.bonus_coef=-1.0"),
    ],
)
def test_train_refuses_other_arguments_out_of_range(arguments, words):
    with pytest.raises(UserError) as error:
        thespis.train("ppo", env="CartPole-v1", steps=64, **arguments)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [({"num_levels": 2.5}, "num_levels=2.5 does not fit"), ({"discount": np.array([0.9, 1.1])}, "=[0.9, 1.1] is out")],
)
def test_arrays_are_checked_and_whole_numbers_are_wanted(change, words):
    with pytest.raises(UserError) as error:
        check_ranges(dataclasses.replace(OwnMethod(), **change))
    assert words in str(error.value)


def test_what_is_within_its_range_or_has_none_passes():
    fit = ["tau=5", "batch_size=-3", "num_levels=1", "part.threshold=-9", "sizes=-1"]  # own default, None, no range
    changed = apply_settings(OwnMethod(), fit)
    assert (changed.tau, changed.batch_size, changed.part.threshold) == (5.0, -3, -9.0)
    apply_settings(thespis.PPO(), ["learning_rate=LinearSchedule", "learning_rate.init_value=0", "ent_coef=-0.1"])
    check_ranges(thespis.IMPALA(rho_bar=math.inf))


def test_arrays_and_traced_numbers_pass():
    check_ranges(dataclasses.replace(OwnMethod(), discount=np.array([0.9, 0.99])))

    @jax.jit
    def traced(discount):
        check_ranges(OwnMethod(discount=discount))
        return discount

    assert traced(0.5) == 0.5
    assert jax.vmap(traced)(jnp.array([0.5, 2.0])).shape == (2,)


@pytest.mark.long
def test_defaults_of_all_methods_are_within_the_ranges_of_their_names():
    """A range by name would not apply to a field whose default lies outside of it."""
    for name in METHODS:
        method = load_method(name)()
        check_ranges(method)
        kind = type(method)
        names = {field.name for field in dataclasses.fields(kind)} & {"discount", "gae_lambda", "tau", "learning_rate"}
        assert all(range_of(kind, field) is not None for field in names), name
