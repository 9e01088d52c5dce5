"""Configurations: JSON round trips, settings from text, descriptions of settings, and error messages."""

# ruff: noqa: RUF009 (the defaults are frozen)

import dataclasses
import enum
import json
import math
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from jaxtyping import Array, Float

import thespis
from thespis.core.errors import UserError
from thespis.data.feeds import Replay
from thespis.runs.config import apply_settings, check_storable, describe_settings, from_config, import_object, to_config


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Fixed(eqx.Module):
    value: float = 0.2


class Automatic(eqx.Module):
    target: float | None = None
    """Entropy wanted; None for minus the action's dimension."""
    rate: float = 3e-4


class Needy(eqx.Module):
    size: int


class Scaled(Fixed):
    scale: float = 1.0


@dataclasses.dataclass(frozen=True)
class Example:
    """An example.

    Args:
        learning_rate: Step size,
            of both networks.
        hidden: Widths of layers.
    """

    learning_rate: float | Float[Array, ""] = 3e-4
    discount: float = 0.99
    """How much the future
    counts."""
    feed: Replay = Replay()
    entropy: Fixed | Automatic = Automatic()
    hidden: tuple[int, ...] = (64, 64)
    range: tuple[float, float] = (-1.0, 1.0)
    clip: float | None = None
    depth: int = 2
    name: str = "x"
    mode: Literal["fast", "slow"] = "fast"
    colour: Colour = Colour.RED
    double: bool = True
    extra: Needy | None = None
    activation: object = jax.nn.relu


# -- JSON


def test_round_trip():
    example = Example(
        learning_rate=1e-3,
        entropy=Automatic(target=-math.inf),
        clip=math.inf,
        colour=Colour.BLUE,
        hidden=(),
        extra=Needy(3),
    )
    config = to_config(example)
    restored = from_config(json.loads(json.dumps(config, allow_nan=False)))
    assert restored == example
    assert config["class"] == f"{__name__}:Example"
    assert config["hidden"] == [] and config["feed"]["buffer_size"] == 1_000_000


def test_arrays_of_a_sweep_become_numbers():
    config = to_config(Example(learning_rate=jnp.float32(0.5)))
    assert config["learning_rate"] == 0.5
    assert to_config(jnp.arange(3)) == [0, 1, 2]


def test_derived_fields_are_not_written():
    @dataclasses.dataclass(frozen=True)
    class Derived:
        a: int = 1
        b: int = dataclasses.field(init=False, default=2)

    assert set(to_config(Derived())) == {"class", "a"}


def test_missing_fields_take_their_defaults():
    assert from_config({"class": f"{__name__}:Fixed"}) == Fixed()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"class": "thespis.nowhere:X"}, "thespis.nowhere:X cannot be imported"),
        ({"class": "thespis.core.feeds:Gone"}, "thespis.core.feeds:Gone cannot be imported"),
        ({"class": "thespis.core.feeds:Replay", "capacitie": 3}, "no 'capacitie', only buffer_size, batch_size"),
        ({"class": "__main__:Mine"}, "out of reach of other processes: use a module"),
        ({"class": "json:dumps"}, "is no configuration class"),
        ({"class": f"{__name__}:Needy"}, "cannot be built from the configuration: .*size"),
    ],
)
def test_invalid_configurations_are_one_line(config, words):
    with pytest.raises(UserError, match=words) as caught:
        from_config(config)
    assert "\n" not in str(caught.value)


def test_unsupported_values_are_refused():
    with pytest.raises(TypeError, match="a configuration cannot hold a set"):
        to_config(Example(name={1}))


def _identity(x):
    return x


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Example(activation=lambda x: x), "setting activation is a lambda which cannot be saved"),
        (lambda: Example(name={1}), "setting name holds a set, which cannot be saved with the run"),
        (lambda: Example(hidden=(1, object())), "setting hidden holds a object"),
        (lambda: Example(entropy=Fixed(value=lambda x: x)), "setting entropy.value is a lambda"),
    ],
)
def test_what_cannot_be_stored_is_named(make, words):
    with pytest.raises(UserError, match=words) as caught:
        check_storable(make(), "method")
    assert "\n" not in str(caught.value)


def test_local_functions_and_classes_cannot_be_stored():
    def local(x):
        return x

    @dataclasses.dataclass(frozen=True)
    class Local:
        activation: object = local

    with pytest.raises(UserError, match=r"setting activation is test_local.*of a script or inside a function.*module"):
        check_storable(Example(activation=local), "method")
    with pytest.raises(UserError, match=r"^method is test_local.*Local, of a script or inside a function"):
        check_storable(Local(), "method")
    check_storable(Example(activation=_identity, entropy=Automatic()), "method")


