"""Small checkpoints with random weights, one per kind of configuration, written without the code under test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

VOCABULARY, LONGEST = 61, 64
_BASE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 40,
    "hidden_act": "silu",
    "max_position_embeddings": LONGEST,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10_000.0,
    "tie_word_embeddings": False,
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def _config(family: str, **more: Any) -> dict[str, Any]:
    architectures = [f"{family.capitalize()}ForCausalLM"]
    return _BASE | {"model_type": family, "architectures": architectures, "torch_dtype": "float32"} | more


CONFIGS: dict[str, dict[str, Any]] = {
    "llama": _config("llama", num_key_value_heads=4),
    "llama tied, grouped": _config("llama", tie_word_embeddings=True, num_key_value_heads=1),
    "llama with biases": _config("llama", attention_bias=True, mlp_bias=True),
    "llama, wide heads": _config("llama", head_dim=10),
    "llama 3.1": _config(
        "llama",
        rope_theta=500_000.0,
        rope_scaling={
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        },
    ),
    "llama, linear": _config("llama", rope_scaling={"rope_type": "linear", "factor": 4.0}),
    "llama, yarn": _config(
        "llama", rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
    ),
    "mistral": _config("mistral", sliding_window=None),
    "mistral with a window": _config("mistral", sliding_window=5),
    "qwen2": _config("qwen2", tie_word_embeddings=True),
    "qwen2 with windows": _config("qwen2", use_sliding_window=True, sliding_window=6, max_window_layers=1),
    "qwen3": _config("qwen3", head_dim=8, tie_word_embeddings=True, rope_theta=1e6),
    "qwen3 with biases": _config("qwen3", head_dim=8, attention_bias=True),
}


def tensors(config: dict[str, Any]) -> dict[str, np.ndarray]:
    """Random weights, large enough that every part of the model changes the logits."""
    rng = np.random.default_rng(7)
    width, hidden, family = config["hidden_size"], config["intermediate_size"], config["model_type"]
    size = config.get("head_dim") or width // config["num_attention_heads"]
    inner, shared = config["num_attention_heads"] * size, config["num_key_value_heads"] * size
    sizes = {
        "self_attn.q_proj": (inner, width),
        "self_attn.k_proj": (shared, width),
        "self_attn.v_proj": (shared, width),
        "self_attn.o_proj": (width, inner),
        "mlp.gate_proj": (hidden, width),
        "mlp.up_proj": (hidden, width),
        "mlp.down_proj": (width, hidden),
    }
    biased = ["q_proj", "k_proj", "v_proj"] if family == "qwen2" else []
    biased += ["q_proj", "k_proj", "v_proj", "o_proj"] if config.get("attention_bias") else []
    biased += ["gate_proj", "up_proj", "down_proj"] if config.get("mlp_bias") else []

    def normal(*shape: int, mean: float = 0.0, scale: float = 0.3) -> np.ndarray:
        return (mean + scale * rng.standard_normal(shape)).astype("float32")

    weights = {
        "model.embed_tokens.weight": normal(VOCABULARY, width, scale=1.0),
        "model.norm.weight": normal(width, mean=1),
    }
    for i in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{i}"
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{prefix}.{name}.weight"] = normal(width, mean=1.0)
        if family == "qwen3":
            weights |= {f"{prefix}.self_attn.{n}_norm.weight": normal(size, mean=1.0) for n in "qk"}
        for name, shape in sizes.items():
            weights[f"{prefix}.{name}.weight"] = normal(*shape)
            if name.split(".")[1] in biased:
                weights[f"{prefix}.{name}.bias"] = normal(shape[0])
    if not config["tie_word_embeddings"]:
        weights["lm_head.weight"] = normal(VOCABULARY, width)
    return weights


def write(directory: Path, name: str) -> Path:
    """Write a checkpoint and return its directory."""
    directory.mkdir(parents=True, exist_ok=True)
    config = CONFIGS[name]
    (directory / "config.json").write_text(json.dumps(config))
    save_file(tensors(config), directory / "model.safetensors", metadata={"format": "pt"})
    return directory


def prompts() -> np.ndarray:
    """Two prompts of 24 tokens ``[row, time]``: longer than any window and than the original length of YaRN."""
    return np.random.default_rng(3).integers(3, VOCABULARY, (2, 24))
