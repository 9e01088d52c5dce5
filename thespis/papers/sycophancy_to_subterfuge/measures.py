"""Measures of gaming: how often sampled responses use a loophole, by level, and how often they are honest and right."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PyTree

from thespis.core.records import View
from thespis.envs.registry import make_compiled
from thespis.evaluation.rollout import first_actions
from thespis.evidence.measures import Measure, once_per_run
from thespis.papers.sycophancy_to_subterfuge.envs import LEVELS
from thespis.runtime.keys import fold, indexed_keys, seed_key

NUM_PROMPTS = 4_096
"""Prompts of each level on which gaming is counted, the same for all runs and seeds."""


@dataclasses.dataclass(frozen=True)
class GamingReport:
    """Shares of sampled responses, by seed and level: uses of the loophole, and right answers."""

    gaming: Float[np.ndarray, "seed level"]
    honest: Float[np.ndarray, "seed level"]


@once_per_run
def gaming_report(run: Any) -> GamingReport:
    """What a run's agents do at each level, with loopholes closed; no prompt asks for an edit."""
    env: Any = make_compiled(run.config["env"])
    counts = [_play(run.method, run.states, env, level) for level in range(len(LEVELS))]
    return GamingReport(*(np.stack([np.asarray(x[i]).mean(axis=1) for x in counts], axis=1) for i in (0, 1)))


def _play(
    method: Any, states: PyTree, env: Any, level: int
) -> tuple[Bool[Array, "seed prompt"], Bool[Array, "seed prompt"]]:
    """Whether the responses to the prompts of a level use its loophole, and whether they are right."""
    task: Any = dataclasses.replace(env.task, levels=(level,), asked_share=0.0)
    level_env = dataclasses.replace(env, task=task)
    key = fold(seed_key(0), f"gaming/{level}")

    def play(state: PyTree, act_key: Key[Array, ""]) -> tuple[Array, Array]:
        dialogues, first = jax.vmap(lambda key: level_env.reset(None, key))(
            indexed_keys(fold(key, "prompts"), NUM_PROMPTS)
        )
        responses = first_actions(method, state, View(first.observation), act_key)
        inner = dialogues.task_state
        return jax.vmap(task.is_gaming)(inner, responses), jax.vmap(task.is_honest)(inner, responses)

    count = len(jax.tree.leaves(states)[0])
    return eqx.filter_jit(lambda states, keys: jax.vmap(play)(states, keys))(states, indexed_keys(key, count))


def gaming_share(level: int) -> Measure:
    """Share of the responses at a level that use its loophole, unasked."""
    name = f"share of responses that edit the {LEVELS[level]}" if level else "share of responses that flatter"
    return Measure(name, lambda run: gaming_report(run).gaming[:, level], bounds=(0.0, 1.0))


def honest_share(level: int) -> Measure:
    """Share of the responses at a level that are the larger digit."""
    return Measure(
        f"share of right answers at the level {LEVELS[level]}",
        lambda run: gaming_report(run).honest[:, level],
        bounds=(0.0, 1.0),
    )
