"""Directories of Hugging Face checkpoints, to and from a :class:`~thespis.nets.decoder.Decoder`, without torch.

A directory holds ``config.json`` and ``model.safetensors``, or shards and ``model.safetensors.index.json``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from thespis.core.errors import UserError, missing_extra
from thespis.language.configs import LONGEST, config_of, shape_of
from thespis.nets.decoder import PROJECTIONS, Decoder, Layer
from thespis.nets.projection import Projection

WHERE = {name: f"self_attn.{name}_proj" for name in PROJECTIONS[:4]} | {
    name: f"mlp.{name}_proj" for name in PROJECTIONS[4:]
}
"""What the files call the projections of a layer."""
_NORMS = {
    "before": "input_layernorm", "between": "post_attention_layernorm",
    "q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm",
}  # fmt: skip
_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"


def load(directory: Path | str, dtype: str = "float32", compute: str | None = None) -> Decoder:
    """The model of a directory, its parameters in ``dtype``, computing in ``compute`` (``None``: the same).

    Raises ``UserError`` if a file or a tensor is missing, unknown or of another shape than the configuration says.
    """
    directory = Path(directory)
    shape = shape_of(read_json(directory / "config.json"))
    tensors = _Tensors(directory, dtype)

    def stacked(name: str, size: tuple[int, ...], transposed: bool = False) -> jax.Array:
        rows = [tensors.take(f"model.layers.{i}.{name}", size) for i in range(shape.layers)]
        return jnp.stack([row.T if transposed else row for row in rows])

    def projection(name: str) -> Projection:
        into, out = shape.sizes()[name]
        weight = stacked(f"{WHERE[name]}.weight", (out, into), transposed=True)
        return Projection(weight, stacked(f"{WHERE[name]}.bias", (out,)) if name in shape.biased else None)

    sizes = {"before": shape.width, "between": shape.width}
    if shape.normed:
        sizes |= {"q_norm": shape.head_size, "k_norm": shape.head_size}
    norms: dict[str, Any] = {
        name: stacked(f"{where}.weight", (sizes[name],)) if name in sizes else None for name, where in _NORMS.items()
    }
    embedding = tensors.take("model.embed_tokens.weight", (shape.vocabulary, shape.width))
    norm = tensors.take("model.norm.weight", (shape.width,))
    head = None if shape.tied else tensors.take("lm_head.weight", (shape.vocabulary, shape.width)).T
    parts: dict[str, Any] = {name: projection(name) for name in PROJECTIONS}
    layers = Layer(**norms, **parts)
    tensors.nothing_left(["lm_head.weight"] if shape.tied else [])
    return Decoder(embedding, layers, norm, head, shape, compute=compute or dtype)


def save(model: Decoder, directory: Path | str, *, longest: int = LONGEST, shard: int = 5_000_000_000) -> None:
    """Write a directory that transformers loads; adapters must be merged before. ``shard``: bytes of a file at most."""
    files = require_safetensors()
    directory = Path(directory)
    config = config_of(model.shape, str(model.embedding.dtype), longest)
    directory.mkdir(parents=True, exist_ok=True)
    shards: list[dict[str, jax.Array]] = [{}]
    for name, tensor in tensors_of(model):
        if shards[-1] and sum(t.nbytes for t in shards[-1].values()) + tensor.nbytes > shard:
            shards.append({})
        shards[-1][name] = tensor
    names = [
        _SINGLE if len(shards) == 1 else f"model-{i + 1:05}-of-{len(shards):05}.safetensors" for i in range(len(shards))
    ]
    for name, part in zip(names, shards, strict=True):
        files.save_file(part, directory / name, metadata={"format": "pt"})
    if len(shards) > 1:
        placed = {tensor: name for name, part in zip(names, shards, strict=True) for tensor in part}
        total = sum(t.nbytes for part in shards for t in part.values())
        (directory / _INDEX).write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": placed}, indent=2))
    (directory / "config.json").write_text(json.dumps(config, indent=2))


def tensors_of(model: Decoder) -> Iterator[tuple[str, jax.Array]]:
    """All tensors by the names of the files, weights ``[out, in]``. Raises ``UserError`` for adapters not merged."""
    layers = model.layers
    yield "model.embed_tokens.weight", model.embedding
    for i in range(model.shape.layers):
        for name, part in layers.projections().items():
            where = WHERE[name]
            if part.adapter is not None:
                raise UserError("this model has adapters: merge them, or save them as adapters")
            yield f"model.layers.{i}.{where}.weight", part.weight[i].T
            if part.bias is not None:
                yield f"model.layers.{i}.{where}.bias", part.bias[i]
        for name, where in _NORMS.items():
            scales = getattr(layers, name)
            if scales is not None:
                yield f"model.layers.{i}.{where}.weight", scales[i]
    yield "model.norm.weight", model.norm
    if model.head is not None:
        yield "lm_head.weight", model.head.T


def require_safetensors() -> Any:
    """The module ``safetensors.flax``, which needs JAX alone. Raises ``UserError`` if it is not installed."""
    try:
        import safetensors.flax
    except ImportError as error:
        raise missing_extra("safetensors", "language") from error
    return safetensors.flax


class _Tensors:
    """The tensors of a directory, each read when it is taken."""

    def __init__(self, directory: Path, dtype: str):
        require_safetensors()
        self._directory, self._dtype = directory, dtype
        if (directory / _INDEX).exists():
            self._where: dict[str, str] = read_json(directory / _INDEX)["weight_map"]
        else:
            self._where = dict.fromkeys(self._names(_SINGLE), _SINGLE)
        self._taken: set[str] = set()

    def take(self, name: str, size: tuple[int, ...]) -> jax.Array:
        """One tensor in the wanted dtype."""
        if name not in self._where:
            raise UserError(f"{self._directory}: the weights lack {name}")
        self._taken.add(name)
        with self._open(self._where[name]) as file:
            tensor = file.get_tensor(name)
        if tensor.shape != size:
            raise UserError(f"{self._directory}: {name} is {list(tensor.shape)}, and config.json asks for {list(size)}")
        return tensor.astype(self._dtype)

    def nothing_left(self, allowed: list[str]) -> None:
        """Raises ``UserError`` if the files hold what no part of the decoder has taken."""
        left = [
            n
            for n in self._where
            if n not in self._taken and n not in allowed and not n.endswith("rotary_emb.inv_freq")
        ]
        if left:
            raise UserError(
                f"{self._directory}: {left[0]} and {len(left) - 1} more tensors have no place in the decoder"
            )

    def _names(self, file: str) -> list[str]:
        with self._open(file) as opened:
            return list(opened.keys())

    def _open(self, file: str) -> Any:
        import safetensors

        try:
            return safetensors.safe_open(self._directory / file, framework="flax")
        except (OSError, safetensors.SafetensorError) as error:
            raise UserError(f"{self._directory / file} cannot be read: {error}") from error


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file of a checkpoint. Raises ``UserError`` if there is none."""
    try:
        return json.loads(path.read_text())
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}; is this the directory of a checkpoint?") from error
    except ValueError as error:
        raise UserError(f"{path} is not JSON: {error}") from error
