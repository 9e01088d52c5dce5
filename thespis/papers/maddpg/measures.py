"""Measures of communication: words that a trained speaker says, by target."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.records import View
from thespis.envs.registry import make_compiled
from thespis.evaluation.run import Run
from thespis.evidence.measures import Measure
from thespis.papers.maddpg.envs import LANDMARKS, SpeakerListener


def unnamed_targets() -> Measure:
    """Number of targets minus the number of different words that the greedy speaker says for them.

    For the speaker-listener environment: 0 if every target has a word of its own.
    """
    return Measure("number of targets without a word of their own", _unnamed_targets, False, bounds=(0.0, 2.0))


def _unnamed_targets(run: Run) -> Float[np.ndarray, " seed"]:
    words = _greedy_words(run)
    return np.array([len(LANDMARKS) - len(set(row)) for row in words.tolist()], np.float64)


def _greedy_words(run: Run) -> Int[np.ndarray, "seed target"]:
    """The word that each seed's greedy speaker says for each target."""
    env: Any = make_compiled(run.config["env"])
    if not isinstance(env, SpeakerListener):
        raise UserError(f"{run.path} was not trained in the speaker-listener environment: its agents say no words")
    count = len(LANDMARKS)
    observations = {"speaker": jnp.eye(count)[:, None], "listener": jnp.zeros((count, 1, 2 + count))}
    view = View(observations, alive={name: jnp.ones((count, 1), bool) for name in observations})

    def seed_words(state: Any) -> Any:
        policy = run.method.policy(state, Mode.EXPLOIT)
        action, _, _ = run.method.act(policy, run.method.init_memory(policy, count), view, jax.random.key(0))
        return action["speaker"][:, 0]

    return np.asarray(jax.vmap(seed_words)(run.states))
