"""Measures of policies, their references and the fine-tuned models that both were made of: rewards and distances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.actors.lm_policy import LMPolicy
from thespis.core.contracts import Mode
from thespis.envs.registry import make_compiled
from thespis.evidence.measures import Measure
from thespis.evidence.text_aspects import NUM_TEXTS, mean_aspects, sample_texts
from thespis.learners.language.dialogues import single_turn_dialogues, sum_over_tokens
from thespis.nets.decoder import Decoder
from thespis.runtime.keys import fold, indexed_keys, seed_key


def with_models(states: PyTree, models: Decoder) -> PyTree:
    """States whose policies are other models."""
    return eqx.tree_at(lambda state: state.model.model, states, models)


def model_aspect(aspect: str, name: str, models: Callable[[PyTree], Decoder]) -> Measure:
    """Mean of one aspect over texts of other models than the policy, which ``models`` takes from the run's states."""

    def values(run: Any) -> Float[np.ndarray, " seed"]:
        return mean_aspects(run, states=with_models(run.states, models(run.states)))[aspect]

    return Measure(name, values, bounds=(0.0, 1.0))


def text_divergence(
    policy: LMPolicy, other: Decoder, prompts: Int[Array, "text opening"], key: Key[Array, ""]
) -> Float[Array, ""]:
    """KL divergence of a policy to another model in nats per text: the mean log-ratio of texts that it samples."""
    texts = sample_texts(policy, prompts, key)
    return _mean_log_ratio(policy, other, prompts, texts)


@eqx.filter_jit
def _mean_log_ratio(
    policy: LMPolicy, other: Decoder, prompts: Int[Array, "text opening"], texts: Int[Array, "text token"]
) -> Float[Array, ""]:
    dialogues = single_turn_dialogues(prompts, texts, jnp.ones(len(texts), bool))
    models: Any = policy.model, other
    own, others = (dialogues.response_log_probs(model, policy.sampler)[0] for model in models)
    return sum_over_tokens(own - others, dialogues.response_mask).mean()


def distance_to(name: str, model: Callable[[PyTree], Decoder]) -> Measure:
    """KL divergence of the policy to a model, which ``model`` takes from a seed's state, in nats per text."""

    def values(run: Any) -> Float[np.ndarray, " seed"]:
        env: Any = make_compiled(run.config["env"])
        key = fold(seed_key(0), "divergence")
        prompts = jax.vmap(env.task.init)(indexed_keys(fold(key, "prompts"), NUM_TEXTS))[1]
        states = [jax.tree.map(lambda x, i=i: x[i], run.states) for i in range(len(run.config["seeds"]))]
        return np.array(
            [
                float(text_divergence(run.method.policy(state, Mode.SAMPLE), model(state), prompts, key))
                for state in states
            ]
        )

    return Measure(f"KL divergence to {name} (nats per text)", values)
