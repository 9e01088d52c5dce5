"""Measures of fine-tuned writers: the true reward of their texts, before and after they learn from comparisons."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PyTree

from thespis.core.contracts import Mode
from thespis.envs.registry import make_compiled
from thespis.envs.text.task import TextEnv
from thespis.envs.text.writing import Writing
from thespis.evidence.measures import Measure, play_in
from thespis.runtime.keys import seed_key

NUM_TEXTS = 1_000
"""Texts of each seed; their prompts are the same for all arms."""
TRUE_REWARD_ENV = TextEnv(Writing())


def _true_rewards(run: Any, states: PyTree, mode: Mode = Mode.SAMPLE) -> Float[np.ndarray, " seed"]:
    """Mean true reward of texts that the models of ``states`` write."""
    return play_in(run, TRUE_REWARD_ENV, NUM_TEXTS, mode, "texts", states=states).episode_returns.mean(axis=1)


def _with_models(states: PyTree, models: PyTree) -> PyTree:
    return eqx.tree_at(lambda state: state.model, states, models)


def true_reward(mode: Mode = Mode.SAMPLE) -> Measure:
    """Mean true reward of sampled texts; with ``Mode.EXPLOIT``, of greedy ones."""
    name = "true reward" if mode is Mode.SAMPLE else "true reward of greedy texts"
    return Measure(name, lambda run: _true_rewards(run, run.states, mode), bounds=(0.0, 1.0))


def base_reward() -> Measure:
    """The true reward of the model before fine-tuning."""

    def rewards(run: Any) -> Float[np.ndarray, " seed"]:
        method: Any = run.method
        spec = make_compiled(run.config["env"]).spec
        model = jax.jit(lambda key: method.model_init.init_from(spec, key))(seed_key(0))
        num_seeds = len(run.config["seeds"])
        models = jax.tree.map(lambda x: jnp.broadcast_to(x, (num_seeds, *x.shape)), model)
        return _true_rewards(run, _with_models(run.states, models))

    return Measure("true reward of the base model", rewards, bounds=(0.0, 1.0))


def reward_gain() -> Measure:
    """How much the true reward has grown since fine-tuning, whose model is the reference."""

    def gains(run: Any) -> Float[np.ndarray, " seed"]:
        return _true_rewards(run, run.states) - _true_rewards(run, _with_models(run.states, run.states.reference))

    return Measure("gain in true reward since fine-tuning", gains)
