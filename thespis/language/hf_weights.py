"""Loading and saving of Hugging Face checkpoints as :class:`~thespis.nets.decoder.Decoder`, without torch.

A directory has ``config.json`` and ``model.safetensors``, or shards and ``model.safetensors.index.json``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from thespis.core.errors import UserError, missing_extra
from thespis.language.checkpoints import checkpoint_directory
from thespis.language.hf_config import DEFAULT_MAX_LENGTH, from_hf_config, to_hf_config
from thespis.nets.decoder import PROJECTIONS, Decoder, DecoderLayer
from thespis.nets.projection import Projection

PROJECTION_NAMES = {name: f"self_attn.{name}_proj" for name in PROJECTIONS[:4]} | {
    name: f"mlp.{name}_proj" for name in PROJECTIONS[4:]
}
"""Names of a layer's projections in checkpoint files."""
_NORM_NAMES = {
    "input_norm": "input_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
}
_WEIGHTS_FILE, _INDEX_FILE = "model.safetensors", "model.safetensors.index.json"


def load_pretrained(directory: Path | str, dtype: str = "float32", compute_dtype: str | None = None) -> Decoder:
    """Load a decoder with parameters in ``dtype``, computing in ``compute_dtype`` (``None``: ``dtype``).

    Raises ``UserError`` if a file or a tensor is missing, unknown or of another shape than the configuration says.
    """
    directory = checkpoint_directory(directory)
    config = from_hf_config(read_json(directory / "config.json"))
    tensors = _TensorReader(directory, dtype)

    def stack(name: str, size: tuple[int, ...], transposed: bool = False) -> jax.Array:
        rows = [tensors.read(f"model.layers.{i}.{name}", size) for i in range(config.num_layers)]
        return jnp.stack([row.T if transposed else row for row in rows])

    def projection(name: str) -> Projection:
        in_size, out_size = config.projection_shapes()[name]
        weight = stack(f"{PROJECTION_NAMES[name]}.weight", (out_size, in_size), transposed=True)
        return Projection(
            weight, stack(f"{PROJECTION_NAMES[name]}.bias", (out_size,)) if name in config.biased_projections else None
        )

    sizes = {"input_norm": config.hidden_size, "post_attention_norm": config.hidden_size}
    if config.qk_norm:
        sizes |= {"q_norm": config.head_dim, "k_norm": config.head_dim}
    norms: dict[str, Any] = {
        name: stack(f"{file_name}.weight", (sizes[name],)) if name in sizes else None
        for name, file_name in _NORM_NAMES.items()
    }
    embedding = tensors.read("model.embed_tokens.weight", (config.vocab_size, config.hidden_size))
    norm = tensors.read("model.norm.weight", (config.hidden_size,))
    lm_head = (
        None if config.tie_embeddings else tensors.read("lm_head.weight", (config.vocab_size, config.hidden_size)).T
    )
    parts: dict[str, Any] = {name: projection(name) for name in PROJECTIONS}
    layers = DecoderLayer(**norms, **parts)
    tensors.check_all_read(["lm_head.weight"] if config.tie_embeddings else [])
    return Decoder(embedding, layers, norm, lm_head, config, compute_dtype=compute_dtype or dtype)


def save_pretrained(
    model: Decoder, directory: Path | str, *, max_length: int = DEFAULT_MAX_LENGTH, max_shard_size: int = 5_000_000_000
) -> None:
    """Write a directory that transformers can load; adapters must be merged first. ``max_shard_size`` is in bytes."""
    safetensors = require_safetensors()
    directory = Path(directory)
    config = to_hf_config(model.config, str(model.embedding.dtype), max_length)
    directory.mkdir(parents=True, exist_ok=True)
    shards: list[dict[str, jax.Array]] = [{}]
    for name, tensor in named_tensors(model):
        if shards[-1] and sum(tensor.nbytes for tensor in shards[-1].values()) + tensor.nbytes > max_shard_size:
            shards.append({})
        shards[-1][name] = tensor
    names = [
        _WEIGHTS_FILE if len(shards) == 1 else f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        for i in range(len(shards))
    ]
    for name, shard in zip(names, shards, strict=True):
        safetensors.save_file(shard, directory / name, metadata={"format": "pt"})
    if len(shards) > 1:
        weight_map = {tensor: name for name, shard in zip(names, shards, strict=True) for tensor in shard}
        total = sum(tensor.nbytes for shard in shards for tensor in shard.values())
        (directory / _INDEX_FILE).write_text(
            json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}, indent=2)
        )
    (directory / "config.json").write_text(json.dumps(config, indent=2))


