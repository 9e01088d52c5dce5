"""Build datasets from a dataset directory, a file of chats, or an environment's demonstrator."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, Transition
from thespis.core.spaces import Text
from thespis.data.arrow_tables import is_saved_table
from thespis.data.datasets import Dataset, read_dataset
from thespis.data.dialogues import add_privileged, dialogue_transitions
from thespis.training.method_setup import LMMethod

DEMONSTRATIONS, BRANCHES, JSONL_SUFFIX = "demonstrations", "branches", ".jsonl"
DEFAULT_DIALOGUES, DEFAULT_BRANCHES = 512, 8


def build_dataset(data: str, env: Any, method: Any) -> Dataset:
    """Build the dataset that ``data`` names, for a method that will train in ``env`` (``None``: no environment).

    ``demonstrations:N``: N dialogues of the environment's demonstrator; ``demonstrations:N:ENV``: of another
    environment's, for instance where the own demonstrator is no expert. ``branches:NxK``: N demonstrations of the
    environment and K counterfactual branches of each (:mod:`thespis.training.counterfactual_branches`). ``FILE.jsonl``,
    or, for a language model, a directory that the library ``datasets`` saved: chats, preference pairs or rated answers
    in plain text (:mod:`thespis.language.chat_files`), tokenized by the method's checkpoint. Anything else is what
    :func:`~thespis.data.datasets.read_dataset` reads; where it does not say its spaces, they are those of ``env``. A
    method that learns all dialogues as demonstrations gets the chosen answers of pairs, and the good ones of rated
    answers, alone.

    Raises:
        UserError: if the dataset cannot be built; for files the line is named.
    """
    dataset, name = _read_source(data, env, method), method.name
    if not isinstance(method, LMMethod):
        return dataset
    from thespis.learners.language.lm_offline import LMOffline
    from thespis.training.chat_datasets import only_demonstrations

    uses_returns = method.feed.has_pairs or (isinstance(method, LMOffline) and method.uses_returns)
    return dataset if uses_returns else only_demonstrations(dataset, name)


def read_beside(data: str, env: Any, method: Any) -> tuple[Transition, int]:
    """Steps ``[time]`` and group size of a dataset that is sampled beside an environment's experience.

    Raises ``UserError`` if it cannot be read, or its spaces are not those of ``env``.
    """
    dataset, spec = build_dataset(data, env, method), _env_spec(env)
    if spec is not None:
        own = dataset.spec
        for what, found, wanted in (
            ("observations", own.observation_space, spec.observation_space),
            ("actions", own.action_space, spec.action_space),
        ):
            if found != wanted:
                raise UserError(f"{data} has {what} of {found}, and those of {spec.name} are {wanted}")
    return dataset.steps, dataset.group_size


def _read_source(data: str, env: Any, method: Any) -> Dataset:
    if data.endswith(JSONL_SUFFIX) or (isinstance(method, LMMethod) and is_saved_table(Path(data))):
        return _read_chats(Path(data), method)
    if max_tokens(method.feed):
        raise UserError(f"feed.max_tokens cuts chats of a file, and --data {data} is none: leave it out")
    name, _, argument = data.partition(":")
    if name == DEMONSTRATIONS:
        count, _, other_env = argument.partition(":")
        if not (other_env or env is not None) or (count and not count.isdecimal()):
            raise UserError(
                f"--data {data}: it is {DEMONSTRATIONS}:N, N conversations, and the environment is --env NAME"
            )
        return demonstration_dataset(other_env or env, int(count or DEFAULT_DIALOGUES))
    if name == BRANCHES:
        from thespis.training.counterfactual_branches import branch_dataset

        match = re.fullmatch(r"(\d*)(?:x(\d+))?", argument)
        if env is None or match is None:
            raise UserError(f"--data {data}: it is {BRANCHES}:NxK, K branches of N conversations, in --env NAME")
        return branch_dataset(env, int(match[1] or DEFAULT_DIALOGUES), int(match[2] or DEFAULT_BRANCHES))
    return read_dataset(data, lambda: _env_spec(env))


@runtime_checkable
class CutsChats(Protocol):
    """A feed of chats that are cut or left out beyond ``max_tokens``; 0: no limit."""

    max_tokens: int


def max_tokens(feed: Any) -> int:
    """The largest number of tokens of a chat; 0: no limit."""
    return feed.max_tokens if isinstance(feed, CutsChats) else 0


def _env_spec(env: Any) -> EnvSpec | None:
    """The spec of an environment; ``None`` without one."""
    from thespis.envs import registry

    if env is None:
        return None
    if registry.resolve_env(env).kind == "compiled":
        return registry.make_compiled(env).spec
    with contextlib.closing(registry.make_host(env, 1)) as envs:
        return envs.spec


def _read_chats(path: Path, method: Any) -> Dataset:
    if not isinstance(method, LMMethod) or method.model_init.from_scratch:
        raise UserError(f"{path} is plain text, which a checkpoint's tokenizer must encode: --model DIR")
    from thespis.language.checkpoints import checkpoint_directory

    directory = method.model_init.name_or_path
    if not checkpoint_directory(directory).is_dir():
        from thespis.language.hf_weights import missing_checkpoint_message

        raise UserError(missing_checkpoint_message(directory))
    from thespis.training.chat_datasets import chat_dataset

    return chat_dataset(path, directory, max_tokens(method.feed))


def resolve_spec(dataset: Dataset, env: Any) -> EnvSpec:
    """Resolve the environment spec for learning from a dataset and then acting in ``env``.

    It is the environment's own, with its dialogue sizes. Raises ``UserError`` if the vocabularies differ, or the
    dataset's responses are longer than the environment allows.
    """
    spec = dataset.spec
    if not isinstance(spec.action_space, Text) or (env_spec := _env_spec(env)) is None:
        return spec
    if not isinstance(env_spec.action_space, Text) or env_spec.action_space.vocabulary != spec.action_space.vocabulary:
        raise UserError(
            f"the dataset is of {spec.name}, which has another vocabulary than {env_spec.name}: leave out --env"
        )
    if spec.action_space.max_length > env_spec.action_space.max_length:
        raise UserError(
            f"the dataset's responses have {spec.action_space.max_length} tokens, {env_spec.name} allows "
            f"{env_spec.action_space.max_length}"
        )
    return env_spec


def demonstration_dataset(env: Any, num_dialogues: int) -> Dataset:
    """Build a dataset from an environment's demonstrator, deterministic. Raises ``UserError`` if there is none."""
    from thespis.envs import registry
    from thespis.training.demonstrations import collect_demonstrations, privileged_tokens

    compiled = registry.resolve_env(env).kind == "compiled"
    environment: Any = registry.make_compiled(env) if compiled else registry.make_host(env, 1)
    try:
        steps = dialogue_transitions(
            *(np.asarray(column) for column in collect_demonstrations(env, environment, num_dialogues))
        )
        privileged = privileged_tokens(environment, num_dialogues)
        steps = steps if privileged is None else add_privileged(steps, privileged)
    finally:
        if not compiled:
            environment.close()
    return Dataset(environment.spec, steps, (), {"env": environment.spec.name, "method": "demonstrator"})
