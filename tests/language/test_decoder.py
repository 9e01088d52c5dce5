"""Decoder: logits against transformers; cache, padding, checkpoints and adapters."""

from __future__ import annotations

import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checkpoints import CONFIGS, prompts, write
from reference_logits import REFERENCES
from safetensors.numpy import load_file, save_file

from thespis.core.errors import UserError
from thespis.language.adapters import add_adapters, load_adapters, merge_adapters, save_adapters, trainable_mask
from thespis.language.hf_config import from_hf_config, to_hf_config
from thespis.language.hf_weights import load_pretrained, save_pretrained
from thespis.nets.decoder import Decoder, DecoderConfig, init_decoder
from thespis.nets.rotary import DefaultRope
from thespis.runtime.keys import seed_key

SMALL = DecoderConfig(
    vocab_size=11, hidden_size=16, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=4, intermediate_size=20
)


@functools.partial(jax.jit, static_argnums=0, static_argnames="dtype")
def new_decoder(config: DecoderConfig, key: jax.Array, **options) -> Decoder:
    return init_decoder(config, key, **options)


@jax.jit
def all_logits(model: Decoder, tokens, positions):
    """Logits of all tokens of one text, in one pass."""
    return model.logits(model(tokens, positions))


@functools.partial(jax.jit, static_argnums=(1, 2))
def empty_cache(model: Decoder, rows: int, slots: int):
    return model.init_cache(rows, slots)


@jax.jit
def read(model: Decoder, cache, tokens, positions, wanted=None):
    """Features of a block, or of its ``wanted`` tokens, their logits, and the new cache."""
    features, cache = model.forward_with_cache(cache, tokens, positions, model.unstack_layers(), wanted)
    return features, model.logits(features), cache


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_match_transformers(name, tmp_path):
    model, tokens = load_pretrained(write(tmp_path, name)), prompts()
    last = jax.jit(jax.vmap(lambda row: all_logits(model, row, np.arange(24))[-1]))(tokens)
    np.testing.assert_allclose(last, np.load(REFERENCES)[name], atol=1e-4)


@pytest.mark.parametrize("window", [None, 3])
def test_cache_does_not_change_logits(window):
    """Blocks of several lengths, padded on either side, give with a cache the logits of one pass without."""
    config = (
        dataclasses.replace(SMALL, num_layers=1)
        if window is None
        else dataclasses.replace(SMALL, sliding_windows=(window, None))
    )
    model, tokens = new_decoder(config, seed_key(0)), np.arange(9) % 7
    expected = all_logits(model, tokens, np.arange(9))
    cache, results = empty_cache(model, 1, 14), []
    for block, positions in (
        ([0, 1, 2, 9, 9], [0, 1, 2, -1, -1]),
        ([9, 3, 4], [-1, 3, 4]),
        ([5], [5]),
        ([6, 0, 1], [6, 7, 8]),
    ):
        _, logits, cache = read(model, cache, np.array([block]), np.array([positions]))
        results.append(np.asarray(logits)[0, np.array(positions) >= 0])
    assert int(cache.num_used) == 12
    np.testing.assert_allclose(np.concatenate(results), expected, atol=1e-5)


@pytest.mark.parametrize("layers", [1, 2])
def test_features_of_selected_tokens(layers):
    """Features of selected tokens equal those of all tokens; caches are equal, bit by bit."""
    model = new_decoder(dataclasses.replace(SMALL, num_layers=layers, sliding_windows=None), seed_key(0))
    tokens = np.random.default_rng(1).integers(0, 11, (3, 5))
    positions = np.array([[0, 1, 2, 3, 4], [-1, -1, 0, 1, 2], [-1] * 5])
    indices = np.array([[4, 1], [3, 2], [0, 0]])
    all_features, _, cache = read(model, empty_cache(model, 3, 8), tokens, positions)
    selected, _, new_cache = read(model, empty_cache(model, 3, 8), tokens, positions, indices)
    np.testing.assert_allclose(
        selected, np.take_along_axis(np.asarray(all_features), indices[..., None], axis=1), atol=1e-6
    )
    jax.tree.map(np.testing.assert_array_equal, new_cache, cache)


