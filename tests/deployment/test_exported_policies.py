"""Exported policies act as the original ones do, step by step, for every kind of actor."""

from __future__ import annotations

import importlib.util
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from method_cases import CASES

from thespis.core.errors import UserError
from thespis.core.laws.random_samples import random_view
from thespis.core.spaces import Text, leaf_spaces
from thespis.deployment.export import describe, write_files
from thespis.deployment.exported_policy import PolicyFunction, export_policy, named_view, reference

CONTROL = [
    name
    for name, case in CASES.items()
    if not any(isinstance(s, Text) for s in leaf_spaces(case.env.spec.action_space))
]
REFUSED = {"alphazero": "searches from the state of the game"}
FAST = ("ppo with memory", "sac", "nq")
STEPS = 8


def random_state(case):
    """A training state of random weights: nothing is zero or equal by initialization, and nothing is compiled."""
    shapes = jax.eval_shape(lambda: case.method.init(case.env.spec, jax.random.key(0)))
    rng = np.random.default_rng(0)

    def leaf(x):
        if jnp.issubdtype(x.dtype, np.floating):
            return np.asarray(rng.uniform(-0.5, 1, x.shape), x.dtype)
        if x.dtype == bool:  # roles of the same actions would be worth the same
            return rng.random(x.shape) < 0.7
        return jax.random.key(0) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else np.ones(x.shape, x.dtype)

    return jax.tree.map(leaf, shapes)


def load_exported(directory):
    spec = importlib.util.spec_from_file_location("policy", directory / "policy.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Policy()


class OnnxPolicy:
    """The model in ONNX Runtime with the loop over memory that its description prescribes."""

    def __init__(self, directory):
        import onnxruntime

        self.description = json.loads((directory / "policy.json").read_text())
        self.session = onnxruntime.InferenceSession(directory / "policy.onnx")
        self.memory = {}
        for part in self.description["memory"]:
            tensor = next(t for t in self.description["inputs"] if t["name"] == part["input"])
            self.memory[part["input"]] = np.broadcast_to(np.asarray(part["initial"], tensor["dtype"]), tensor["shape"])

    def step(self, inputs):
        names = {tensor["name"] for tensor in self.description["inputs"]}
        given = {name: value for name, value in (inputs | self.memory).items() if name in names}
        outputs = dict(
            zip([t["name"] for t in self.description["outputs"]], self.session.run(None, given), strict=True)
        )
        self.memory = {part["input"]: outputs[part["output"]] for part in self.description["memory"]}
        return outputs


def check(name, tmp_path, batch_size=1):
    case = CASES[name]
    function = PolicyFunction(case.method, random_state(case), case.env.spec, batch_size)
    policy = export_policy(function)
    players = []
    for file_format in ("numpy", "safetensors", "onnx"):
        directory = tmp_path / file_format
        directory.mkdir()
        write_files(directory, file_format, policy, describe(case.method.name, case.env.spec, policy))
        players.append(OnnxPolicy(directory) if file_format == "onnx" else load_exported(directory))
    original, memory, rng = reference(function), function.initial_memory, np.random.default_rng(1)
    for i in range(STEPS):
        view = random_view(case.env.spec, rng, (batch_size,))
        expected, memory = original(view, memory, jax.random.key(i))
        inputs = {key: np.asarray(value) for key, value in named_view(view).items()}
        for player in players:
            actual = player.step(inputs)
            for key, value in expected.items():
                np.testing.assert_allclose(actual[key], value, rtol=1e-4, atol=1e-4, err_msg=key)
                assert actual[key].dtype == value.dtype


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in CONTROL]
)
def test_an_exported_policy_acts_as_the_original(name, tmp_path):
    if name in REFUSED:
        with pytest.raises(UserError, match=REFUSED[name]):
            check(name, tmp_path)
    else:
        check(name, tmp_path)


@pytest.mark.parametrize("name", ["ppo with memory", pytest.param("sac", marks=pytest.mark.slow)])
def test_an_exported_policy_acts_for_a_batch(name, tmp_path):
    check(name, tmp_path, batch_size=3)


def test_resetting_some_environments_of_a_batch_clears_their_memory_only(tmp_path):
    case = CASES["ppo with memory"]
    policy = export_policy(PolicyFunction(case.method, random_state(case), case.env.spec, 2))
    write_files(tmp_path, "numpy", policy, describe(case.method.name, case.env.spec, policy))
    exported = load_exported(tmp_path)
    view = random_view(case.env.spec, np.random.default_rng(0), (2,))
    exported.step({key: np.asarray(value) for key, value in named_view(view).items()})
    carried = exported.memory
    exported.reset([True, False])
    fresh = load_exported(tmp_path).memory
    for name, value in exported.memory.items():
        np.testing.assert_array_equal(value[0], fresh[name][0])
        np.testing.assert_array_equal(value[1], carried[name][1])
        assert np.any(value[1] != fresh[name][1])


def test_a_language_model_is_no_program():
    name = next(name for name in CASES if name not in CONTROL)
    with pytest.raises(UserError, match="writes text: export it as a checkpoint"):
        PolicyFunction(CASES[name].method, None, CASES[name].env.spec)