def test_train_names_a_lambda_before_it_starts(tmp_path):
    with pytest.raises(UserError, match="setting activation is a lambda"):
        thespis.train(thespis.PPO(activation=lambda x: x), env="CartPole-v1", steps=64, out=tmp_path / "run")
    with pytest.raises(UserError, match="setting activation is an object, not a text"):
        thespis.train("ppo", env="CartPole-v1", steps=64, settings={"activation": jnp.tanh}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_import_object():
    assert import_object("thespis.core.feeds:Replay") is Replay


# -- settings


@pytest.mark.parametrize(
    ("setting", "field", "value"),
    [
        ("learning_rate=1e-3", "learning_rate", 1e-3),
        ("discount=1", "discount", 1.0),
        ("hidden=32,16,8", "hidden", (32, 16, 8)),
        ("hidden=(32,)", "hidden", (32,)),
        ("hidden=[]", "hidden", ()),
        ("range=-2, 2", "range", (-2.0, 2.0)),
        ("clip=0.5", "clip", 0.5),
        ("clip=none", "clip", None),
        ("depth=1e6", "depth", 1_000_000),
        ("depth=1_000", "depth", 1000),
        ("name=a=b", "name", "a=b"),
        (" name = none ", "name", "none"),
        ("mode=slow", "mode", "slow"),
        ("colour=BLUE", "colour", Colour.BLUE),
        ("colour=blue", "colour", Colour.BLUE),
        ("double=off", "double", False),
        ("double=True", "double", True),
        ("entropy=Fixed", "entropy", Fixed()),
        ("entropy=Scaled", "entropy", Scaled()),
        ("entropy=Automatic()", "entropy", Automatic()),
        ("extra=none", "extra", None),
    ],
)
def test_text_is_converted_to_the_type_of_the_field(setting, field, value):
    result = getattr(apply_settings(Example(), [setting]), field)
    assert result == value and type(result) is type(value)


def test_settings_by_path_or_last_name():
    example = apply_settings(Example(), ["feed.batch_size=32", "buffer_size=10", "entropy.target=-2", "rate=1"])
    assert example.feed == Replay(batch_size=32, buffer_size=10)
    assert example.entropy == Automatic(-2.0, 1.0)


def test_settings_apply_in_order():
    example = apply_settings(Example(), ["entropy=Fixed", "value=0.5", "depth=3", "depth=4"])
    assert example.entropy == Fixed(0.5) and example.depth == 4
    assert Example() == Example(), "the original stays"


def test_a_full_path_takes_precedence_over_a_last_name():
    @dataclasses.dataclass(frozen=True)
    class Outer:
        batch: int = 1
        feed: Replay = Replay()

    assert apply_settings(Outer(), ["batch=7"]) == Outer(7)


def test_ambiguous_last_names_are_refused():
    @dataclasses.dataclass(frozen=True)
    class Two:
        first: Fixed = Fixed()
        second: Fixed = Fixed()

    with pytest.raises(UserError, match=r"'value' is ambiguous: write one of first\.value, second\.value"):
        apply_settings(Two(), ["value=1"])
    assert apply_settings(Two(), ["second.value=1"]).second == Fixed(1.0)


def test_without_annotation_the_current_value_sets_the_type():
    @dataclasses.dataclass(frozen=True)
    class Loose:
        rate: object = 0.5
        sizes: object = (1, 2)
        part: object = Fixed()

    assert apply_settings(Loose(), ["rate=1", "sizes=3", "part.value=2"]) == Loose(1.0, (3,), Fixed(2.0))


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("learning_rte=1", "no setting 'learning_rte': did you mean learning_rate"),
        ("feed.batsch=1", r"no setting 'feed.batsch': did you mean feed\.batch"),
        ("batsch=1", r"did you mean feed\.batch"),
        ("zzz=1", "no setting 'zzz': it has learning_rate, discount"),
        ("depth", "not of the form name=value"),
        ("=3", "not of the form name=value"),
        ("depth=1.5", "depth=1.5 does not fit: a whole number is wanted"),
        ("depth=inf", "a whole number is wanted"),
        ("discount=high", "discount=high does not fit: a number is wanted"),
        ("clip=high", "none is wanted or a number is wanted"),
        ("double=maybe", "true or false is wanted"),
        ("mode=medium", "one of fast, slow is wanted"),
        ("colour=green", "one of RED, BLUE, red, blue is wanted"),
        ("hidden=64,x", "a whole number is wanted"),
        ("range=1,2,3", "2 values with commas between them are wanted"),
        ("entropy=Wrong", "one of Fixed, Scaled, Automatic is wanted"),
        ("extra=Needy", "Needy cannot be made without settings of its own .*size"),
        ("activation=relu", "this setting cannot be given as text"),
    ],
)
def test_mistakes_are_one_line(setting, words):
    with pytest.raises(UserError, match=words) as caught:
        apply_settings(Example(), [setting])
    assert "\n" not in str(caught.value)


def test_errors_of_the_class_are_reported():
    @dataclasses.dataclass(frozen=True)
    class Picky:
        a: int = 1

        def __post_init__(self):
            if self.a < 1:
                raise ValueError("a must be positive")

    with pytest.raises(UserError, match="setting a=0 is refused: a must be positive"):
        apply_settings(Picky(), ["a=0"])


# -- descriptions


def test_settings_are_described():
    settings = {setting.path: setting for setting in describe_settings(Example)}
    assert settings["learning_rate"].doc == "Step size, of both networks."
    assert settings["discount"].doc == "How much the future counts."
    assert settings["hidden"] == ("hidden", "tuple[int, ...]", (64, 64), "Widths of layers.")
    assert settings["entropy.target"].doc.startswith("Entropy wanted")
    assert settings["entropy.target"].type == "float | none"
    assert settings["entropy"].type == "Fixed | Automatic"
    assert settings["feed.batch_size"].default == 256
    assert settings["depth"].doc == ""
    assert settings["mode"].type == "Literal['fast', 'slow']"
    assert list(settings)[:3] == ["learning_rate", "discount", "feed"]


def test_an_object_is_described_with_its_current_values():
    settings = {s.path: s.default for s in describe_settings(Example(depth=9, entropy=Fixed(0.7)))}
    assert settings["depth"] == 9 and settings["entropy.value"] == 0.7


def test_a_field_without_default_is_described():
    (setting,) = describe_settings(Needy)
    assert setting.default is dataclasses.MISSING
