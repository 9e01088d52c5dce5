"""Learners who are talked to: the trainings in which a speaker learns, and how much what it says matters to others."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thespis.core.contracts import Mode
from thespis.core.feeds import Rollouts
from thespis.core.keys import fold, key_of, per_index
from thespis.core.records import View
from thespis.envs.compiled.cheap_talk import CheapTalk
from thespis.envs.compiled.gymnax import Gymnax
from thespis.envs.compiled.trainings import Trainings
from thespis.envs.registry import compiled
from thespis.evidence.measures import Measure
from thespis.methods.online.ppo import PPO
from thespis.trained import Run

LEARNER = PPO(
    learning_rate=5e-3, entropy_weight=0.01, hidden=(32,), epochs=4, minibatch=128, feed=Rollouts(length=64, envs=8)
)
"""Quick and small: what is learnt from 8,192 steps."""
HARM = Trainings(CheapTalk(Gymnax("CartPole-v1")), LEARNER)
"""The speaker earns what the learner does not."""
HELP = Trainings(CheapTalk(Gymnax("CartPole-v1")), LEARNER, sign=1.0)
"""The speaker earns what the learner does."""
FRESH = 16
"""Learners that nobody has spoken to while the speaker learnt, the same for all speakers."""


def learners_return() -> Measure:
    """Mean return of fresh learners over their whole training, spoken to by the speaker that was learnt."""
    return Measure("mean training return of fresh learners", lambda run: _returns("learnt", run))


def beyond(speaker: str, sign: float = 1.0) -> Measure:
    """``sign`` times how much more the same learners earn than with a ``silent`` or a ``random`` speaker."""
    word = "gained" if sign > 0 else "lost"

    def of(run: Run) -> Float[np.ndarray, " seed"]:
        return sign * (_returns("learnt", run) - _returns(speaker, run))

    return Measure(f"mean training return that fresh learners have {word} to a {speaker} speaker", of)


@functools.cache
def _returns(speaker: str, run: Run) -> Float[np.ndarray, " seed"]:
    world: Any = compiled(run.config["env"])
    draw = jax.vmap(lambda seed: jax.random.normal(fold(key_of(seed), "speaker"), (world.world.parameters,)))
    learnt = jax.vmap(lambda state: _said(run, state))(run.states)
    speakers = {"learnt": learnt, "silent": jnp.zeros_like(learnt), "random": draw(jnp.arange(len(learnt)))}
    keys = per_index(fold(key_of(0), "fresh"), FRESH)
    of_all = jax.vmap(world.returns, in_axes=(None, 0))
    found = jax.jit(lambda chosen: jax.lax.map(lambda one: of_all(one, keys), chosen))(speakers[speaker])
    return np.asarray(found).mean(axis=(1, 2))


def _said(run: Run, state: Any) -> Array:
    policy = run.method.policy(state, Mode.EXPLOIT)
    return run.method.act(policy, run.method.begin(policy, 1), View(jnp.zeros((1, 1))), key_of(0))[0][0]
