"""Engines from checkpoints and from runs, and export of runs as checkpoints."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from thespis.actors.lm_policy import LMPolicy
from thespis.core.contracts import HasSeats, Mode
from thespis.core.errors import UserError
from thespis.core.spaces import END, PAD, Vocabulary
from thespis.evaluation.run import Run, load
from thespis.language import hf_weights
from thespis.language.adapters import merge_adapters, save_adapters
from thespis.language.chat import ChatTemplate
from thespis.language.checkpoints import checkpoint_directory, is_gguf
from thespis.language.engine import GenerationConfig
from thespis.language.local_engine import LocalEngine, load_engine
from thespis.language.merging import weighted_sum
from thespis.language.templating import TemplateFormatter
from thespis.language.tokenizer import word_tokenizer
from thespis.learners.multi_agent.independent_learners import GroupStates, agent_spec
from thespis.nets.decoder import Decoder
from thespis.runtime import disk
from thespis.runtime.cache import cache_path, write_once
from thespis.training.method_setup import HasReferenceModel, LMFeedback, LMMethod

_WORD_TEMPLATE = (
    "{% for m in messages %}{{ m.content | trim }} {% if m.role == 'assistant' %}{{ '<end> ' }}"
    "{% elif not (m.content | trim).endswith('>') %}{{ '> ' }}{% endif %}{% endfor %}"
)
"""Chat template of text environments with a word vocabulary: each message ends with the prompt for a response."""


def find_model(directory: Path | str) -> Path:
    """The path of the model in a directory: the directory itself (checkpoint or run) or ``model`` in it.

    Raises ``UserError`` if there is none.
    """
    directory = checkpoint_directory(directory)
    for path in (directory, directory / "model"):
        if (path / "config.json").exists():
            return path
    if (directory / "run.json").exists():
        return directory
    if not directory.exists():
        raise UserError(f"{hf_weights.missing_checkpoint_message(directory)}, or that of a run")
    raise UserError(
        f"{directory} is neither a checkpoint nor a run: a checkpoint has config.json, model.safetensors and "
        "tokenizer.json, in the directory or in model/"
    )


def engine_from_path(
    path: Path, *, seat: str | None = None, dtype: str = "float32", batch_size: int = 8
) -> LocalEngine:
    """An engine for a path from :func:`find_model`; of a run, the first seed, and of a cast, a seat.

    Raises ``UserError``.
    """
    if (path / "config.json").exists():
        if seat is not None:
            raise UserError(f"{path} is a checkpoint and has no seats: leave --seat {seat} out")
        return load_engine(path, dtype=dtype, batch_size=batch_size)
    return engine_from_run(load(path), seat=seat, dtype=dtype, batch_size=batch_size)[0]


def export_checkpoint(
    run: Run, out: Path | str, seed: int | None = None, *, seat: str | None = None, adapters_only: bool = False
) -> Path:
    """Export one training seed (the first if ``None``) of a run at its newest checkpoint, as a Hugging Face checkpoint.

    The tokenizer and chat template are those of the run's initial model; an environment with a word vocabulary gets a
    tokenizer of its words. ``seat``: which of the models of a cast. ``adapters_only``: write LoRA adapters alone, in
    PEFT's format; else they are merged into the model. Raises ``UserError`` for a run without a language model or
    without adapters, and for a directory that is not empty or cannot be written.
    """
    out = Path(out)
    try:
        _require_empty(out)
        if adapters_only:
            base = _seat_method(run, seat).model_init.name_or_path
            save_adapters(
                _decoder(_lm_policy(run, seed, seat)), out, base if is_gguf(base) or Path(base).is_dir() else ""
            )
            return out
        engine = engine_from_run(run, seed, seat=seat)[0]
        hf_weights.save_pretrained(engine.model, out, max_length=engine.max_length)
        _save_tokenizer(vocabulary_of(run, seat), engine, out)
    except OSError as error:
        raise UserError(f"cannot write a checkpoint to {out}: {error.strerror or error}") from error
    return out


def _require_empty(out: Path) -> None:
    if out.exists() and any(out.iterdir()):
        raise UserError(f"{out} is not empty: choose another directory")


def _save_tokenizer(vocabulary: Vocabulary, engine: LocalEngine, out: Path) -> None:
    """Write the tokenizer, the chat template, and the stop tokens."""
    source = vocabulary.tokenizer_dir
    generation_config = {"eos_token_id": list(engine.tokenizer.stop_tokens), "pad_token_id": engine.tokenizer.pad_token}
    (out / "generation_config.json").write_text(json.dumps(generation_config))
    if source:
        for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"):
            path = checkpoint_directory(source) / name
            if path.exists():
                shutil.copy(path, out / name)
        return
    engine.tokenizer.save(out)
    tokenizer_config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "pad_token": PAD}
    (out / "tokenizer_config.json").write_text(json.dumps(tokenizer_config | {"chat_template": _WORD_TEMPLATE}))


def engine_from_run(
    run: Run,
    seed: int | None = None,
    *,
    seat: str | None = None,
    dtype: str = "float32",
    batch_size: int = 8,
) -> tuple[LocalEngine, GenerationConfig]:
    """Engine of one training seed (the first if ``None``) of a run's newest checkpoint, and its generation settings.

    ``seat``: which of the models of a cast. Raises ``UserError`` for a run without a language model, or one whose
    generation is steered by a critic.
    """
    policy, vocabulary = _lm_policy(run, seed, seat), vocabulary_of(run, seat)
    model = jax.tree.map(lambda x: jnp.asarray(x, dtype), merge_adapters(_decoder(policy)))
    model = dataclasses.replace(model, compute_dtype=dtype)
    config = GenerationConfig(float(policy.sampler.temperature), max_tokens=policy.dialogue_spec.max_response_tokens)
    if vocabulary.tokenizer_dir:
        formatter = TemplateFormatter(vocabulary.tokenizer_dir)
        return LocalEngine(
            model, formatter.tokenizer, formatter.template, max_length=formatter.max_length, batch_size=batch_size
        ), config
    tokenizer, template, max_length = (
        word_tokenizer(vocabulary.words),
        ChatTemplate(_WORD_TEMPLATE),
        policy.dialogue_spec.max_length,
    )
    return LocalEngine(model, tokenizer, template, max_length=max_length, batch_size=batch_size), config


def _lm_policy(run: Run, seed: int | None, seat: str | None = None) -> LMPolicy:
    """The language model policy of a run. Raises ``UserError`` as :func:`engine_from_run` does."""
    state = jax.tree.map(lambda x: x[0], run.states_for_seeds([run.config["seeds"][0] if seed is None else seed]))
    policy: Any = run.method.policy(state, Mode.SAMPLE)
    if isinstance(policy, GroupStates):
        policy = policy.by_group[_require_seat(run, seat)]
    elif seat is not None:
        raise UserError(f"{run.path} has one model and no seats: leave --seat {seat} out")
    if not isinstance(policy, LMPolicy):
        name = run.method.name if seat is None else f"seat {seat}"
        raise UserError(
            f"{run.path} was trained by {name}, whose policy is not a language model: to export a control "
            "policy, give --format onnx, numpy or safetensors"
        )
    if policy.logits_processor is not None:
        raise UserError(
            f"{run.path} is steered by a critic, which engines do not support: use thespis record or evaluate"
        )
    return policy


def _require_seat(run: Run, seat: str | None) -> str:
    """The seat of a run with several. Raises ``UserError`` for none, or one that it does not have."""
    seats = [group.name for group in run.spec.groups]
    if seat not in seats:
        problem = "has several models" if seat is None else f"has no seat {seat!r}"
        raise UserError(f"{run.path} {problem}: choose one by --seat {' or '.join(seats)}, or {run.path}:{seats[-1]}")
    return seat


def _seat_method(run: Run, seat: str | None) -> Any:
    """The method of a run, or of a seat of its cast."""
    return run.method.methods[seat] if seat is not None and isinstance(run.method, HasSeats) else run.method


def vocabulary_of(run: Run, seat: str | None) -> Vocabulary:
    """The vocabulary of a run's responses, or of those of a seat."""
    spec = run.spec
    if seat is not None:
        spec = agent_spec(spec, next(group for group in spec.groups if group.name == seat))
    return spec.action_space.vocabulary  # pyright: ignore[reportAttributeAccessIssue]


