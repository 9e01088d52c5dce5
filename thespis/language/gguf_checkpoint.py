"""Conversion of GGUF files, llama.cpp's format, to checkpoint directories; needs the ``gguf`` library.

The result has ``config.json``, ``model.safetensors``, ``tokenizer.json`` and ``tokenizer_config.json`` as from Hugging
Face. Quantized weights are written as float32: the numbers are those that llama.cpp computes with, to rounding.

Architectures are ``llama`` (with Mistral), ``qwen2`` and ``qwen3``; tensors may be of any type that the library can
dequantize, among them F16, BF16, Q8_0, Q4_0 and Q4_1.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from thespis.core.errors import UserError
from thespis.language.gguf_tokenizer import special_tokens, tokenizer_from_gguf
from thespis.language.libraries import import_gguf
from thespis.nets.rotary import DefaultRope, Llama3Rope

ARCHITECTURES = ("llama", "qwen2", "qwen3")
_LAYER_TENSORS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
}
_OTHER_TENSORS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_ROPE_FACTORS = "rope_freqs.weight"
_LLAMA3_ROPE = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""Settings of the only models whose files have factors of frequencies, Llama 3.1 to 3.3."""


def convert_gguf(path: Path, directory: Path) -> None:
    """Write the model and tokenizer of a GGUF file as the checkpoint ``directory``, which must exist.

    Raises ``UserError`` if the file cannot be read, or for what the decoder cannot do.
    """
    from safetensors.numpy import save_file

    reader = _open(path)
    try:
        metadata = {name: field.contents() for name, field in reader.fields.items()}
        tensors = {tensor.name: tensor for tensor in reader.tensors}
        config = _hf_config(metadata, tensors)
        weights = dict(_named_weights(tensors, config, metadata["general.architecture"]))
        save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
        tokenizer_from_gguf(metadata).save(str(directory / "tokenizer.json"))
    except KeyError as error:
        raise UserError(f"{path} has no {error.args[0]}: it is not a whole language model") from error
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    names, stop = special_tokens(metadata)
    template = metadata.get("tokenizer.chat_template")
    tokenizer_config = {"tokenizer_class": "PreTrainedTokenizerFast", **names}
    files = {
        "config.json": config,
        "generation_config.json": {"eos_token_id": stop},
        "tokenizer_config.json": tokenizer_config | ({"chat_template": template} if template else {}),
    }
    for name, content in files.items():
        (directory / name).write_text(json.dumps(content, indent=2))


def _open(path: Path) -> Any:
    library = import_gguf()
    if not path.is_file():
        raise UserError(f"the file {path} does not exist, and nothing is downloaded")
    try:
        return library.GGUFReader(path)
    except (ValueError, IndexError, KeyError, OSError) as error:
        raise UserError(f"{path} is not a GGUF file, or is damaged: {error}") from error


