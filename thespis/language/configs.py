"""``config.json`` of Hugging Face checkpoints, to and from a decoder's :class:`~thespis.nets.decoder.Shape`.

Read are the families ``llama``, ``mistral``, ``qwen2`` (with Qwen2.5) and ``qwen3``, as versions 4 and 5 of
transformers write them. What the decoder cannot do is refused by the name of the field that asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thespis.core.errors import UserError
from thespis.nets.decoder import PROJECTIONS, Shape
from thespis.nets.rotary import Banded, Interpolated, Plain, Rotary, Yarn

LONGEST = 4096
"""Positions that a checkpoint says it is for, unless told otherwise."""
FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
_ATTENTION, _FORWARD = PROJECTIONS[:4], PROJECTIONS[4:]
_MUST_BE: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu", None),
    "partial_rotary_factor": (1.0, None),
    "quantization_config": (None,),
}
_CLASSES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}


def shape_of(config: Mapping[str, Any]) -> Shape:
    """The decoder that a ``config.json`` describes. Raises ``UserError`` naming the field that is not supported."""
    family = config.get("model_type")
    if family not in FAMILIES:
        raise UserError(f'config.json: model_type "{family}" is not supported; supported are {", ".join(FAMILIES)}')
    for field, allowed in _MUST_BE.items():
        if config.get(field) not in allowed:
            raise UserError(f"config.json: {field} {config[field]!r} is not supported; supported is {allowed[0]!r}")
    heads = _number(config, "num_attention_heads")
    biased: tuple[str, ...] = _ATTENTION[:3] if family == "qwen2" else ()
    if family in ("llama", "qwen3") and config.get("attention_bias"):
        biased = _ATTENTION
    if family == "llama" and config.get("mlp_bias"):
        biased += _FORWARD
    return Shape(
        vocabulary=_number(config, "vocab_size"),
        width=_number(config, "hidden_size"),
        layers=_number(config, "num_hidden_layers"),
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_size=config.get("head_dim") or _number(config, "hidden_size") // heads,
        hidden=_number(config, "intermediate_size"),
        rotary=_rotary(config),
        epsilon=config.get("rms_norm_eps", 1e-6),
        biased=biased,
        normed=family == "qwen3",
        tied=config.get("tie_word_embeddings", False),
        windows=_windows(config),
    )


def config_of(shape: Shape, dtype: str = "float32", longest: int = LONGEST) -> dict[str, Any]:
    """A ``config.json`` that transformers 4 and 5 read; ``longest``: positions the checkpoint says it is for.

    Raises ``UserError`` if none of the families has this combination of switches.
    """
    family, bias = _family(shape)
    rope = _rope(shape.rotary)
    stretched = None if isinstance(shape.rotary, Plain) else {k: v for k, v in rope.items() if k != "rope_theta"}
    config: dict[str, Any] = {
        "architectures": [f"{_CLASSES[family]}ForCausalLM"],
        "model_type": family,
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.width,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_size,
        "intermediate_size": shape.hidden,
        "hidden_act": "silu",
        "rms_norm_eps": shape.epsilon,
        "tie_word_embeddings": shape.tied,
        "max_position_embeddings": longest,
        "torch_dtype": dtype,
        "dtype": dtype,
        "rope_theta": rope["rope_theta"],
        "rope_scaling": stretched,
        "rope_parameters": rope,
        **bias,
    }  # fmt: skip
    if family == "mistral":
        config["sliding_window"] = shape.windows and shape.windows[0]
    elif shape.windows is not None:
        config |= {
            "use_sliding_window": True,
            "sliding_window": max(w or 0 for w in shape.windows),
            "layer_types": ["full_attention" if w is None else "sliding_attention" for w in shape.windows],
        }
    return config


def _family(shape: Shape) -> tuple[str, dict[str, Any]]:
    """The family with the shape's switches, and its fields for biases."""
    biased, wide = set(shape.biased), {w for w in shape.windows or () if w is not None}
    attention, forward = biased & set(_ATTENTION), biased & set(_FORWARD)
    every, none = set(_ATTENTION), set()
    mixed = shape.windows is not None and (None in shape.windows or len(wide) > 1)
    if shape.normed and attention in (every, none) and not forward and len(wide) <= 1:
        return "qwen3", {"attention_bias": bool(attention)}
    if not shape.normed and biased == set(_ATTENTION[:3]) and len(wide) <= 1:
        return "qwen2", {}
    if not shape.normed and not biased and shape.windows is not None and not mixed:
        return "mistral", {}
    if not shape.normed and shape.windows is None and attention in (every, none) and forward in (set(_FORWARD), none):
        return "llama", {"attention_bias": bool(attention), "mlp_bias": bool(forward)}
    raise UserError(
        f"no family of checkpoints has normed={shape.normed} with biases of {sorted(biased) or 'nothing'} and windows "
        f"{shape.windows}: this model cannot be exported"
    )