def split_seat(source: Path | str) -> tuple[Path | str, str | None]:
    """A checkpoint or run, and the seat in ``RUN:SEAT``; ``None`` without one."""
    run, colon, seat = str(source).rpartition(":")
    if colon and not Path(source).exists() and (Path(run) / "run.json").exists():
        return run, seat
    return source, None


def _decoder(policy: LMPolicy) -> Decoder:
    """The model of a run's policy; several models generate together only to collect, in ``Mode.EXPLORE``."""
    assert isinstance(policy.model, Decoder)
    return policy.model


def resolve_initial_model(method: Any) -> Any:
    """The method, or the feedback with a language model; if its model or reference is a run, that is a checkpoint now.

    Raises ``UserError`` as :func:`export_checkpoint` does.
    """
    if isinstance(method, HasSeats):
        return method.map_seats(lambda name, part: resolve_initial_model(part))
    if not isinstance(method, LMMethod | LMFeedback):
        return method
    if (Path(split_seat(method.model_init.name_or_path)[0]) / "run.json").exists():
        model = str(cached_checkpoint(method.model_init.name_or_path))
        method = dataclasses.replace(method, model=model)  # pyright: ignore[reportArgumentType]
    if isinstance(method, HasReferenceModel) and method.reference_model:
        reference = str(cached_checkpoint(method.reference_model))
        method = dataclasses.replace(method, reference_model=reference)  # pyright: ignore[reportArgumentType]
    return method


