"""Conversion of Hugging Face ``config.json`` to and from a decoder's :class:`~thespis.nets.decoder.DecoderConfig`.

Supported model types are ``llama``, ``mistral``, ``qwen2`` (with Qwen2.5) and ``qwen3``, as versions 4 and 5 of
transformers write them. What the decoder cannot do is refused by the name of the field that asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thespis.core.errors import UserError
from thespis.nets.decoder import PROJECTIONS, DecoderConfig
from thespis.nets.rotary import DefaultRope, LinearRope, Llama3Rope, RotaryEmbedding, YarnRope

DEFAULT_MAX_LENGTH = 4096
"""Default of ``max_position_embeddings``, where neither a checkpoint nor the caller specifies it."""
MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3")
_ATTENTION, _FEED_FORWARD = PROJECTIONS[:4], PROJECTIONS[4:]
_REQUIRED_VALUES: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu", None),
    "partial_rotary_factor": (1.0, None),
    "quantization_config": (None,),
}
_ARCHITECTURES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}


def from_hf_config(config: Mapping[str, Any]) -> DecoderConfig:
    """The decoder that a ``config.json`` describes. Raises ``UserError`` naming the field that is not supported."""
    family = config.get("model_type")
    if family not in MODEL_TYPES:
        raise UserError(f'config.json: model_type "{family}" is not supported; supported are {", ".join(MODEL_TYPES)}')
    for field, allowed in _REQUIRED_VALUES.items():
        if config.get(field) not in allowed:
            raise UserError(f"config.json: {field} {config[field]!r} is not supported; supported is {allowed[0]!r}")
    heads = _int_field(config, "num_attention_heads")
    biased_projections: tuple[str, ...] = _ATTENTION[:3] if family == "qwen2" else ()
    if family in ("llama", "qwen3") and config.get("attention_bias"):
        biased_projections = _ATTENTION
    if family == "llama" and config.get("mlp_bias"):
        biased_projections += _FEED_FORWARD
    return DecoderConfig(
        vocab_size=_int_field(config, "vocab_size"),
        hidden_size=_int_field(config, "hidden_size"),
        num_layers=_int_field(config, "num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or _int_field(config, "hidden_size") // heads,
        intermediate_size=_int_field(config, "intermediate_size"),
        rotary=_read_rope(config),
        rms_norm_eps=config.get("rms_norm_eps", 1e-6),
        biased_projections=biased_projections,
        qk_norm=family == "qwen3",
        tie_embeddings=config.get("tie_word_embeddings", False),
        sliding_windows=_sliding_windows(config),
    )


def to_hf_config(shape: DecoderConfig, dtype: str = "float32", max_length: int = DEFAULT_MAX_LENGTH) -> dict[str, Any]:
    """A ``config.json`` for transformers 4 and 5; ``max_length`` is written as ``max_position_embeddings``.

    Raises ``UserError`` if none of the model types has this combination of options.
    """
    family, bias = _model_type(shape)
    rope = _rope_fields(shape.rotary)
    rope_scaling = (
        None if isinstance(shape.rotary, DefaultRope) else {k: v for k, v in rope.items() if k != "rope_theta"}
    )
    config: dict[str, Any] = {
        "architectures": [f"{_ARCHITECTURES[family]}ForCausalLM"],
        "model_type": family,
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "intermediate_size": shape.intermediate_size,
        "hidden_act": "silu",
        "rms_norm_eps": shape.rms_norm_eps,
        "tie_word_embeddings": shape.tie_embeddings,
        "max_position_embeddings": max_length,
        "torch_dtype": dtype,
        "dtype": dtype,
        "rope_theta": rope["rope_theta"],
        "rope_scaling": rope_scaling,
        "rope_parameters": rope,
        **bias,
    }
    if family == "mistral":
        config["sliding_window"] = shape.sliding_windows and shape.sliding_windows[0]
    elif shape.sliding_windows is not None:
        config |= {
            "use_sliding_window": True,
            "sliding_window": max(w or 0 for w in shape.sliding_windows),
            "layer_types": ["full_attention" if w is None else "sliding_attention" for w in shape.sliding_windows],
        }
    return config


def _model_type(shape: DecoderConfig) -> tuple[str, dict[str, Any]]:
    """The model type that has the options of ``shape``, and its fields for biases."""
    biased, window_sizes = set(shape.biased_projections), {w for w in shape.sliding_windows or () if w is not None}
    attention, forward = biased & set(_ATTENTION), biased & set(_FEED_FORWARD)
    all_attention, empty = set(_ATTENTION), set()
    mixed = shape.sliding_windows is not None and (None in shape.sliding_windows or len(window_sizes) > 1)
    if shape.qk_norm and attention in (all_attention, empty) and not forward and len(window_sizes) <= 1:
        return "qwen3", {"attention_bias": bool(attention)}
    if not shape.qk_norm and biased == set(_ATTENTION[:3]) and len(window_sizes) <= 1:
        return "qwen2", {}
    if not shape.qk_norm and not biased and shape.sliding_windows is not None and not mixed:
        return "mistral", {}
    if (
        not shape.qk_norm
        and shape.sliding_windows is None
        and attention in (all_attention, empty)
        and forward in (set(_FEED_FORWARD), empty)
    ):
        return "llama", {"attention_bias": bool(attention), "mlp_bias": bool(forward)}
    raise UserError(
        f"no family of checkpoints has qk_norm={shape.qk_norm} with biases of {sorted(biased) or 'nothing'} and "
        f"sliding windows {shape.sliding_windows}: this model cannot be exported"
    )


def _int_field(config: Mapping[str, Any], field: str) -> int:
    if not isinstance(config.get(field), int):
        raise UserError(f"config.json: {field} is {config.get(field)!r} and must be a whole number")
    return config[field]


def _read_rope(config: Mapping[str, Any]) -> RotaryEmbedding:
    rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    theta = float(rope.get("rope_theta") or config.get("rope_theta") or 10_000.0)
    kind = rope.get("rope_type") or rope.get("type") or "default"
    original = rope.get("original_max_position_embeddings") or config.get("max_position_embeddings")
    match kind:
        case "default":
            return DefaultRope(theta)
        case "linear":
            return LinearRope(theta, rope["factor"])
        case "llama3":
            return Llama3Rope(
                theta, rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"], int(original or 0)
            )
        case "yarn":
            for field in ("mscale", "mscale_all_dim"):
                if rope.get(field):
                    raise UserError(f"config.json: rope_scaling.{field} {rope[field]!r} is not supported")
            beta_fast, beta_slow = rope.get("beta_fast") or 32.0, rope.get("beta_slow") or 1.0
            return YarnRope(
                theta, rope["factor"], int(original or 0), beta_fast, beta_slow, rope.get("attention_factor")
            )
        case _:
            raise UserError(
                f'config.json: rope_scaling.rope_type "{kind}" is not supported; supported are default, linear, '
                "llama3 and yarn"
            )


def _rope_fields(rotary: RotaryEmbedding) -> dict[str, Any]:
    match rotary:
        case LinearRope():
            return {"rope_type": "linear", "rope_theta": rotary.theta, "factor": rotary.factor}
        case Llama3Rope():
            return {
                "rope_type": "llama3",
                "rope_theta": rotary.theta,
                "factor": rotary.factor,
                "low_freq_factor": rotary.low_freq_factor,
                "high_freq_factor": rotary.high_freq_factor,
                "original_max_position_embeddings": rotary.original_max_positions,
            }
        case YarnRope():
            return {
                "rope_type": "yarn",
                "rope_theta": rotary.theta,
                "factor": rotary.factor,
                "beta_fast": rotary.beta_fast,
                "beta_slow": rotary.beta_slow,
                "original_max_position_embeddings": rotary.original_max_positions,
                **({} if rotary.attention_factor is None else {"attention_factor": rotary.attention_factor}),
            }
        case DefaultRope():
            return {"rope_type": "default", "rope_theta": rotary.theta}
        case _:
            raise UserError(
                f"{type(rotary).__name__} positions have no name in config.json: this model cannot be exported"
            )


def _sliding_windows(config: Mapping[str, Any]) -> tuple[int | None, ...] | None:
    layers, window = _int_field(config, "num_hidden_layers"), config.get("sliding_window")
    if config["model_type"] == "llama" or window is None:
        return None
    if config["model_type"] == "mistral":
        return (window,) * layers
    if not config.get("use_sliding_window"):
        return None
    types = config.get("layer_types")
    if types is None:
        num_full_layers = config.get("max_window_layers", 28)
        return tuple(None if i < num_full_layers else window for i in range(layers))
    unknown = set(types) - {"full_attention", "sliding_attention"}
    if unknown:
        raise UserError(f'config.json: layer_types "{sorted(unknown)[0]}" is not supported')
    return tuple(window if kind == "sliding_attention" else None for kind in types)
