"""Means of a task's aspects over texts that a finished run's model samples, for measures of single-turn text tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.actors.lm_policy import LMPolicy, generate_responses
from thespis.core.contracts import Mode
from thespis.envs.registry import make_compiled
from thespis.evidence.measures import Measure, untrained_states
from thespis.runtime.keys import fold, indexed_keys, seed_key

NUM_TEXTS = 1_000
"""Sampled texts of each seed; their prompts are the same for all arms."""


@runtime_checkable
class HasAspects(Protocol):
    """Single-turn text task whose responses have several values besides the reward."""

    def init(self, key: Key[Array, ""]) -> tuple[PyTree, Int[Array, " opening"]]:
        """An initial state and the prompt."""
        ...

    def aspects(self, state: PyTree, response: Int[Array, " response"]) -> dict[str, Float[Array, ""]]:
        """Values of a response, by name."""
        ...


@eqx.filter_jit
def sample_texts(policy: LMPolicy, prompts: Int[Array, "text opening"], key: Array) -> Int[Array, "text token"]:
    """A text by a policy for each prompt."""
    return generate_responses(policy.model, policy.sampler, policy.dialogue_spec, prompts, key)  # pyright: ignore[reportArgumentType]


def mean_aspects(run: Any, task: HasAspects | None = None, states: PyTree = None) -> dict[str, np.ndarray]:
    """Means over sampled texts ``[seed]`` of a task's aspects.

    ``task``: by default that of the run's environment; ``states``: by default the run's last ones.
    """
    env: Any = make_compiled(run.config["env"])
    judged: Any = env.task if task is None else task
    states = run.states if states is None else states
    key = fold(seed_key(0), "texts")
    episodes, prompts = jax.vmap(judged.init)(indexed_keys(fold(key, "prompts"), NUM_TEXTS))
    grade = jax.jit(jax.vmap(lambda state, text: judged.aspects(state, text)))
    means = []
    for i in range(len(run.config["seeds"])):
        policy = run.method.policy(jax.tree.map(lambda x, i=i: x[i], states), Mode.SAMPLE)
        texts = sample_texts(policy, prompts, fold(key, "seed", run.config["seeds"][i]))
        means.append({name: float(values.mean()) for name, values in grade(episodes, texts).items()})
    return {name: np.array([mean[name] for mean in means]) for name in means[0]}


def mean_aspect(
    aspect: str,
    name: str,
    task: HasAspects | None = None,
    *,
    larger_is_better: bool = True,
    bounds: tuple[float, float] | None = (0.0, 1.0),
    change: Callable[[np.ndarray], np.ndarray] = lambda values: values,
) -> Measure:
    """Mean of one aspect over sampled texts, or what ``change`` makes of it."""

    def values(run: Any) -> Float[np.ndarray, " seed"]:
        return change(mean_aspects(run, task)[aspect])

    return Measure(name, values, larger_is_better, bounds=bounds)


def untrained_aspect(aspect: str, name: str, bounds: tuple[float, float] | None = (0.0, 1.0)) -> Measure:
    """Mean of one aspect over texts of the model before training."""

    def values(run: Any) -> Float[np.ndarray, " seed"]:
        return mean_aspects(run, states=untrained_states(run))[aspect]

    return Measure(name, values, bounds=bounds)
