"""What is served: a checkpoint, or what a run has learnt."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from thespis.actors.language import Voice
from thespis.core.caching import cache
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.vocabulary import END, PAD
from thespis.language import weights
from thespis.language.adapters import merged, save_adapters
from thespis.language.chat import Template
from thespis.language.engine import Request
from thespis.language.local import Local, engine_of
from thespis.language.script import InTemplate
from thespis.language.steering import Unsteered
from thespis.language.tokens import words
from thespis.tiny import Speaks
from thespis.trained import Run

_CLOSED = (
    "{% for m in messages %}{{ m.content | trim }} {% if m.role == 'assistant' %}{{ '<end> ' }}"
    "{% elif not (m.content | trim).endswith('>') %}{{ '> ' }}{% endif %}{% endfor %}"
)
"""How worlds of few words write: each message ends with what asks for an answer."""


def model_in(directory: Path | str) -> Path:
    """Where the model of a directory is: in itself, in ``model`` in it, or in the run that it is.

    Raises ``UserError`` if there is none.
    """
    directory = Path(directory)
    for found in (directory, directory / "model"):
        if (found / "config.json").exists():
            return found
    if (directory / "run.json").exists():
        return directory
    raise UserError(
        f"{directory} is no checkpoint: it needs config.json, model.safetensors and tokenizer.json, in it or in "
        "model/, and it is no run"
    )


def engine_in(found: Path, *, dtype: str = "float32", rows: int = 8) -> Local:
    """The engine of what :func:`model_in` has found; of a run, the first seed. Raises ``UserError``."""
    if (found / "config.json").exists():
        return engine_of(found, dtype=dtype, rows=rows)
    from thespis import api

    return speaker_of(api.load(found), dtype=dtype, rows=rows)[0]


def exported(run: Run, out: Path | str, seed: int | None = None, *, adapters: bool = False) -> Path:
    """One training seed (the first if ``None``) of a run at its newest checkpoint, as a checkpoint for others to read.

    The tokenizer and template are those that the run began with; a world of few words gets a tokenizer of its words.
    ``adapters``: what PEFT reads, adapters alone; else they are merged into the model. Raises ``UserError`` for a run
    that does not speak or has learnt no adapters, or a directory that is not empty or cannot be written.
    """
    out = Path(out)
    try:
        if out.exists() and any(out.iterdir()):
            raise UserError(f"{out} is not empty: choose another directory")
        if adapters:
            base = run.method.origin.name  # pyright: ignore
            save_adapters(_voice(run, seed).model, out, base if Path(base).is_dir() else "")
            return out
        talker = speaker_of(run, seed)[0]
        weights.save(talker.model, out, longest=talker.longest)
        _save_words(run, talker, out)
    except OSError as error:
        raise UserError(f"cannot write a checkpoint to {out}: {error.strerror or error}") from error
    return out


def _save_words(run: Run, talker: Local, out: Path) -> None:
    """The tokenizer, the template, and what ends an answer."""
    source = run.spec.action.vocabulary.source  # pyright: ignore
    ends = {"eos_token_id": list(talker.tokenizer.stop), "pad_token_id": talker.tokenizer.pad}
    (out / "generation_config.json").write_text(json.dumps(ends))
    if source:
        for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"):
            if (Path(source) / name).exists():
                shutil.copy(Path(source) / name, out / name)
        return
    talker.tokenizer.save(out)
    told = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "pad_token": PAD}
    (out / "tokenizer_config.json").write_text(json.dumps(told | {"chat_template": _CLOSED}))


def speaker_of(run: Run, seed: int | None = None, *, dtype: str = "float32", rows: int = 8) -> tuple[Local, Request]:
    """One training seed (the first if ``None``) of a run at its newest checkpoint, and how it is asked in its world.

    Raises ``UserError`` for a run that does not speak, or that a critic steers.
    """
    policy = _voice(run, seed)
    known = run.spec.action.vocabulary  # pyright: ignore
    model = jax.tree.map(lambda x: jnp.asarray(x, dtype), merged(policy.model))
    model = dataclasses.replace(model, compute=dtype)
    request = Request(float(policy.sampling.temperature), length=policy.talking.utterance)
    if known.source:
        script = InTemplate(known.source)
        return Local(model, script.tokenizer, script.template, longest=script.longest, rows=rows), request
    tokenizer, template, longest = words(known.words), Template(_CLOSED), policy.talking.length
    return Local(model, tokenizer, template, longest=longest, rows=rows), request


def _voice(run: Run, seed: int | None) -> Voice:
    """What speaks. Raises ``UserError`` as :func:`speaker_of` does."""
    state = jax.tree.map(lambda x: x[0], run.states_of([run.config["seeds"][0] if seed is None else seed]))
    policy: Any = run.method.policy(state, Mode.SAMPLE)
    if not isinstance(policy, Voice):
        raise UserError(f"{run.path} was trained by {run.method.name}, whose actor does not speak")
    if not isinstance(policy.steering, Unsteered):
        raise UserError(f"{run.path} speaks steered by a critic, which engines cannot: thespis record, or evaluate")
    return policy


def heir(method: Any) -> Any:
    """The method; where its model is a run, what that has learnt (its first seed) is put aside as a checkpoint for it.

    Raises ``UserError`` as :func:`exported` does.
    """
    if not isinstance(method, Speaks) or not (Path(method.origin.name) / "run.json").exists():
        return method
    from thespis import api

    run = api.load(method.origin.name)
    digest = hashlib.sha256(run.spec.name.encode())
    for leaf in jax.tree.leaves(merged(_voice(run, None).model)):
        digest.update(np.asarray(leaf).tobytes())
    kept = cache("runs", digest.hexdigest()[:16])
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as beside:
            made = exported(run, Path(beside) / "made")
            with contextlib.suppress(OSError):  # another process was quicker
                made.rename(kept)
    return dataclasses.replace(method, model=str(kept))  # pyright: ignore
