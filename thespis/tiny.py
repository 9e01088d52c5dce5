"""What a method that speaks needs before it begins: as many turns as its world allows, and a tiny model, taught.

A tiny model learns the demonstrations of its world by maximum likelihood, once; it is kept beside compiled programs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from thespis.core.contracts import HostEnvironment, Method
from thespis.core.errors import UserError
from thespis.core.feeds import Episodes
from thespis.core.keys import fold, key_of, per_index
from thespis.core.records import EnvSpec
from thespis.core.spaces import Text
from thespis.data.stores import first_episodes
from thespis.envs import registry
from thespis.envs.host.texts import Texts
from thespis.language import weights
from thespis.language.tokens import words
from thespis.learners.voices import LESSON, TINY, Origin, first_words, taught

SHOWN = 64
"""Worlds of a user's that show how it may be done, side by side."""


@runtime_checkable
class Speaks(Protocol):
    """A method whose actor is a language model."""

    feed: Any
    origin: Origin


@runtime_checkable
class Demonstrates(Protocol):
    """A world that shows how it may be done."""

    def demonstrated(self, state: PyTree, key: Key[Array, ""]) -> PyTree:
        """What a demonstrator does in a state."""
        ...


def prepared(method: Method, env: Any) -> Method:
    """The method, fitted to the world that it will speak in; a tiny model is taught if it has not been yet.

    Raises ``UserError`` for a world that shows nothing to learn from.
    """
    if env is None or not isinstance(method, Speaks):
        return method
    compiled = registry.resolve(env).kind == "compiled"
    world: Any = registry.compiled(env) if compiled else registry.host(env, SHOWN)
    try:
        spec, feed, origin = world.spec, method.feed, method.origin
        fitted: Any = method
        if isinstance(feed, Episodes) and not feed.turns and spec.time_limit:
            fitted = dataclasses.replace(fitted, feed=dataclasses.replace(feed, turns=spec.time_limit))
        if origin.name == TINY and isinstance(spec.action, Text) and not origin.directory(spec).exists():
            if isinstance(world, Texts):
                examples = _shown(world)
            elif isinstance(world, Demonstrates):
                examples = demonstrations(world, LESSON.conversations)
            else:
                raise UserError(f"{spec.name} shows nothing to teach a tiny model by: --model blank, or a checkpoint")
            _teach(origin, spec, examples)
        return fitted
    finally:
        if isinstance(world, HostEnvironment):
            world.close()


def _teach(origin: Origin, spec: EnvSpec, examples: tuple[Any, ...]) -> None:
    model, _ = jax.jit(taught)(first_words(origin, spec), *examples[:3], fold(key_of(0), "lesson"))
    directory = origin.directory(spec)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as beside:
        made = Path(beside) / "made"
        weights.save(model, made)
        words(spec.action.vocabulary.words).save(made)  # pyright: ignore
        with contextlib.suppress(OSError):  # another process was quicker
            made.rename(directory)


@eqx.filter_jit
def demonstrations(world: Any, count: int, seed: int = 0) -> tuple[Array, Array, Array, Array]:
    """``count`` conversations of a world's demonstrator: transcripts, where utterances begin, what they are, returns.

    Shapes ``[row, length]``, ``[time, row]``, ``[time, row, utterance]`` (-1 behind the end), ``[row]``.
    """
    spec, key = world.spec, fold(key_of(seed), "demonstrations")
    state, begun = jax.vmap(world.reset, in_axes=(None, 0))(spec.params, per_index(fold(key, "reset"), count))

    def tick(carry: Any, t: Array) -> Any:
        state, seen = carry
        said = jax.vmap(world.demonstrated)(state, per_index(fold(key, "say", t), count))
        state, step = jax.vmap(world.step)(state, said, per_index(fold(key, "step", t), count))
        row = (seen >= 0).sum(-1), said, step.reward, step.terminated | step.truncated, step.observation
        return (state, step.observation), row

    _, (starts, said, reward, ended, seen) = jax.lax.scan(tick, (state, begun.observation), jnp.arange(spec.time_limit))
    alive = first_episodes(ended)
    last = alive.sum(axis=0) - 1
    transcript = seen[last, jnp.arange(count)]
    said = jnp.where(alive[..., None], said, -1)
    return transcript, starts, said, jnp.where(alive, reward, 0.0).sum(axis=0)


def _shown(worlds: Texts) -> tuple[np.ndarray, ...]:
    """The same of a user's worlds, :data:`SHOWN` at a time."""
    rounds = [_shown_once(worlds, seed) for seed in range(LESSON.conversations // SHOWN)]
    transcripts, starts, said = zip(*rounds, strict=True)
    return np.concatenate(transcripts), np.concatenate(starts, axis=1), np.concatenate(said, axis=1)


def _shown_once(worlds: Texts, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    spec: Any = worlds.spec
    seen = worlds.start([seed * SHOWN + i for i in range(SHOWN)]).observation
    going, whole = np.ones(SHOWN, bool), seen.copy()
    starts, said = (
        np.zeros((spec.time_limit, SHOWN), "int32"),
        np.full((spec.time_limit, SHOWN, spec.action.length), -1),
    )
    for t in range(spec.time_limit):
        starts[t] = (seen >= 0).sum(axis=1)
        for i, ids in enumerate(worlds.demonstrated()):
            said[t, i, : len(ids)] = ids[: spec.action.length]
        step, following = worlds.step(said[t])
        said[t, ~going] = -1
        whole = np.where(going[:, None], step.observation, whole)
        going &= ~(step.terminated | step.truncated)
        seen = following.observation
    return whole, starts, said.astype("int32")
