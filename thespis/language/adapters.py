"""LoRA adapters (Hu et al., 2021): added to a decoder, merged into it, saved and loaded in PEFT's format."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from thespis.core.errors import UserError
from thespis.language.hf_weights import PROJECTION_NAMES, read_json, require_safetensors
from thespis.nets.decoder import PROJECTIONS, Decoder
from thespis.nets.projection import LoRAWeights, Projection
from thespis.runtime.keys import fold

_CONFIG_FILE, _WEIGHTS_FILE = "adapter_config.json", "adapter_model.safetensors"
_UNSUPPORTED_FIELDS = ("use_dora", "rank_pattern", "alpha_pattern", "modules_to_save", "layers_to_transform")


def add_adapters(
    model: Decoder,
    key: Key[Array, ""],
    rank: int = 8,
    alpha: float = 16.0,
    target_modules: tuple[str, ...] = ("q", "v"),
) -> Decoder:
    """Add LoRA adapters that change nothing at first: ``lora_a`` uniform as in PEFT, ``lora_b`` zero.

    Their product is scaled by ``alpha / rank``. ``target_modules``: a subset of
    :data:`~thespis.nets.decoder.PROJECTIONS`. Raises ``ValueError`` for any other name.
    """
    unknown = set(target_modules) - set(PROJECTIONS)
    if unknown:
        raise ValueError(f"{sorted(unknown)[0]} is no projection; they are {', '.join(PROJECTIONS)}")

    def with_adapter(name: str, part: Projection) -> Projection:
        if name not in target_modules:
            return part
        layers, in_size, out_size = part.weight.shape
        lora_a = (
            jax.random.uniform(fold(key, name), (layers, in_size, rank), part.weight.dtype, -1.0, 1.0) * in_size**-0.5
        )
        adapter = LoRAWeights(lora_a, jnp.zeros((layers, rank, out_size), part.weight.dtype), alpha / rank)
        return dataclasses.replace(part, adapter=adapter)

    return _map_projections(model, with_adapter)


def merge_adapters(model: Decoder) -> Decoder:
    """The same function without adapters: their products are added to the weights."""

    def merged(name: str, part: Projection) -> Projection:
        adapter = part.adapter
        if adapter is None:
            return part
        return Projection(
            part.weight + (adapter.scaling * adapter.lora_a @ adapter.lora_b).astype(part.weight.dtype), part.bias
        )

    return _map_projections(model, merged)


def trainable_mask(model: Decoder) -> PyTree:
    """Mask of the trainable leaves: those of adapters if there are any, otherwise all."""
    no_adapters = all(part.adapter is None for part in model.layers.projections().values())
    return jax.tree_util.tree_map_with_path(
        lambda path, _: no_adapters or "adapter" in jax.tree_util.keystr(path), model
    )


def save_adapters(model: Decoder, directory: Path | str, base_model: str = "") -> None:
    """Write ``adapter_config.json`` and ``adapter_model.safetensors``; ``base_model`` names the model they belong to.

    Raises ``UserError`` if the model has none, or adapters of several ranks or scales.
    """
    safetensors, directory = require_safetensors(), Path(directory)
    adapters = {name: part.adapter for name, part in model.layers.projections().items() if part.adapter is not None}
    ranks_and_scales = {(adapter.lora_a.shape[-1], adapter.scaling) for adapter in adapters.values()}
    if len(ranks_and_scales) != 1:
        raise UserError(
            "this model has no adapters"
            if not ranks_and_scales
            else f"adapters of several kinds cannot be saved: {ranks_and_scales}"
        )
    ((rank, scale),) = ranks_and_scales
    tensors = {
        _tensor_name(i, name, side): value[i].T
        for name, adapter in adapters.items()
        for side, value in (("A", adapter.lora_a), ("B", adapter.lora_b))
        for i in range(model.config.num_layers)
    }
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model,
        "r": rank,
        "bias": "none",
        "lora_alpha": scale * rank,
        "lora_dropout": 0.0,
        "inference_mode": True,
        "fan_in_fan_out": False,
        "target_modules": sorted(PROJECTION_NAMES[name].split(".")[1] for name in adapters),
    }
    directory.mkdir(parents=True, exist_ok=True)
    safetensors.save_file(tensors, directory / _WEIGHTS_FILE, metadata={"format": "pt"})
    (directory / _CONFIG_FILE).write_text(json.dumps(config, indent=2))


def load_adapters(model: Decoder, directory: Path | str) -> Decoder:
    """The model with the adapters of a directory. Raises ``UserError`` for what is not plain LoRA, naming the field."""
    directory = Path(directory)
    config = read_json(directory / _CONFIG_FILE)
    _check_supported(config)
    tensors: dict[str, Any] = require_safetensors().load_file(directory / _WEIGHTS_FILE)
    rank = config["r"]
    scale = config["lora_alpha"] / (rank**0.5 if config.get("use_rslora") else rank)

    def with_adapter(name: str, part: Projection) -> Projection:
        if _tensor_name(0, name, "A") not in tensors:
            return part
        lora_a, lora_b = (
            jnp.stack([tensors.pop(_tensor_name(i, name, side)).T for i in range(model.config.num_layers)]).astype(
                part.weight.dtype
            )
            for side in "AB"
        )
        return dataclasses.replace(part, adapter=LoRAWeights(lora_a, lora_b, scale))

    adapted_model = _map_projections(model, with_adapter)
    if tensors:
        raise UserError(f"{directory}: {sorted(tensors)[0]} has no place in the decoder")
    return adapted_model


def _check_supported(config: dict[str, Any]) -> None:
    if config.get("peft_type") != "LORA":
        raise UserError(f'{_CONFIG_FILE}: peft_type "{config.get("peft_type")}" is not supported; supported is "LORA"')
    for field in _UNSUPPORTED_FIELDS:
        if config.get(field):
            raise UserError(f"{_CONFIG_FILE}: {field} {config[field]!r} is not supported")
    if config.get("bias", "none") != "none":
        raise UserError(f'{_CONFIG_FILE}: bias "{config["bias"]}" is not supported; supported is "none"')


def _tensor_name(layer: int, projection: str, side: str) -> str:
    return f"base_model.model.model.layers.{layer}.{PROJECTION_NAMES[projection]}.lora_{side}.weight"


def _map_projections(model: Decoder, function: Any) -> Decoder:
    parts = {name: function(name, part) for name, part in model.layers.projections().items()}
    return dataclasses.replace(model, layers=dataclasses.replace(model.layers, **parts))
