"""What a method that speaks needs before it begins: as many turns as its world allows, and a tiny model, taught.

A tiny model learns the demonstrations of its world by maximum likelihood, once; it is kept beside compiled programs.
"""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from thespis.core.contracts import Environment, Method
from thespis.core.errors import UserError
from thespis.core.feeds import Episodes
from thespis.core.keys import fold, key_of, per_index
from thespis.core.spaces import Text
from thespis.data.stores import first_episodes
from thespis.envs import registry
from thespis.language import weights
from thespis.language.tokens import words
from thespis.learners.voices import LESSON, TINY, Origin, first_words, taught


@runtime_checkable
class Speaks(Protocol):
    """A method whose actor is a language model."""

    origin: Origin


@runtime_checkable
class Demonstrates(Protocol):
    """A world that shows how it may be done."""

    def demonstrated(self, state: PyTree, key: Key[Array, ""]) -> PyTree:
        """What a demonstrator does in a state."""
        ...


def prepared(method: Method, env: Any) -> Method:
    """The method, fitted to the world that it will speak in; a tiny model is taught if it has not been yet."""
    if env is None or not isinstance(method, Speaks) or registry.resolve(env).kind != "compiled":
        return method
    world = registry.compiled(env)
    feed: Any = method.feed
    if isinstance(feed, Episodes) and not feed.turns and world.spec.time_limit:
        fitted: Any = dataclasses.replace(method, feed=dataclasses.replace(feed, turns=world.spec.time_limit))  # pyright: ignore
        method = fitted
    if method.origin.name == TINY and isinstance(world.spec.action, Text):  # pyright: ignore
        _teach(method.origin, world)  # pyright: ignore
    return method


def _teach(origin: Origin, world: Environment) -> None:
    spec = world.spec
    directory = origin.directory(spec)
    if directory.exists():
        return
    if not isinstance(world, Demonstrates):
        raise UserError(f"{spec.name} has no demonstrations to teach a tiny model: --model DIR, or --set model=blank")
    lesson = jax.jit(lambda key: _lesson(origin, world, key))
    model, _ = lesson(key_of(0))
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as beside:
        weights.save(model, beside)
        vocabulary = spec.action.vocabulary  # pyright: ignore
        words(vocabulary.words).save(beside)
        shutil.copytree(beside, f"{beside}-done")
        try:
            Path(f"{beside}-done").rename(directory)
        except OSError:  # another process was quicker
            shutil.rmtree(f"{beside}-done")


def _lesson(origin: Origin, world: Any, key: Key[Array, ""]) -> Any:
    transcript, starts, said, _ = demonstrations(world, LESSON.conversations, fold(key, "demonstrations"))
    return taught(first_words(origin, world.spec), transcript, starts, said, fold(key, "lesson"))


def demonstrations(world: Any, count: int, key: Key[Array, ""]) -> tuple[Array, Array, Array, Array]:
    """``count`` conversations of a world's demonstrator: transcripts, where utterances begin, what they are, returns.

    Shapes ``[row, length]``, ``[time, row]``, ``[time, row, utterance]`` (-1 behind the end), ``[row]``.
    """
    spec = world.spec
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
