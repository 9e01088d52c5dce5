"""What a method that speaks needs before it begins: as many turns as its world allows, and a tiny model, taught.

A tiny model learns the demonstrations of its world by maximum likelihood, once; it is kept beside compiled programs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import tempfile
from collections.abc import Callable
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
from thespis.envs.host.scripts import Spelt
from thespis.envs.host.texts import Texts
from thespis.language import weights
from thespis.language.script import script_in
from thespis.language.tokens import words
from thespis.learners.crowd import one_of
from thespis.learners.voices import TINY, Origin, first_words, taught

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

    One that does not speak and learns from whole episodes without a limit is given that of the world. Raises
    ``UserError`` for a world that shows nothing to learn from.
    """
    if not isinstance(method, Speaks):
        return _limited(method, env)
    if env is None and method.origin.name == TINY:
        raise UserError("a tiny model is taught by its world: --env NAME, --model blank, or a checkpoint")
    if env is None:
        return method
    env = spelt(env, method)
    own = not isinstance(env, str | type) and isinstance(env, HostEnvironment)
    compiled = registry.resolve(env).kind == "compiled"
    world: Any = env if own else registry.compiled(env) if compiled else registry.host(env, 1)
    spec, feed, origin = world.spec, method.feed, method.origin
    if not own and not compiled:
        world.close()
    fitted: Any = method
    if spec.groups and isinstance(feed, Episodes):
        fitted = dataclasses.replace(fitted, roles=sum(group.count for group in spec.groups))
    if isinstance(feed, Episodes) and not feed.turns and spec.time_limit:
        fitted = dataclasses.replace(fitted, feed=dataclasses.replace(feed, turns=spec.time_limit))
    if spec.groups and origin.name == TINY:
        spec = one_of(spec, spec.groups[0])
    if origin.name == TINY and isinstance(spec.action, Text) and not origin.directory(spec).exists():
        _teach(origin, spec, demonstrations_of(env, world, origin.teaching.conversations))
    return fitted


def _limited(method: Method, env: Any) -> Method:
    feed: Any = method.feed
    if env is None or not isinstance(feed, Episodes) or feed.turns or registry.resolve(env).kind != "compiled":
        return method
    limit = registry.compiled(env).spec.time_limit
    return dataclasses.replace(method, feed=dataclasses.replace(feed, turns=limit or 0))  # pyright: ignore[reportArgumentType]


def demonstrations_of(env: Any, world: Any, count: int) -> tuple[Any, ...]:
    """What :func:`demonstrated` gives, of ``env``, one of whose worlds is ``world``.

    Raises ``UserError`` for a world that shows nothing to learn from.
    """
    if isinstance(world, Texts):
        with contextlib.closing(registry.host(env, SHOWN)) as worlds:
            return shown(worlds, count)
    if isinstance(world, Demonstrates):
        return demonstrated(world, count)
    raise UserError(f"{world.spec.name} shows nothing to learn from: --model blank or a checkpoint, and other data")


def spelt(env: Any, method: Method) -> Any:
    """The world, written as the method's checkpoint writes, if it has one and the world is one of strings."""
    made = not isinstance(env, str | type) and isinstance(env, HostEnvironment)
    if (
        env is None
        or made
        or not isinstance(method, Speaks)
        or method.origin.made
        or registry.resolve(env).kind != "host"
    ):
        return env
    return Spelt(env, functools.partial(script_in, method.origin.name))


def _teach(origin: Origin, spec: EnvSpec, examples: tuple[Any, ...]) -> None:
    teach = functools.partial(taught, lesson=origin.teaching)
    model, _ = jax.jit(teach)(first_words(origin, spec), *examples[:3], fold(key_of(0), "lesson"))
    directory = origin.directory(spec)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as beside:
        made = Path(beside) / "made"
        weights.save(model, made)
        words(spec.action.vocabulary.words).save(made)  # pyright: ignore
        with contextlib.suppress(OSError):  # another process was quicker
            made.rename(directory)


def demonstrations(world: Any, count: int, seed: int = 0) -> tuple[Array, Array, Array, Array]:
    """As :func:`demonstrated`, but the last are returns ``[row]``."""
    transcript, starts, said, reward = demonstrated(world, count, seed)
    return transcript, starts, said, reward.sum(axis=0)