def test_scanned_layers_equal_unrolled_layers(monkeypatch):
    model = new_decoder(SMALL, seed_key(0))
    text = jnp.asarray(np.random.default_rng(1).integers(0, 11, 7)), jnp.asarray(np.arange(7))
    results = []
    for limit in (0, 8):
        monkeypatch.setattr("thespis.nets.decoder._UNROLL_LIMIT", limit)
        results.append(jax.jit(jax.value_and_grad(lambda m: jnp.square(m(*text)).mean()))(model))
    for scanned, unrolled in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_allclose(scanned, unrolled, rtol=1e-5, atol=1e-7)


def test_padding_changes_no_bit_of_features_or_gradients():
    model = new_decoder(SMALL, seed_key(0))

    def loss(model, tokens, positions):
        logs = jax.nn.log_softmax(all_logits(model, tokens, positions))
        return jnp.where(positions >= 0, logs[:, 3], 0.0).sum()

    step, positions = jax.jit(jax.value_and_grad(loss)), np.array([0, 1, -1, 2, 3, -1, -1])
    first, second = (step(model, np.array([1, 2, pad, 3, 4, pad, pad]), positions) for pad in (0, 10))
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_array_equal(a, b)
    unpadded = step(model, np.arange(1, 5), np.arange(4))
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(unpadded), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_rematerialization_changes_no_gradient():
    model, tokens = new_decoder(dataclasses.replace(SMALL, num_layers=1), seed_key(0)), np.arange(6)
    gradient = jax.jit(jax.grad(lambda m: jnp.square(all_logits(m, tokens, tokens)).sum()))
    stored, recomputed = gradient(model), gradient(dataclasses.replace(model, remat=True))
    for a, b in zip(jax.tree.leaves(stored), jax.tree.leaves(recomputed), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_dtypes(tmp_path):
    model = load_pretrained(write(tmp_path, "qwen3"), dtype="bfloat16", compute_dtype="float32")
    tokens = jax.ShapeDtypeStruct((3,), "int32")
    features = jax.eval_shape(lambda m, tokens: m(tokens, tokens), model, tokens)
    assert {leaf.dtype for leaf in jax.tree.leaves(model)} == {jnp.dtype("bfloat16")}
    assert features.dtype == jnp.float32
    low = dataclasses.replace(model, compute_dtype="bfloat16")
    features, logits, cache = jax.eval_shape(
        lambda m, tokens: read(m, m.init_cache(1, 4), tokens[None], tokens[None]), low, tokens
    )
    cache_dtype = jnp.float32 if jax.default_backend() == "cpu" else jnp.bfloat16
    assert features.dtype == jnp.bfloat16 and logits.dtype == jnp.float32
    assert {part.dtype for part in (*cache.keys, *cache.values)} == {jnp.dtype(cache_dtype)}


# -- files -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONFIGS)
def test_configurations_round_trip(name):
    config = from_hf_config(CONFIGS[name])
    assert from_hf_config(to_hf_config(config)) == config
    assert (
        to_hf_config(config)["model_type"] == CONFIGS[name]["model_type"] or name == "mistral"
    )  # without a window: exported as llama


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gpt2"}, 'model_type "gpt2" is not supported'),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, 'rope_type "dynamic"'),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0, "mscale": 1.0}}, "mscale"),
        ({"vocab_size": None}, "vocab_size is None"),
        (
            {
                "model_type": "qwen3",
                "layer_types": ["chunked_attention"],
                "use_sliding_window": True,
                "sliding_window": 4,
            },
            'layer_types "chunked_attention"',
        ),
    ],
)
def test_unsupported_fields_are_refused_by_name(change, message):
    with pytest.raises(UserError, match=message):
        from_hf_config(CONFIGS["llama"] | change)


def test_models_of_no_known_family_are_not_exported():
    with pytest.raises(UserError, match="cannot be exported"):
        to_hf_config(dataclasses.replace(SMALL, qk_norm=True, biased_projections=("up",)))


def test_wrong_sizes_are_refused():
    with pytest.raises(ValueError, match="3 heads cannot share 2 keys"):
        dataclasses.replace(SMALL, num_heads=3)
    with pytest.raises(ValueError, match="1 windows for 2 layers"):
        dataclasses.replace(SMALL, sliding_windows=(4,))


