"""Counterfactual branches of demonstrations: at one turn another response is given, and the environment answers.

Early experience (Zhang et al., 2025): at an expert's states other actions are tried, and their consequences are learned
without rewards. Differs from the paper: the alternative response is sampled from the demonstrator at its highest noise
(any well-formed response), not proposed by the actor itself, which here knows no words before it learns.
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
from thespis.core.records import Transition
from thespis.data.datasets import Dataset
from thespis.data.dialogues import dialogue_transitions
from thespis.envs import registry
from thespis.envs.text.task import TextEnv
from thespis.runtime.keys import fold, indexed_keys, seed_key
from thespis.training.demonstrations import rollout_dialogues, sample_demonstrations


@runtime_checkable
class NoisyExpert(Protocol):
    """Task whose demonstrator replies at random in a fraction ``demonstrator_noise`` of its turns."""

    demonstrator_noise: float


def branch_dataset(env: Any, num_dialogues: int, num_branches: int) -> Dataset:
    """Build a dataset of ``num_dialogues`` demonstrations and ``num_branches`` counterfactual branches of each.

    Each demonstration is repeated as often as it has branches, so that both kinds are sampled equally often. A branch
    is marked as truncated, not terminated. Raises ``UserError`` for an environment whose demonstrator has no noise.
    """
    environment: Any = registry.make_compiled(env) if registry.resolve_env(env).kind == "compiled" else None
    if not isinstance(environment, TextEnv) or not isinstance(environment.task, NoisyExpert):
        raise UserError(f"{env}: branches need a compiled text environment whose demonstrator has noise")
    transcript, *by_turn = (np.asarray(x) for x in sample_demonstrations(environment, num_dialogues))
    whole = dialogue_transitions(
        np.repeat(transcript, num_branches, 0), *(np.repeat(x, num_branches, 1) for x in by_turn)
    )
    branched = _truncate(
        dialogue_transitions(*(np.asarray(x) for x in sample_branches(environment, num_dialogues, num_branches)))
    )
    steps = jax.tree.map(lambda *both: np.concatenate(both), whole, branched)
    return Dataset(environment.spec, steps, (), {"env": environment.spec.name, "method": "demonstrator, with branches"})


@eqx.filter_jit
def sample_branches(
    env: TextEnv, num_dialogues: int, num_branches: int, seed: int = 0
) -> tuple[Array, Array, Array, Array]:
    """Sample counterfactual branches: demonstrations up to one turn, where a noisy response is given.

    There are ``num_branches`` of each dialogue, in adjacent rows. The turns are sampled uniformly from the
    dialogue's own.
    """
    key, rows = fold(seed_key(seed), "branches"), num_dialogues * num_branches
    turns = (sample_demonstrations(env, num_dialogues, seed)[2] >= 0).any(axis=-1).sum(axis=0)
    branch_turn = jnp.floor(jax.random.uniform(fold(key, "turn"), (rows,)) * jnp.repeat(turns, num_branches)).astype(
        "int32"
    )
    noisy_env: Any = dataclasses.replace(env, task=dataclasses.replace(env.task, demonstrator_noise=1.0))  # pyright: ignore

    def respond(state: Any, keys: Array, t: Array) -> Array:
        expert = jax.vmap(env.demonstrator_action)(state, keys)
        noisy = jax.vmap(noisy_env.demonstrator_action)(state, indexed_keys(fold(key, "say", t), rows))
        return jnp.where((t == branch_turn)[:, None], noisy, expert)

    return rollout_dialogues(env, num_dialogues, seed, respond, num_branches, branch_turn)


def _truncate(steps: Transition) -> Transition:
    return dataclasses.replace(steps, terminated=np.zeros_like(steps.terminated), truncated=steps.terminated)
