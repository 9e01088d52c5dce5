"""Renamed modules, classes and settings of earlier versions: each maps to an existing name, and old names are gone."""

import contextlib
import dataclasses
import importlib
import importlib.util

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from thespis.core import renames
from thespis.core.errors import UserError
from thespis.methods.registry import METHODS, RENAMED_METHODS, load_method
from thespis.runs import checkpoint
from thespis.runs.config import apply_settings, from_config, to_config

TABLE = renames._table()


def find(name):
    """The object at ``module:Qualified.Name``, or ``None``."""
    module, _, qualified = name.partition(":")
    try:
        target = importlib.import_module(module)
    except ModuleNotFoundError:
        return None
    for part in qualified.split("."):
        target = getattr(target, part, None)
    return target


def fields_of(cls):
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls)]
    return list(getattr(cls, "_fields", ()))


def test_old_names_map_to_existing_classes():
    for old, (new, fields) in TABLE.items():
        if new is None:
            continue
        cls = find(new)
        assert cls is not None, (old, new)
        assert set(fields.values()) <= set(fields_of(cls)), (old, new)


def test_old_names_are_not_used_again():
    for old, (new, fields) in TABLE.items():
        assert old == new or find(old) is None, old
        if new is not None:
            assert not set(fields) & set(fields_of(find(new))), (new, fields)


OLD_SAC = {
    "class": "thespis.methods.online.sac:SAC",
    "hidden": [8, 8],
    "target_rate": 0.01,
    "band": {"class": "thespis.learners.bands:LowPass", "width": 0.2, "samples": 4},
    "feed": {"class": "thespis.core.feeds:Replay", "capacity": 64, "batch": 8},
}


def test_old_modules_map_to_existing_modules():
    assert not set(renames._modules()) & set(renames._modules().values())
    for old, new in renames._modules().items():
        assert importlib.util.find_spec(new) is not None, (old, new)
        with contextlib.suppress(ModuleNotFoundError):
            assert not [name for name in vars(importlib.import_module(old)) if name[0].isupper()], old


def test_moved_classes_are_found_in_their_new_modules():
    assert renames.current_name("thespis.learners.team:TeamQValues") == (
        "thespis.learners.multi_agent.value_decomposition:TeamQValues"
    )
    method = from_config({"class": "thespis.methods.teams.qmix:QMIX", "hidden_sizes": [8]})
    assert to_config(method)["class"] == "thespis.methods.multi_agent.qmix:QMIX"


def test_configuration_with_old_names_is_read():
    method = from_config(OLD_SAC)
    assert method.hidden_sizes == (8, 8) and method.tau == 0.01
    assert method.target_filter.std == 0.2 and method.target_filter.num_samples == 4
    assert method.feed.buffer_size == 64 and method.feed.batch_size == 8
    written = to_config(method)
    assert written["tau"] == 0.01 and "target_rate" not in written
    assert from_config(written) == method


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("target_rate=0.01", "tau=0.01"),
        ("feed.capacity=64", "feed.buffer_size=64"),
        ("capacity=64", "buffer_size=64"),
        ("critics=3", "num_critics=3"),
        ("target_filter=LowPass", "target_filter=LowPassFilter"),
    ],
)
def test_settings_with_old_names_give_one_warning(old, new):
    method = from_config(OLD_SAC)
    with pytest.warns(renames.RenamedWarning, match="is now called") as warned:
        changed = apply_settings(method, [old])
    assert len(warned) == 1
    assert changed == apply_settings(method, [new])


def test_current_names_give_no_warning(recwarn):
    apply_settings(from_config(OLD_SAC), ["tau=0.01", "buffer_size=64", "target_filter=LowPassFilter"])
    assert not [warning for warning in recwarn if issubclass(warning.category, renames.RenamedWarning)]


def test_unknown_names_are_still_refused():
    with pytest.raises(UserError, match="has no setting 'target_rates'"):
        apply_settings(from_config(OLD_SAC), ["target_rates=0.01"])


def test_leaves_of_old_checkpoints_are_found_by_path_and_old_name(tmp_path):
    """``learnt`` became ``method_state`` in one class and ``params`` in another; both apply at the same path."""
    fields = sorted(renames._field_pairs())
    (old, new), *_ = [pair for pair in fields if pair[0] == ".learnt"]
    stored = ["['carry'].a.x", f"['carry']{old}.y", f"['carry']{old}['ring'].z", "['carry'].b"]
    wanted = ["['carry'].a.x", f"['carry']{new}.y", f"['carry']{new}['ring'].z", "['carry'].b"]
    assert renames.renamed_paths(stored, wanted) == wanted
    part = wanted[1:3]
    assert renames.renamed_paths(stored, part) == [stored[0], *part, stored[3]]
    assert renames.renamed_paths(stored, ["['carry'].c.y"]) == stored  # unknown: nothing is guessed
    path = tmp_path / "one.ckpt"
    checkpoint.save(path, {"carry": _Old(jnp.arange(3.0), jnp.ones(2))}, {})
    like = {"carry": _New(jnp.zeros(3), jnp.zeros(2))}
    tree, _ = checkpoint.load(path, like)
    assert tree["carry"].params.tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(checkpoint.CheckpointError, match="it lacks"):
        checkpoint.load(path, {"carry": _Other(jnp.zeros(3), jnp.zeros(2))})


class _Old(eqx.Module):
    learnt: jax.Array
    rest: jax.Array


class _New(eqx.Module):
    params: jax.Array
    rest: jax.Array


class _Other(eqx.Module):
    something: jax.Array
    rest: jax.Array


def test_removed_default_components_are_none():
    old = OLD_SAC | {
        "band": {"class": "thespis.learners.bands:FullBand"},
        "reset": {"class": "thespis.learners.resets:Never"},
        "observations": {"class": "thespis.learners.normalisers:AsTheyAre"},
    }
    method = from_config(old)
    assert method.target_filter is None and method.network_reset is None and method.obs_normalizer is None
    assert to_config(method)["network_reset"] is None
    filtered = apply_settings(method, ["target_filter=LowPassFilter"])
    with pytest.warns(renames.RenamedWarning, match="FullBand is now called none"):
        assert apply_settings(filtered, ["target_filter=FullBand"]) == method
    assert apply_settings(filtered, ["target_filter=none"]) == method


def test_a_method_is_found_by_its_earlier_name():
    with pytest.warns(renames.RenamedWarning, match="method nq is now called n-step-q"):
        assert load_method("nq") is load_method("n-step-q")
    assert set(RENAMED_METHODS.values()) <= set(METHODS) and not set(RENAMED_METHODS) & set(METHODS)
