"""What a reward model that was trained with the policy is worth at test time: the best of several first answers."""

from __future__ import annotations

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thespis.core.contracts import Mode
from thespis.envs.registry import make_compiled
from thespis.envs.text.derivation import write_values
from thespis.evidence.measures import Measure, once_per_run
from thespis.learners.language.dialogues import single_turn_dialogues
from thespis.learners.language.turn_scores import turn_scores
from thespis.papers.critique_grpo.envs import WrongWraps

NUM_SAMPLES = 8
"""First answers of which the reward model chooses one."""


def best_answer_success() -> Measure:
    """Probability that the best of eight first answers by the run's reward model is right, the mean over all tasks."""
    name = f"success of the best of {NUM_SAMPLES} first answers"
    return Measure(name, lambda run: _successes(run)[1], bounds=(0.0, 1.0))


def reward_model_gain() -> Measure:
    """The same beyond the probability that a single first answer is right."""
    name = f"success of the best of {NUM_SAMPLES} first answers beyond that of one"
    return Measure(name, lambda run: np.subtract(*_successes(run)[::-1]), bounds=(-1.0, 1.0))


@once_per_run
def _successes(run: Any) -> Float[np.ndarray, "2 seed"]:
    """Success of a single answer, and of the best of several."""
    env: Any = make_compiled(run.config["env"])

    def per_seed(state: Any) -> Float[Array, " 2"]:
        table = answer_table(env.task, run.method, state)
        return jnp.stack([best_success(*table, num).mean() for num in (1, NUM_SAMPLES)])

    return np.asarray(eqx.filter_jit(lambda states: jax.lax.map(per_seed, states))(run.states)).T


def answer_table(
    task: WrongWraps, method: Any, state: Any
) -> tuple[Float[Array, "task answer"], Float[Array, "task answer"], Float[Array, "task answer"]]:
    """Of each well-formed answer to each task: how likely it is, its score, and 1 if it is right."""
    chains = task.all_chains()
    prompts = jax.vmap(task.opening)(chains)
    values = jnp.asarray(list(itertools.product(range(task.base), repeat=task.num_steps)))
    texts = jax.vmap(lambda row: write_values(task.task_spec, row))(values)
    shape = len(prompts), len(texts)
    alive = jnp.ones(shape[0] * shape[1], bool)
    dialogues = single_turn_dialogues(
        jnp.repeat(prompts, len(texts), axis=0), jnp.tile(texts, (len(prompts), 1)), alive
    )
    policy = method.policy(state, Mode.SAMPLE)
    log_probs = dialogues.response_log_probs(policy.model, policy.sampler)[0][0]
    likely = jnp.exp(log_probs[:, : task.num_steps].sum(axis=1))
    scores = turn_scores(state.critic[0], dialogues)[0]
    right = (values[None] == jax.vmap(lambda chain: chain.values)(chains)[:, None]).all(axis=-1)
    return likely.reshape(shape), scores.reshape(shape), right.astype("float32")


def best_success(
    likely: Float[Array, "task answer"],
    scores: Float[Array, "task answer"],
    right: Float[Array, "task answer"],
    num_samples: int,
) -> Float[Array, " task"]:
    """Probability that the answer with the largest score of several sampled ones is right; scores are all different.

    What is missing to 1 in a row is the probability of malformed answers, which are never preferred.
    """
    order = jnp.argsort(scores, axis=1)
    sorted_likely = jnp.take_along_axis(likely, order, axis=1)
    up_to = jnp.clip(1.0 - likely.sum(axis=1, keepdims=True), 0.0) + jnp.cumsum(sorted_likely, axis=1)
    is_best = up_to**num_samples - (up_to - sorted_likely) ** num_samples
    return (is_best * jnp.take_along_axis(right, order, axis=1)).sum(axis=1)
