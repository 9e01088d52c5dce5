"""The decoder: what transformers says of the same weights; what a cache, padding and adapters must and must not do."""

from __future__ import annotations

import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checkpoints import CONFIGS, prompts, write
from references import REFERENCES
from safetensors.numpy import load_file, save_file

from thespis.core.errors import UserError
from thespis.core.keys import key_of
from thespis.language.adapters import load_adapters, merged, save_adapters, trainable, with_adapters
from thespis.language.configs import config_of, shape_of
from thespis.language.weights import load, save
from thespis.nets.decoder import Decoder, Shape, decoder
from thespis.nets.rotary import Plain

SMALL = Shape(vocabulary=11, width=16, layers=2, heads=4, kv_heads=2, head_size=4, hidden=20)


@functools.partial(jax.jit, static_argnums=0, static_argnames="dtype")
def fresh(shape: Shape, key: jax.Array, **named) -> Decoder:
    return decoder(shape, key, **named)


@jax.jit
def all_logits(model: Decoder, tokens, positions):
    """Of every token of one text, in one pass."""
    return model.logits(model(tokens, positions))


@functools.partial(jax.jit, static_argnums=(1, 2))
def empty(model: Decoder, rows: int, slots: int):
    return model.empty(rows, slots)


@jax.jit
def read(model: Decoder, cache, tokens, positions, wanted=None):
    """Features of a block, or of those that are wanted, their logits, and the cache with it."""
    features, cache = model.read(cache, tokens, positions, model.apart(), wanted)
    return features, model.logits(features), cache


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_are_those_of_transformers(name, tmp_path):
    model, tokens = load(write(tmp_path, name)), prompts()
    last = jax.jit(jax.vmap(lambda row: all_logits(model, row, np.arange(24))[-1]))(tokens)
    np.testing.assert_allclose(last, np.load(REFERENCES)[name], atol=1e-4)


@pytest.mark.parametrize("window", [None, 3])
def test_a_cache_changes_nothing(window):
    """Blocks of several lengths, padded on either side, with a cache: the logits of one pass without."""
    shape = (
        dataclasses.replace(SMALL, layers=1) if window is None else dataclasses.replace(SMALL, windows=(window, None))
    )
    model, tokens = fresh(shape, key_of(0)), np.arange(9) % 7
    wanted = all_logits(model, tokens, np.arange(9))
    cache, found = empty(model, 1, 14), []
    for block, at in (
        ([0, 1, 2, 9, 9], [0, 1, 2, -1, -1]),
        ([9, 3, 4], [-1, 3, 4]),
        ([5], [5]),
        ([6, 0, 1], [6, 7, 8]),
    ):
        _, logits, cache = read(model, cache, np.array([block]), np.array([at]))
        found.append(np.asarray(logits)[0, np.array(at) >= 0])
    assert int(cache.used) == 12
    np.testing.assert_allclose(np.concatenate(found), wanted, atol=1e-5)


@pytest.mark.parametrize("layers", [1, 2])
def test_tokens_that_are_not_asked_for_are_read_all_the_same(layers):
    """Features of a few tokens of a block are those among all; caches are the same, bit for bit."""
    model = fresh(dataclasses.replace(SMALL, layers=layers, windows=None), key_of(0))
    tokens = np.random.default_rng(1).integers(0, 11, (3, 5))
    at = np.array([[0, 1, 2, 3, 4], [-1, -1, 0, 1, 2], [-1] * 5])
    places = np.array([[4, 1], [3, 2], [0, 0]])
    every, _, cache = read(model, empty(model, 3, 8), tokens, at)
    some, _, after = read(model, empty(model, 3, 8), tokens, at, places)
    np.testing.assert_allclose(some, np.take_along_axis(np.asarray(every), places[..., None], axis=1), atol=1e-6)
    jax.tree.map(np.testing.assert_array_equal, after, cache)


def test_many_layers_are_as_few_written_out(monkeypatch):
    model = fresh(SMALL, key_of(0))
    text = jnp.asarray(np.random.default_rng(1).integers(0, 11, 7)), jnp.asarray(np.arange(7))
    found = []
    for few in (0, 8):
        monkeypatch.setattr("thespis.nets.decoder._FEW", few)
        found.append(jax.jit(jax.value_and_grad(lambda m: jnp.square(m(*text)).mean()))(model))
    for looped, written in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(looped, written, rtol=1e-5, atol=1e-7)


