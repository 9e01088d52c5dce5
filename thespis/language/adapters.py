"""Low-rank adapters (LoRA: Hu et al., 2021): added to a decoder, merged into it, and in the files of PEFT."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.keys import fold
from thespis.language.weights import WHERE, read_json, require_safetensors
from thespis.nets.decoder import PROJECTIONS, Decoder
from thespis.nets.projection import LowRank, Projection

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_UNSUPPORTED = ("use_dora", "rank_pattern", "alpha_pattern", "modules_to_save", "layers_to_transform")


def with_adapters(
    model: Decoder, key: Key[Array, ""], rank: int = 8, alpha: float = 16.0, targets: tuple[str, ...] = ("q", "v")
) -> Decoder:
    """Adapters that as yet change nothing: ``down`` uniform as PEFT draws it, ``up`` zero, scaled by ``alpha / rank``.

    ``targets``: of :data:`~thespis.nets.decoder.PROJECTIONS`. Raises ``ValueError`` for a name that is none of them.
    """
    unknown = set(targets) - set(PROJECTIONS)
    if unknown:
        raise ValueError(f"{sorted(unknown)[0]} is no projection; they are {', '.join(PROJECTIONS)}")

    def adapted(name: str, part: Projection) -> Projection:
        if name not in targets:
            return part
        layers, into, out = part.weight.shape
        down = jax.random.uniform(fold(key, name), (layers, into, rank), part.weight.dtype, -1.0, 1.0) * into**-0.5
        adapter = LowRank(down, jnp.zeros((layers, rank, out), part.weight.dtype), alpha / rank)
        return dataclasses.replace(part, adapter=adapter)

    return _mapped(model, adapted)


def merged(model: Decoder) -> Decoder:
    """The same function without adapters: what they add is added to the weights."""

    def plain(name: str, part: Projection) -> Projection:
        low = part.adapter
        if low is None:
            return part
        return Projection(part.weight + (low.scale * low.down @ low.up).astype(part.weight.dtype), part.bias)

    return _mapped(model, plain)


def trainable(model: Decoder) -> PyTree:
    """Which leaves learn: those of adapters where there are any, else all."""
    plain = all(part.adapter is None for part in model.layers.projections().values())
    return jax.tree_util.tree_map_with_path(lambda path, _: plain or "adapter" in jax.tree_util.keystr(path), model)


def save_adapters(model: Decoder, directory: Path | str, base: str = "") -> None:
    """Write ``adapter_config.json`` and ``adapter_model.safetensors``; ``base`` names the model they are for.

    Raises ``UserError`` if the model has none, or adapters of several ranks or scales.
    """
    files, directory = require_safetensors(), Path(directory)
    found = {name: p.adapter for name, p in model.layers.projections().items() if p.adapter is not None}
    kinds = {(low.down.shape[-1], low.scale) for low in found.values()}
    if len(kinds) != 1:
        raise UserError(
            "this model has no adapters" if not kinds else f"adapters of several kinds cannot be saved: {kinds}"
        )
    ((rank, scale),) = kinds
    tensors = {
        _name(i, name, side): value[i].T
        for name, low in found.items()
        for side, value in (("A", low.down), ("B", low.up))
        for i in range(model.shape.layers)
    }
    config = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": base, "r": rank, "bias": "none",
        "lora_alpha": scale * rank, "lora_dropout": 0.0, "inference_mode": True, "fan_in_fan_out": False,
        "target_modules": sorted(WHERE[name].split(".")[1] for name in found),
    }  # fmt: skip
    directory.mkdir(parents=True, exist_ok=True)
    files.save_file(tensors, directory / _WEIGHTS, metadata={"format": "pt"})
    (directory / _CONFIG).write_text(json.dumps(config, indent=2))


def load_adapters(model: Decoder, directory: Path | str) -> Decoder:
    """The model with the adapters of a directory. Raises ``UserError`` for what is not plain LoRA, by its field."""
    directory = Path(directory)
    config = read_json(directory / _CONFIG)
    _refuse(config)
    tensors: dict[str, Any] = require_safetensors().load_file(directory / _WEIGHTS)
    rank = config["r"]
    scale = config["lora_alpha"] / (rank**0.5 if config.get("use_rslora") else rank)

    def adapted(name: str, part: Projection) -> Projection:
        if _name(0, name, "A") not in tensors:
            return part
        down, up = (
            jnp.stack([tensors.pop(_name(i, name, side)).T for i in range(model.shape.layers)]).astype(
                part.weight.dtype
            )
            for side in "AB"
        )
        return dataclasses.replace(part, adapter=LowRank(down, up, scale))

    found = _mapped(model, adapted)
    if tensors:
        raise UserError(f"{directory}: {sorted(tensors)[0]} has no place in the decoder")
    return found


def _refuse(config: dict[str, Any]) -> None:
    if config.get("peft_type") != "LORA":
        raise UserError(f'{_CONFIG}: peft_type "{config.get("peft_type")}" is not supported; supported is "LORA"')
    for field in _UNSUPPORTED:
        if config.get(field):
            raise UserError(f"{_CONFIG}: {field} {config[field]!r} is not supported")
    if config.get("bias", "none") != "none":
        raise UserError(f'{_CONFIG}: bias "{config["bias"]}" is not supported; supported is "none"')


def _name(layer: int, projection: str, side: str) -> str:
    return f"base_model.model.model.layers.{layer}.{WHERE[projection]}.lora_{side}.weight"


def _mapped(model: Decoder, function: Any) -> Decoder:
    parts = {name: function(name, part) for name, part in model.layers.projections().items()}
    return dataclasses.replace(model, layers=dataclasses.replace(model.layers, **parts))
