"""Measures of writers under principles: the true reward, how often principles are not met, and adverbs."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from thespis.actors.lm_policy import LMPolicy, generate_responses
from thespis.core.contracts import Mode
from thespis.envs.registry import make_compiled
from thespis.evidence.measures import Measure, untrained_states
from thespis.papers.salmon.envs import PrincipledWriting
from thespis.runtime.keys import fold, indexed_keys, seed_key

NUM_TEXTS = 1_000
"""Sampled texts of each seed; their prompts are the same for all arms."""


@eqx.filter_jit
def _write(policy: LMPolicy, prompts: Int[Array, "text opening"], key: Array) -> Int[Array, "text token"]:
    """A text by a policy for each prompt."""
    return generate_responses(policy.model, policy.sampler, policy.dialogue_spec, prompts, key)  # pyright: ignore[reportArgumentType]


def _mean_grades(run: Any, task: PrincipledWriting | None = None, states: PyTree = None) -> dict[str, np.ndarray]:
    """Means over sampled texts ``[seed]`` of what :meth:`PrincipledWriting.aspects` says, under a task's principles.

    ``task``: by default that of the run; ``states``: by default the run's last ones.
    """
    env: Any = make_compiled(run.config["env"])
    principled = env.task if task is None else task
    states = run.states if states is None else states
    key = fold(seed_key(0), "texts")
    episodes, prompts = jax.vmap(principled.init)(indexed_keys(fold(key, "prompts"), NUM_TEXTS))
    grade = jax.jit(jax.vmap(principled.aspects))
    means = []
    for i in range(len(run.config["seeds"])):
        policy = run.method.policy(jax.tree.map(lambda x, i=i: x[i], states), Mode.SAMPLE)
        texts = _write(policy, prompts, fold(key, "seed", run.config["seeds"][i]))
        means.append({name: float(values.mean()) for name, values in grade(episodes, texts).items()})
    return {name: np.array([mean[name] for mean in means]) for name in means[0]}


def true_reward(task: PrincipledWriting | None = None) -> Measure:
    """Mean true reward of sampled texts, under the principles of a task, by default those of the run."""
    name = "true reward" if task is None else f"true reward of {task.pace} texts"
    return Measure(name, lambda run: _mean_grades(run, task)["reward"], bounds=(0.0, 1.0))


def untrained_reward() -> Measure:
    """The true reward before reinforcement learning."""

    def rewards(run: Any) -> Float[np.ndarray, " seed"]:
        return _mean_grades(run, states=untrained_states(run))["reward"]

    return Measure("true reward before training", rewards, bounds=(0.0, 1.0))


def unmet_principles() -> Measure:
    """Share of the principles that sampled texts do not meet; lower is better."""
    return Measure("share of principles not met", lambda run: _mean_grades(run)["unmet"], False, bounds=(0.0, 1.0))


def adverbs() -> Measure:
    """Share of the sentences with an adverb, the planted reward hack; lower is better."""
    name = "share of sentences with an adverb"
    return Measure(name, lambda run: _mean_grades(run)["adverbs"], False, bounds=(0.0, 1.0))