def named_tensors(model: Decoder) -> Iterator[tuple[str, jax.Array]]:
    """All tensors by their names in the files, weights ``[out, in]``. Raises ``UserError`` for unmerged adapters."""
    layers = model.layers
    yield "model.embed_tokens.weight", model.embedding
    for i in range(model.config.num_layers):
        for name, part in layers.projections().items():
            file_name = PROJECTION_NAMES[name]
            if part.adapter is not None:
                raise UserError("this model has adapters: merge them, or save them as adapters")
            yield f"model.layers.{i}.{file_name}.weight", part.weight[i].T
            if part.bias is not None:
                yield f"model.layers.{i}.{file_name}.bias", part.bias[i]
        for name, file_name in _NORM_NAMES.items():
            scales = getattr(layers, name)
            if scales is not None:
                yield f"model.layers.{i}.{file_name}.weight", scales[i]
    yield "model.norm.weight", model.final_norm
    if model.lm_head is not None:
        yield "lm_head.weight", model.lm_head.T


def require_safetensors() -> Any:
    """Import ``safetensors.flax``, which needs JAX alone. Raises ``UserError`` if it is not installed."""
    try:
        import safetensors.flax
    except ImportError as error:
        raise missing_extra("safetensors", "language") from error
    return safetensors.flax


class _TensorReader:
    """The tensors of a directory, read one at a time."""

    def __init__(self, directory: Path, dtype: str):
        require_safetensors()
        self._directory, self._dtype = directory, dtype
        if (directory / _INDEX_FILE).exists():
            self._where: dict[str, str] = read_json(directory / _INDEX_FILE)["weight_map"]
        else:
            self._where = dict.fromkeys(self._tensor_names(_WEIGHTS_FILE), _WEIGHTS_FILE)
        self._taken: set[str] = set()

    def read(self, name: str, shape: tuple[int, ...]) -> jax.Array:
        """Read one tensor in the reader's dtype; its shape must be ``shape``."""
        if name not in self._where:
            raise UserError(f"{self._directory}: the weights lack {name}")
        self._taken.add(name)
        with self._open(self._where[name]) as file:
            tensor = file.get_tensor(name)
        if tensor.shape != shape:
            raise UserError(
                f"{self._directory}: {name} is {list(tensor.shape)}, and config.json asks for {list(shape)}"
            )
        return tensor.astype(self._dtype)

    def check_all_read(self, allowed: list[str]) -> None:
        """Raise ``UserError`` if the files have tensors that were not read."""
        unread = [
            name
            for name in self._where
            if name not in self._taken and name not in allowed and not name.endswith("rotary_emb.inv_freq")
        ]
        if unread:
            raise UserError(
                f"{self._directory}: {unread[0]} and {len(unread) - 1} more tensors have no place in the decoder"
            )

    def _tensor_names(self, file: str) -> list[str]:
        with self._open(file) as reader:
            return list(reader.keys())

    def _open(self, file: str) -> Any:
        import safetensors

        try:
            return safetensors.safe_open(self._directory / file, framework="flax")
        except (OSError, safetensors.SafetensorError) as error:
            raise UserError(f"{self._directory / file} cannot be read: {error}") from error


def missing_checkpoint_message(directory: Path | str) -> str:
    """The error for a checkpoint's directory that does not exist, such as the name of a model on a hub."""
    return (
        f"the directory {directory} does not exist, and nothing is downloaded: download the checkpoint first, "
        "and give its directory"
    )


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a checkpoint file. Raises ``UserError`` if it cannot be read."""
    try:
        return json.loads(path.read_text())
    except OSError as error:
        if not path.parent.is_dir():
            raise UserError(missing_checkpoint_message(path.parent)) from error
        raise UserError(f"{path} cannot be read: {error.strerror}; is this the directory of a checkpoint?") from error
    except ValueError as error:
        raise UserError(f"{path} is not JSON: {error}") from error