def cached_checkpoint(source: Path | str) -> Path:
    """The checkpoint in a directory; of a run, its first seed, and of ``RUN:SEAT`` a seat, exported to the cache.

    Raises ``UserError`` as :func:`export_checkpoint` does, and if there is no model.
    """
    directory, seat = split_seat(source)
    path = find_model(directory)
    if (path / "config.json").exists():
        return path
    run = load(path)
    digest = hashlib.sha256(run.spec.name.encode())
    for leaf in jax.tree.leaves(merge_adapters(_decoder(_lm_policy(run, None, seat)))):
        digest.update(np.asarray(leaf).tobytes())
    cached = cache_path("runs", digest.hexdigest()[:16])
    write_once(cached, lambda directory: export_checkpoint(run, directory, seat=seat))
    return cached


def merge_checkpoints(sources: Sequence[Path | str], weights: Sequence[float], out: Path | str) -> Path:
    """Write the weighted sum of the parameters of models of one architecture (a model soup) as a checkpoint.

    ``sources``: checkpoints, or runs, of which the first seed counts. Tokenizer and chat template are those of the
    first. Weights usually sum to 1; others are for task arithmetic, such as 1, 1 and -1 for ``a + b - base``.

    Raises:
        UserError: for models of different shapes, a number of weights that is not that of the models, and a directory
            that is not empty.
    """
    out = Path(out)
    if len(sources) < 2 or len(weights) != len(sources):
        raise UserError(f"{len(weights)} weights for {len(sources)} models: one for each of two or more")
    _require_empty(out)
    paths = [cached_checkpoint(source) for source in sources]
    models = [hf_weights.load_pretrained(path) for path in paths]
    for source, model in zip(sources[1:], models[1:], strict=True):
        if model.config != models[0].config:
            raise UserError(
                f"{source} is not of the same architecture as {sources[0]}: only equal shapes can be merged"
            )
    merged = weighted_sum(models, weights)
    with disk.as_user_error("the merged model", out):
        max_length = hf_weights.read_json(paths[0] / "config.json").get("max_position_embeddings")
        hf_weights.save_pretrained(merged, out, **({"max_length": max_length} if max_length else {}))
        for path in paths[0].iterdir():
            if path.is_file() and path.name not in {"config.json", "run.json"} and path.suffix != ".safetensors":
                shutil.copy(path, out / path.name)
        (out / "merged.json").write_text(
            json.dumps({str(source): weight for source, weight in zip(sources, weights, strict=True)}, indent=2)
        )
    return out