@eqx.filter_jit
def demonstrated(world: Any, count: int, seed: int = 0) -> tuple[Array, Array, Array, Array]:
    """``count`` conversations of a world's demonstrator: transcripts, where utterances begin, what they are, rewards.

    In a world of many agents there are those of every seat. Shapes ``[row, length]``, ``[time, row]``,
    ``[time, row, utterance]`` (-1 behind the end), ``[time, row]``.
    """
    return talked(world, count, seed, lambda state, keys, t: jax.vmap(world.demonstrated)(state, keys))


def talked(
    world: Any, count: int, seed: int, say: Callable[..., PyTree], copies: int = 1, last: Any = None
) -> tuple[Array, Array, Array, Array]:
    """Conversations in which ``say(state, keys, turn)`` speaks, ``copies`` of each of ``count`` beginnings.

    Copies go the same way as long as the same is said. ``last``: the turn with which each row is left, if ever.
    """
    spec, key = world.spec, fold(key_of(seed), "demonstrations")
    none = jnp.full(count * copies, spec.time_limit)

    def keys(*address: Any) -> Array:
        return per_index(fold(key, *address), count)[jnp.arange(len(none)) // copies]

    def rows(tree: PyTree) -> Array:
        """In a world of many agents: those of a seat behind each other."""
        return tree[spec.groups[0].name].reshape(-1, tree[spec.groups[0].name].shape[-1]) if spec.groups else tree

    def tick(carry: Any, t: Array) -> Any:
        state, seen = carry
        said = say(state, keys("say", t), t)
        state, step = jax.vmap(world.step)(state, said, keys("step", t))
        over = step.terminated | step.truncated | (t >= (none if last is None else last))
        row = (seen >= 0).sum(-1), rows(said), step.reward, over, rows(step.observation)
        return (state, row[-1]), row

    state, begun = jax.vmap(world.reset, in_axes=(None, 0))(spec.params, keys("reset"))
    first = state, rows(begun.observation)
    _, (starts, said, reward, ended, seen) = jax.lax.scan(tick, first, jnp.arange(spec.time_limit))
    seats = starts.shape[1] // len(none)
    alive, reward = (jnp.repeat(x, seats, axis=1) for x in (first_episodes(ended), reward))
    final = alive.sum(axis=0) - 1
    transcript = seen[final, jnp.arange(starts.shape[1])]
    said = jnp.where(alive[..., None], said, -1)
    return transcript, starts, said, jnp.where(alive, reward, 0.0)


def hidden_in(world: Any, count: int, seed: int = 0) -> np.ndarray | None:
    """What critics alone are told of :func:`demonstrated`'s conversations, ``[row, ids]``; ``None``: nothing."""
    told, seen = world.spec.privileged, world.spec.observation
    if told is None:
        return None
    keys = per_index(fold(fold(key_of(seed), "demonstrations"), "reset"), count)
    begun: Any = jax.vmap(world.reset, in_axes=(None, 0))(world.spec.params, keys)[1]
    return np.asarray(begun.privileged[:, : told.length - seen.length])


def shown(worlds: Any, count: int) -> tuple[np.ndarray, ...]:
    """As :func:`demonstrated` of a user's worlds, :data:`SHOWN` at a time."""
    rounds = [_shown_once(worlds, seed) for seed in range(-(-count // SHOWN))]
    transcripts, *by_time = zip(*rounds, strict=True)
    return np.concatenate(transcripts)[:count], *(np.concatenate(each, axis=1)[:, :count] for each in by_time)


def _shown_once(worlds: Texts, seed: int) -> tuple[np.ndarray, ...]:
    spec: Any = worlds.spec
    seen = worlds.start([seed * SHOWN + i for i in range(SHOWN)]).observation
    going, whole = np.ones(SHOWN, bool), seen.copy()
    starts, said = (
        np.zeros((spec.time_limit, SHOWN), "int32"),
        np.full((spec.time_limit, SHOWN, spec.action.length), -1),
    )
    reward = np.zeros((spec.time_limit, SHOWN), "float32")
    for t in range(spec.time_limit):
        starts[t] = (seen >= 0).sum(axis=1)
        for i, ids in enumerate(worlds.demonstrated()):
            said[t, i, : len(ids)] = ids[: spec.action.length]
        step, following = worlds.step(said[t])
        said[t, ~going], reward[t] = -1, np.where(going, step.reward, 0.0)
        whole = np.where(going[:, None], step.observation, whole)
        going &= ~(step.terminated | step.truncated)
        seen = following.observation
    return whole, starts, said.astype("int32"), reward