@pytest.mark.parametrize("shard", [10**9, 3_000])
def test_save_and_load(shard, tmp_path):
    config = dataclasses.replace(
        SMALL, tie_embeddings=False, biased_projections=("q", "k", "v"), rotary=DefaultRope(500.0)
    )
    model = jax.tree.map(
        lambda x: jnp.asarray(np.asarray(x) + x.dtype.type(0.1)), new_decoder(config, seed_key(0), dtype="bfloat16")
    )
    save_pretrained(model, tmp_path, max_shard_size=shard)
    assert (tmp_path / "model.safetensors.index.json").exists() == (shard < 10**9)
    loaded = load_pretrained(tmp_path, dtype="bfloat16")
    assert loaded.config == config and jax.tree.structure(loaded.layers) == jax.tree.structure(model.layers)
    for a, b in zip(jax.tree.leaves(model), jax.tree.leaves(loaded), strict=True):
        np.testing.assert_array_equal(a, b)


def test_wrong_weights_are_refused_by_name(tmp_path):
    write(tmp_path, "llama")
    weights, whole = tmp_path / "model.safetensors", load_file(tmp_path / "model.safetensors")
    for change, message in (
        ({"model.norm.weight": None}, "the weights lack model.norm.weight"),
        ({"model.norm.weight": np.zeros(3, "float32")}, r"model.norm.weight is \[3\], and config.json asks for \[24\]"),
        ({"extra": np.zeros(3, "float32")}, "extra and 0 more tensors have no place"),
    ):
        save_file({k: v for k, v in (whole | change).items() if v is not None}, weights)
        with pytest.raises(UserError, match=message):
            load_pretrained(tmp_path)
    weights.write_bytes(b"nonsense")
    with pytest.raises(UserError, match=r"model\.safetensors cannot be read"):
        load_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UserError, match="is not JSON"):
        load_pretrained(tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(UserError, match="is this the directory of a checkpoint"):
        load_pretrained(tmp_path)
    with pytest.raises(UserError, match="nowhere does not exist, and nothing is downloaded"):
        load_pretrained(tmp_path / "nowhere")


# -- adapters --------------------------------------------------------------------------------------------


def test_adapters_are_trainable_and_can_be_merged_and_saved(tmp_path):
    model = new_decoder(SMALL, seed_key(0))
    assert all(jax.tree.leaves(trainable_mask(model)))
    targets = ("q", "down")
    adapted = jax.jit(lambda m, key: add_adapters(m, key, rank=2, alpha=3.0, target_modules=targets))(
        model, seed_key(1)
    )
    mask = trainable_mask(adapted)
    assert sum(jax.tree.leaves(mask)) == 4 and mask.layers.q.adapter.lora_b and not mask.layers.q.weight
    tokens = np.arange(5)
    plain = np.asarray(all_logits(model, tokens, tokens))
    np.testing.assert_array_equal(all_logits(adapted, tokens, tokens), plain)
    changed = jax.tree.map(lambda x, trainable: jnp.asarray(np.asarray(x) + np.float32(0.2 * trainable)), adapted, mask)
    expected = np.asarray(all_logits(changed, tokens, tokens))
    assert np.abs(expected - plain).max() > 1e-2
    np.testing.assert_allclose(all_logits(jax.jit(merge_adapters)(changed), tokens, tokens), expected, atol=1e-5)
    with pytest.raises(UserError, match="merge them"):
        save_pretrained(changed, tmp_path)
    save_adapters(changed, tmp_path)
    loaded = load_adapters(model, tmp_path)
    for a, b in zip(jax.tree.leaves(changed), jax.tree.leaves(loaded), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match="query is no projection"):
        add_adapters(model, seed_key(1), target_modules=("query",))
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    for change, message in (
        ({"use_dora": True}, "use_dora"),
        ({"bias": "all"}, 'bias "all"'),
        ({"peft_type": "IA3"}, "IA3"),
    ):
        (tmp_path / "adapter_config.json").write_text(json.dumps(config | change))
        with pytest.raises(UserError, match=message):
            load_adapters(model, tmp_path)
    with pytest.raises(UserError, match="this model has no adapters"):
        save_adapters(model, tmp_path)