def test_padding_changes_no_bit_of_features_or_gradients():
    model = fresh(SMALL, key_of(0))

    def loss(model, tokens, at):
        logs = jax.nn.log_softmax(all_logits(model, tokens, at))
        return jnp.where(at >= 0, logs[:, 3], 0.0).sum()

    step, at = jax.jit(jax.value_and_grad(loss)), np.array([0, 1, -1, 2, 3, -1, -1])
    one, other = (step(model, np.array([1, 2, pad, 3, 4, pad, pad]), at) for pad in (0, 10))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)
    alone = step(model, np.arange(1, 5), np.arange(4))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_forgetting_activations_changes_no_gradient():
    model, tokens = fresh(dataclasses.replace(SMALL, layers=1), key_of(0)), np.arange(6)
    gradient = jax.jit(jax.grad(lambda m: jnp.square(all_logits(m, tokens, tokens)).sum()))
    kept, forgotten = gradient(model), gradient(dataclasses.replace(model, remat=True))
    for a, b in zip(jax.tree.leaves(kept), jax.tree.leaves(forgotten), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_dtypes_are_those_that_were_asked_for(tmp_path):
    model = load(write(tmp_path, "qwen3"), dtype="bfloat16", compute="float32")
    tokens = jax.ShapeDtypeStruct((3,), "int32")
    features = jax.eval_shape(lambda m, ids: m(ids, ids), model, tokens)
    assert {leaf.dtype for leaf in jax.tree.leaves(model)} == {jnp.dtype("bfloat16")}
    assert features.dtype == jnp.float32
    low = dataclasses.replace(model, compute="bfloat16")
    features, logits, cache = jax.eval_shape(lambda m, ids: read(m, m.empty(1, 4), ids[None], ids[None]), low, tokens)
    kept = jnp.float32 if jax.default_backend() == "cpu" else jnp.bfloat16
    assert features.dtype == jnp.bfloat16 and logits.dtype == jnp.float32
    assert {part.dtype for part in (*cache.keys, *cache.values)} == {jnp.dtype(kept)}


# -- files -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONFIGS)
def test_configurations_are_read_as_they_are_written(name):
    shape = shape_of(CONFIGS[name])
    assert shape_of(config_of(shape)) == shape
    assert config_of(shape)["model_type"] == CONFIGS[name]["model_type"] or name == "mistral"  # without a window: llama


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "gpt2"}, 'model_type "gpt2" is not supported'),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, 'rope_type "dynamic"'),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0, "mscale": 1.0}}, "mscale"),
        ({"vocab_size": None}, "vocab_size is None"),
        ({"model_type": "qwen3", "layer_types": ["chunked_attention"], "use_sliding_window": True, "sliding_window": 4},
         'layer_types "chunked_attention"'),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_refused_by_its_field(change, said):
    with pytest.raises(UserError, match=said):
        shape_of(CONFIGS["llama"] | change)


def test_a_model_that_no_family_has_is_not_exported():
    with pytest.raises(UserError, match="cannot be exported"):
        config_of(dataclasses.replace(SMALL, normed=True, biased=("up",)))


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="3 heads cannot share 2 keys"):
        dataclasses.replace(SMALL, heads=3)
    with pytest.raises(ValueError, match="1 windows for 2 layers"):
        dataclasses.replace(SMALL, windows=(4,))


@pytest.mark.parametrize("shard", [10**9, 3_000])
def test_what_is_saved_is_what_is_loaded(shard, tmp_path):
    shape = dataclasses.replace(SMALL, tied=False, biased=("q", "k", "v"), rotary=Plain(500.0))
    model = jax.tree.map(
        lambda x: jnp.asarray(np.asarray(x) + x.dtype.type(0.1)), fresh(shape, key_of(0), dtype="bfloat16")
    )
    save(model, tmp_path, shard=shard)
    assert (tmp_path / "model.safetensors.index.json").exists() == (shard < 10**9)
    again = load(tmp_path, dtype="bfloat16")
    assert again.shape == shape and jax.tree.structure(again.layers) == jax.tree.structure(model.layers)
    for a, b in zip(jax.tree.leaves(model), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)


def test_weights_that_do_not_fit_are_told_by_name(tmp_path):
    write(tmp_path, "llama")
    weights, whole = tmp_path / "model.safetensors", load_file(tmp_path / "model.safetensors")
    for change, said in (
        ({"model.norm.weight": None}, "the weights lack model.norm.weight"),
        ({"model.norm.weight": np.zeros(3, "float32")}, r"model.norm.weight is \[3\], and config.json asks for \[24\]"),
        ({"extra": np.zeros(3, "float32")}, "extra and 0 more tensors have no place"),
    ):
        save_file({k: v for k, v in (whole | change).items() if v is not None}, weights)
        with pytest.raises(UserError, match=said):
            load(tmp_path)
    weights.write_bytes(b"nonsense")
    with pytest.raises(UserError, match=r"model\.safetensors cannot be read"):
        load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UserError, match="is not JSON"):
        load(tmp_path)
    with pytest.raises(UserError, match="is this the directory of a checkpoint"):
        load(tmp_path / "nowhere")


# -- adapters --------------------------------------------------------------------------------------------


def test_adapters_are_what_learns_and_can_be_merged_and_kept(tmp_path):
    model = fresh(SMALL, key_of(0))
    assert all(jax.tree.leaves(trainable(model)))
    targets = ("q", "down")
    adapted = jax.jit(lambda m, key: with_adapters(m, key, rank=2, alpha=3.0, targets=targets))(model, key_of(1))
    marks = trainable(adapted)
    assert sum(jax.tree.leaves(marks)) == 4 and marks.layers.q.adapter.up and not marks.layers.q.weight
    tokens = np.arange(5)
    plain = np.asarray(all_logits(model, tokens, tokens))
    np.testing.assert_array_equal(all_logits(adapted, tokens, tokens), plain)
    moved = jax.tree.map(lambda x, learns: jnp.asarray(np.asarray(x) + np.float32(0.2 * learns)), adapted, marks)
    wanted = np.asarray(all_logits(moved, tokens, tokens))
    assert np.abs(wanted - plain).max() > 1e-2
    np.testing.assert_allclose(all_logits(jax.jit(merged)(moved), tokens, tokens), wanted, atol=1e-5)
    with pytest.raises(UserError, match="merge them"):
        save(moved, tmp_path)
    save_adapters(moved, tmp_path)
    again = load_adapters(model, tmp_path)
    for a, b in zip(jax.tree.leaves(moved), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match="query is no projection"):
        with_adapters(model, key_of(1), targets=("query",))
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    for change, said in (
        ({"use_dora": True}, "use_dora"),
        ({"bias": "all"}, 'bias "all"'),
        ({"peft_type": "IA3"}, "IA3"),
    ):
        (tmp_path / "adapter_config.json").write_text(json.dumps(config | change))
        with pytest.raises(UserError, match=said):
            load_adapters(model, tmp_path)
    with pytest.raises(UserError, match="this model has no adapters"):
        save_adapters(model, tmp_path)
