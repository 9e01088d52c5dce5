"""Addresses in a learner's state, from paths of leaves and from checkpoints."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from thespis.runs import checkpoint
from thespis.runs.state_addresses import LEARNER_PATH, subtree, table_of_checkpoint, table_of_shapes, to_address
from thespis.training.components import LearnerSnapshot, LearnerState


def learner(seeds):
    method = {"actor": {"layers": [np.zeros((seeds, 3, 4), "float32")]}, "actor_opt": np.zeros((seeds, 2), "int32")}
    return LearnerState(method, (np.ones(seeds, "float32"),), (), store=np.zeros((seeds, 9)))


@pytest.fixture
def saved(tmp_path):
    checkpoint.save(tmp_path / checkpoint.checkpoint_name(3), {"carry": {"x": 1}, "y": {"z": 2}}, {"step": 3})
    checkpoint.save(tmp_path / checkpoint.checkpoint_name(5), {"carry": LearnerSnapshot(learner(2))}, {"step": 5})
    return tmp_path


def test_an_address_has_the_names_and_numbers_of_a_path():
    assert to_address(".method.network.layers[0].weight") == "method.network.layers.0.weight"
    assert to_address("['carry'].learner") == "carry.learner"
    assert to_address("") == ""


def test_the_table_of_a_checkpoint_is_that_of_the_shapes(saved):
    table = table_of_checkpoint(saved, "runs/a", 2)
    one = learner(2)
    states = {"method": one.method, "feedback": one.feedback, "curriculum": one.curriculum}
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), states)
    expected = {"method.actor.layers.0": "float32[3, 4]", "method.actor_opt": "int32[2]", "feedback.0": "float32[]"}
    assert table.signatures == expected == table_of_shapes("new", shapes, 2).signatures  # without the store
    assert table.below("method.actor") == {".layers.0": "float32[3, 4]"}  # and not actor_opt
    assert table.below("method.actor_opt") == {"": "int32[2]"} and not table.below("method.act")
    assert subtree(shapes, "method.actor.layers.0").shape == (3, 4)
    assert table_of_checkpoint(saved / "nothing", "runs/a", 2) is None


def test_a_part_is_read_without_its_neighbours(saved):
    """``actor_opt`` begins as ``actor`` does, and is no part of it."""
    prefix = table_of_checkpoint(saved, "runs/a", 2).prefix("method.actor")
    assert prefix == f"{LEARNER_PATH}.method['actor']"
    like = {"layers": [np.zeros((2, 3, 4), "float32")]}
    tree, _ = checkpoint.load(saved / checkpoint.checkpoint_name(5), like, f"{LEARNER_PATH}.method['actor']")
    assert tree["layers"][0].shape == (2, 3, 4)
    assert checkpoint.is_below(".a.b", ".a") and checkpoint.is_below(".a[0]", ".a") and checkpoint.is_below(".a", ".a")
    assert not checkpoint.is_below(".ab", ".a")


def test_a_damaged_checkpoint_is_not_listed(saved):
    newest = saved / checkpoint.checkpoint_name(5)
    newest.write_bytes(b"no checkpoint")
    assert [entry["path"] for entry in checkpoint.read_entries(saved)] == ["['carry']['x']", "['y']['z']"]


def test_unknown_addresses_are_answered_with_near_ones(saved):
    table = table_of_checkpoint(saved, "runs/a", 2)
    assert table.nearest("method.acter").split(", ")[0] == "method.actor"
    assert table.nearest("curriculum") == "feedback, method"
    assert table.nodes()[:2] == ["feedback", "method"]
    many = table_of_shapes("x", {"method": {f"part{i}": np.zeros(1) for i in range(20)}}, 1)
    assert many.nearest("method.zzz").endswith(" and 9 more")