def _number(config: Mapping[str, Any], field: str) -> int:
    if not isinstance(config.get(field), int):
        raise UserError(f"config.json: {field} is {config.get(field)!r} and must be a whole number")
    return config[field]


def _rotary(config: Mapping[str, Any]) -> Rotary:
    given = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    theta = float(given.get("rope_theta") or config.get("rope_theta") or 10_000.0)
    kind = given.get("rope_type") or given.get("type") or "default"
    original = given.get("original_max_position_embeddings") or config.get("max_position_embeddings")
    match kind:
        case "default":
            return Plain(theta)
        case "linear":
            return Interpolated(theta, given["factor"])
        case "llama3":
            return Banded(
                theta, given["factor"], given["low_freq_factor"], given["high_freq_factor"], int(original or 0)
            )
        case "yarn":
            for field in ("mscale", "mscale_all_dim"):
                if given.get(field):
                    raise UserError(f"config.json: rope_scaling.{field} {given[field]!r} is not supported")
            quick, slow = given.get("beta_fast") or 32.0, given.get("beta_slow") or 1.0
            return Yarn(theta, given["factor"], int(original or 0), quick, slow, given.get("attention_factor"))
        case _:
            raise UserError(
                f'config.json: rope_scaling.rope_type "{kind}" is not supported; supported are default, linear, '
                "llama3 and yarn"
            )


def _rope(rotary: Rotary) -> dict[str, Any]:
    match rotary:
        case Interpolated():
            return {"rope_type": "linear", "rope_theta": rotary.theta, "factor": rotary.factor}
        case Banded():
            return {
                "rope_type": "llama3", "rope_theta": rotary.theta, "factor": rotary.factor,
                "low_freq_factor": rotary.slow, "high_freq_factor": rotary.quick,
                "original_max_position_embeddings": rotary.original,
            }  # fmt: skip
        case Yarn():
            return {
                "rope_type": "yarn", "rope_theta": rotary.theta, "factor": rotary.factor, "beta_fast": rotary.quick,
                "beta_slow": rotary.slow, "original_max_position_embeddings": rotary.original,
                **({} if rotary.attention is None else {"attention_factor": rotary.attention}),
            }  # fmt: skip
        case Plain():
            return {"rope_type": "default", "rope_theta": rotary.theta}
        case _:
            raise UserError(
                f"{type(rotary).__name__} positions have no name in config.json: this model cannot be exported"
            )


def _windows(config: Mapping[str, Any]) -> tuple[int | None, ...] | None:
    layers, window = _number(config, "num_hidden_layers"), config.get("sliding_window")
    if config["model_type"] == "llama" or window is None:
        return None
    if config["model_type"] == "mistral":
        return (window,) * layers
    if not config.get("use_sliding_window"):
        return None
    types = config.get("layer_types")
    if types is None:
        full = config.get("max_window_layers", 28)
        return tuple(None if i < full else window for i in range(layers))
    unknown = set(types) - {"full_attention", "sliding_attention"}
    if unknown:
        raise UserError(f'config.json: layer_types "{sorted(unknown)[0]}" is not supported')
    return tuple(window if kind == "sliding_attention" else None for kind in types)