def _hf_config(metadata: dict[str, Any], tensors: dict[str, Any]) -> dict[str, Any]:
    """The ``config.json`` that a GGUF file's metadata and its tensors describe."""
    architecture = metadata["general.architecture"]
    if architecture not in ARCHITECTURES:
        raise UserError(f'the architecture "{architecture}" is not supported; supported: {", ".join(ARCHITECTURES)}')
    own = {name.removeprefix(f"{architecture}."): value for name, value in metadata.items()}
    heads = own["attention.head_count"]
    kv_heads = own.get("attention.head_count_kv", heads)
    if isinstance(heads, list) or isinstance(kv_heads, list):
        raise UserError("layers with different numbers of heads are not supported")
    head_dim = own.get("attention.key_length") or own["embedding_length"] // heads
    if own.get("rope.dimension_count", head_dim) != head_dim:
        raise UserError("rotary embeddings of a part of each head are not supported")
    window = own.get("attention.sliding_window")
    family = "mistral" if architecture == "llama" and window else architecture
    has_bias = {name: f"blk.0.{name}.bias" in tensors for name in ("attn_q", "attn_output", "ffn_up")}
    config = {
        "model_type": family,
        "vocab_size": int(tensors["token_embd.weight"].shape[-1]),
        "hidden_size": own["embedding_length"],
        "num_hidden_layers": own["block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "intermediate_size": own["feed_forward_length"],
        "hidden_act": "silu",
        "rms_norm_eps": own["attention.layer_norm_rms_epsilon"],
        "max_position_embeddings": own["context_length"],
        "tie_word_embeddings": "output.weight" not in tensors,
        "rope_theta": own.get("rope.freq_base", 10_000.0),
        "torch_dtype": "float32",
        "attention_bias": has_bias["attn_q"] and has_bias["attn_output"],
        "mlp_bias": has_bias["ffn_up"],
        "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": metadata["tokenizer.ggml.eos_token_id"],
    }
    if window:
        config |= {"sliding_window": window, "use_sliding_window": True}
    scaling = _rope_scaling(own, tensors, config)
    return config | ({"rope_scaling": scaling} if scaling else {})


def _rope_scaling(own: dict[str, Any], tensors: dict[str, Any], config: dict[str, Any]) -> dict[str, Any] | None:
    """How the file extends rotary embeddings to longer texts."""
    if _ROPE_FACTORS in tensors:
        return _llama3_scaling(_dequantize(tensors[_ROPE_FACTORS]), config)
    kind = own.get("rope.scaling.type", "none")
    match kind:
        case "none":
            return None
        case "linear":
            return {"rope_type": "linear", "factor": own["rope.scaling.factor"]}
        case "yarn":
            original = own["rope.scaling.original_context_length"]
            factor = own["rope.scaling.factor"]
            return {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original}
    raise UserError(f'the rope scaling "{kind}" is not supported')


def _llama3_scaling(divisors: Float[np.ndarray, " pair"], config: dict[str, Any]) -> dict[str, Any]:
    """Settings of Llama 3.1 that give these divisors of the frequencies. Raises ``UserError`` if there are none."""
    theta, size, factor = config["rope_theta"], config["head_dim"], float(divisors.max())
    low, high, original = _LLAMA3_ROPE.values()
    rope = Llama3Rope(theta, factor, low, high, int(original))
    if not np.allclose(DefaultRope(theta).frequencies(size) / rope.frequencies(size), divisors, rtol=1e-4):
        raise UserError("its factors of rotary frequencies are not those of Llama 3.1, and others are not supported")
    return {"rope_type": "llama3", "factor": factor, **_LLAMA3_ROPE}


def _named_weights(
    tensors: dict[str, Any], config: dict[str, Any], architecture: str
) -> list[tuple[str, Float[np.ndarray, "..."]]]:
    """All weights by their names in Hugging Face's files."""
    weights = []
    for name, tensor in tensors.items():
        if name == _ROPE_FACTORS:
            continue
        weight, (head, _, rest) = _dequantize(tensor), name.partition(".")
        if head == "blk":
            layer, part, kind = rest.split(".")
            if part not in _LAYER_TENSORS:
                raise UserError(f"the tensor {name} has no place in the decoder")
            if architecture == "llama" and part in ("attn_q", "attn_k"):
                weight = _unpermute(weight, config["head_dim"])
            weights.append((f"model.layers.{layer}.{_LAYER_TENSORS[part]}.{kind}", weight))
        elif name in _OTHER_TENSORS:
            weights.append((_OTHER_TENSORS[name], weight))
        else:
            raise UserError(f"the tensor {name} has no place in the decoder")
    return weights


def _dequantize(tensor: Any) -> Float[np.ndarray, "..."]:
    """The numbers of a tensor, ``[out, in]``."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the library's: casts of padding
            values = import_gguf().quants.dequantize(tensor.data, tensor.tensor_type)
    except NotImplementedError as error:  # the library's, for a type of tensors that it cannot read
        raise UserError(f"{tensor.name} is quantized as {tensor.tensor_type.name}, which is not supported") from error
    return np.ascontiguousarray(values.reshape(tuple(int(size) for size in reversed(tensor.shape))), "float32")


def _unpermute(weight: Float[np.ndarray, "out ..."], head_dim: int) -> Float[np.ndarray, "out ..."]:
    """Rows of a head as in Hugging Face's files, where the features of a rotated pair are half a head apart.

    In GGUF files of this architecture they are neighbors.
    """
    pairs = weight.reshape(-1, head_dim // 2, 2, *weight.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(weight.shape))
