"""Measures of policies that improve responses: what responses are worth before and after improvements."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from thespis.actors.lm_policy import LMPolicy
from thespis.core.contracts import Mode
from thespis.envs.registry import make_compiled
from thespis.evidence.measures import Measure, once_per_run, untrained_states
from thespis.evidence.text_aspects import sample_texts
from thespis.papers.pit.envs import Translation
from thespis.runtime.keys import fold, indexed_keys, seed_key

NUM_PROMPTS = 400
"""Prompts of each seed, the same for all arms, which the dataset need not have."""
NUM_IMPROVEMENTS = 3
"""How often a response is improved, in succession."""


@once_per_run
def qualities(run: Any) -> dict[str, Float[np.ndarray, "seed response"]]:
    """Mean quality of responses of a run's policies, in [0, 1].

    ``trained``: responses of the initial model, and their successive improvements by the trained policy; ``untrained``:
    the same by the initial model; ``answers``: responses of the trained policy without a reference.
    """
    env: Any = make_compiled(run.config["env"])
    key = fold(seed_key(0), "improvements")
    initial, seeds = untrained_states(run), run.config["seeds"]
    rows = []
    for i in range(len(seeds)):
        before, after = (
            run.method.policy(jax.tree.map(lambda x, i=i: x[i], states), Mode.SAMPLE)
            for states in (initial, run.states)
        )
        rows.append(_qualities(env, before, after, fold(key, "seed", seeds[i])))
    return {name: np.array([row[name] for row in rows], np.float64) for name in rows[0]}


@eqx.filter_jit
def _qualities(env: Translation, before: LMPolicy, after: LMPolicy, key: Array) -> dict[str, Array]:
    """Qualities of improvements by two policies, and of responses of the second without a reference."""
    phrases = jax.vmap(env.sample_phrase)(indexed_keys(fold(key, "prompts"), NUM_PROMPTS))
    no_reference = jnp.full((NUM_PROMPTS, env.num_words + 1), -1)

    def respond(policy: LMPolicy, references: Int[Array, "row token"], step: Int[Array, ""]) -> Int[Array, "row token"]:
        return sample_texts(policy, jax.vmap(env.prompt)(phrases, references), fold(key, "response", step))

    def chain(policy: LMPolicy) -> Float[Array, " response"]:
        original = respond(before, no_reference, jnp.asarray(0))

        def improve(text: Int[Array, "row token"], step: Int[Array, ""]) -> tuple[Array, Array]:
            return (text := respond(policy, text, step)), quality(text)

        improved = jax.lax.scan(improve, original, jnp.arange(1, NUM_IMPROVEMENTS + 1))[1]
        return jnp.concatenate([quality(original)[None], improved])

    def quality(text: Int[Array, "row token"]) -> Float[Array, ""]:
        return jax.vmap(env.grade)(phrases, text).mean()

    answers = quality(respond(after, no_reference, jnp.asarray(NUM_IMPROVEMENTS + 1)))
    return {"trained": chain(after), "untrained": chain(before), "answers": answers[None]}


def improved_quality(num_improvements: int = NUM_IMPROVEMENTS) -> Measure:
    """Right words after so many improvements, in succession, of responses of the initial model."""
    name = f"right words after {num_improvements} improvements"
    return Measure(name, lambda run: qualities(run)["trained"][:, num_improvements], bounds=(0.0, 1.0))


def untrained_quality() -> Measure:
    """The same where the initial model improves its own responses."""
    return Measure(
        "right words by the initial model", lambda run: qualities(run)["untrained"][:, -1], bounds=(0.0, 1.0)
    )


def wrong_words() -> Measure:
    """Share of words that are wrong after all improvements."""
    return Measure("wrong words", lambda run: 1.0 - qualities(run)["trained"][:, -1], False, bounds=(0.0, 1.0))


def gain() -> Measure:
    """By how much all improvements raise the share of right words of responses of the initial model."""
    return Measure("gain by improvements", lambda run: np.diff(qualities(run)["trained"][:, [0, -1]], axis=1)[:, 0])


def answer_quality() -> Measure:
    """Right words of the trained policy's responses without a reference."""
    return Measure("right words without a reference", lambda run: qualities(run)["answers"][:, 0], bounds=(0.0, 1.0))


def final_quality() -> Measure:
    """Right words of what a run would say in the end.

    That is the last improvement where references are read in training, and else a response without a reference.
    """

    def values(run: Any) -> Float[np.ndarray, " seed"]:
        reads_references = run.method.rollout_transform is not None
        return improved_quality().compute(run) if reads_references else answer_quality().compute(run)

    return Measure("right words in the end", values, bounds=(0.0, 1.0))
