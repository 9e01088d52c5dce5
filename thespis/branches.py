"""What a demonstrator did not do: branches of its conversations, in which another thing is said, and the world answers.

Early experience (Zhang et al., 2025): at states of an expert other actions are tried, and what follows on them is
learnt, without rewards. Differs: what is tried is what the demonstrator says where it does nothing but wander, any
utterance that has a form, in place of what the actor itself proposes, which here knows no words before it learns.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from thespis.core.errors import UserError
from thespis.core.keys import fold, key_of, per_index
from thespis.core.records import Transition
from thespis.data.conversations import turns_of
from thespis.data.datasets import Dataset
from thespis.envs import registry
from thespis.envs.text.task import Spoken
from thespis.tiny import demonstrated, talked


@runtime_checkable
class Wanders(Protocol):
    """A task whose demonstrator says anything in a share of its turns."""

    wandering: float


def branches_in(env: Any, count: int, each: int) -> Dataset:
    """``count`` conversations of a world's demonstrator and ``each`` branches of every one of them.

    A conversation is there as often as it has branches, so that either kind is drawn as often. A branch is cut: it does
    not end by itself. Raises ``UserError`` for a world whose demonstrator cannot wander.
    """
    world: Any = registry.compiled(env) if registry.resolve(env).kind == "compiled" else None
    if not isinstance(world, Spoken) or not isinstance(world.task, Wanders):
        raise UserError(f"{env}: branches are to be had in compiled text worlds whose demonstrator can wander")
    transcript, *by_turn = (np.asarray(x) for x in demonstrated(world, count))
    whole = turns_of(np.repeat(transcript, each, 0), *(np.repeat(x, each, 1) for x in by_turn))
    tried = _cut(turns_of(*(np.asarray(x) for x in branched(world, count, each))))
    steps = jax.tree.map(lambda *both: np.concatenate(both), whole, tried)
    return Dataset(world.spec, steps, (), {"env": world.spec.name, "method": "demonstrator, with branches"})


@eqx.filter_jit
def branched(world: Spoken, count: int, each: int, seed: int = 0) -> tuple[Array, Array, Array, Array]:
    """The conversations of :func:`~thespis.tiny.demonstrated` up to a turn, where another thing is said; ``each`` of
    every one of them, behind each other, with turns that are drawn uniformly from those that it has.
    """
    key, rows = fold(key_of(seed), "branches"), count * each
    turns = (demonstrated(world, count, seed)[2] >= 0).any(axis=-1).sum(axis=0)
    at = jnp.floor(jax.random.uniform(fold(key, "turn"), (rows,)) * jnp.repeat(turns, each)).astype("int32")
    astray: Any = dataclasses.replace(world, task=dataclasses.replace(world.task, wandering=1.0))  # pyright: ignore

    def say(state: Any, keys: Array, t: Array) -> Array:
        own = jax.vmap(world.demonstrated)(state, keys)
        other = jax.vmap(astray.demonstrated)(state, per_index(fold(key, "say", t), rows))
        return jnp.where((t == at)[:, None], other, own)

    return talked(world, count, seed, say, each, at)


def _cut(steps: Transition) -> Transition:
    return dataclasses.replace(steps, terminated=np.zeros_like(steps.terminated), truncated=steps.terminated)
