"""Where a dataset comes from: a directory, a file of conversations, or the demonstrator of the world itself."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import re
import tempfile
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from thespis.core.errors import UserError
from thespis.core.records import EnvSpec
from thespis.core.spaces import Text
from thespis.data.conversations import knowing, turns_of
from thespis.data.datasets import Dataset, read_dataset, to_columns, write_dataset
from thespis.learners.imitating import KEPT, set_aside
from thespis.learners.speaking import Speaking
from thespis.tiny import Speaks, demonstrations_of, hidden_in

SHOWN, BRANCHES, LINES = "demonstrations", "branches", ".jsonl"
COUNT, EACH = 512, 8


@runtime_checkable
class BesideExperts(Protocol):
    """What is made of conversations beside those of experts, which ``data`` names as ``--data`` does."""

    data: str


def dataset_of(data: str, env: Any, method: Any) -> Dataset:
    """The dataset that ``data`` names, for a method that will learn in ``env`` (or nowhere: ``None``).

    ``demonstrations:N``: N conversations of the world's demonstrator; ``demonstrations:N:WORLD``: of another world's,
    such as an expert's where the world's own is none. ``branches:NxK``: N conversations of the world's demonstrator and
    K branches of each, where another thing is said (:mod:`thespis.branches`). ``FILE.jsonl``: conversations, pairs or
    judged answers in plain text (:mod:`thespis.language.written`), in the words of the method's checkpoint. Else what
    :func:`~thespis.data.datasets.read_dataset` reads.

    Raises:
        UserError: if it cannot be had; a line of a file is named.
    """
    name, _, asked = data.partition(":")
    if name == SHOWN:
        count, _, other = asked.partition(":")
        if not (other or env is not None) or (count and not count.isdecimal()):
            raise UserError(f"--data {data}: it is {SHOWN}:N, N conversations, and the world is --env NAME")
        return shown_in(other or env, int(count or COUNT))
    if name == BRANCHES:
        from thespis.branches import branches_in

        found = re.fullmatch(r"(\d*)(?:x(\d+))?", asked)
        if env is None or found is None:
            raise UserError(f"--data {data}: it is {BRANCHES}:NxK, K branches of N conversations, in --env NAME")
        return branches_in(env, int(found[1] or COUNT), int(found[2] or EACH))
    if not data.endswith(LINES):
        return read_dataset(data)
    directory = method.origin.name if isinstance(method, Speaks) else ""
    if not Path(directory).is_dir() or not directory:
        raise UserError(f"{data} is plain text, and the words are those of a checkpoint: --model DIR")
    return from_lines(Path(data), directory)


def with_experts(method: Any, env: Any) -> Any:
    """The method; if it learns beside experts they are looked up, and put aside if they are not a dataset yet.

    Raises ``UserError`` as :func:`dataset_of` and :func:`spec_for` do.
    """
    if not isinstance(method, Speaking) or not isinstance(method.experience, BesideExperts):
        return method
    part: Any = method.experience
    if part.data.startswith(KEPT):
        return method
    found = dataset_of(part.data, env, method)
    spec_for(found, env)
    if Path(part.data).is_dir():
        return method
    columns = to_columns(found.spec, found.steps)
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(columns[name]).tobytes() for name in sorted(columns)))
    name = digest.hexdigest()[:16]
    if not set_aside(name).exists():
        told = found.about | {"observation": found.spec.observation, "action": found.spec.action}
        set_aside(name).parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=set_aside(name).parent) as beside:
            write_dataset(Path(beside) / "made", columns, told | {"time_limit": found.spec.time_limit})
            with contextlib.suppress(OSError):  # another process was quicker
                (Path(beside) / "made").rename(set_aside(name))
    return dataclasses.replace(method, experience=dataclasses.replace(part, data=KEPT + name))


def spec_for(dataset: Dataset, env: Any) -> EnvSpec:
    """What a method is told of a dataset that it will talk in ``env`` after: the world's sizes of conversations.

    Raises ``UserError`` if the dataset is of other words, or of longer utterances than the world hears.
    """
    from thespis.envs import registry

    spec = dataset.spec
    if env is None or not isinstance(spec.action, Text):
        return spec
    if registry.resolve(env).kind == "compiled":
        world = registry.compiled(env).spec
    else:
        with contextlib.closing(registry.host(env, 1)) as worlds:
            world = worlds.spec
    if not isinstance(world.action, Text) or world.action.vocabulary != spec.action.vocabulary:
        raise UserError(f"the dataset is of {spec.name}, which has other words than {world.name}: leave out --env")
    if spec.action.length > world.action.length:
        raise UserError(
            f"the dataset's utterances have {spec.action.length} ids, {world.name} hears {world.action.length}"
        )
    return world


def shown_in(env: Any, count: int) -> Dataset:
    """Conversations of a world's demonstrator, always the same. Raises ``UserError`` for a world without one."""
    from thespis.envs import registry

    compiled = registry.resolve(env).kind == "compiled"
    world: Any = registry.compiled(env) if compiled else registry.host(env, 1)
    try:
        steps = turns_of(*(np.asarray(each) for each in demonstrations_of(env, world, count)))
        hidden = hidden_in(world, count)
        steps = steps if hidden is None else knowing(steps, hidden)
    finally:
        if not compiled:
            world.close()
    return Dataset(world.spec, steps, (), {"env": world.spec.name, "method": "demonstrator"})


def from_lines(path: Path, directory: str) -> Dataset:
    """The conversations of a file, as a checkpoint's tokenizer and template have them."""
    from thespis.language.script import InTemplate
    from thespis.language.written import read_lines

    script = InTemplate(directory)
    talks, together = read_lines(path, script.template, script.tokenizer)
    rows, turns = len(talks), max(len(talk.said) for talk in talks)
    utterance = max(len(ids) for talk in talks for ids in talk.said)
    transcript = np.full((rows, max(len(talk.tokens) for talk in talks)), -1, "int32")
    starts, reward = np.zeros((turns, rows), "int32"), np.zeros((turns, rows), "float32")
    said = np.full((turns, rows, utterance), -1, "int32")
    for i, talk in enumerate(talks):
        transcript[i, : len(talk.tokens)] = talk.tokens
        for t, (start, ids, earned) in enumerate(zip(talk.starts, talk.said, talk.rewards, strict=True)):
            starts[t, i], said[t, i, : len(ids)], reward[t, i] = start, ids, earned
    known, heard = script.vocabulary, max(talk.news for talk in talks)
    spec = EnvSpec(path.stem, Text(transcript.shape[1], known, heard), Text(utterance, known), time_limit=turns)
    about = {"env": path.stem, "together": together}
    return Dataset(spec, jax.tree.map(np.asarray, turns_of(transcript, starts, said, reward)), (), about)
