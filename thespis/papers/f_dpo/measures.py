"""Measures of f-DPO on rated words: gaps of the objective with a divergence of choice, that divergence, and entropy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thespis.evidence.benches.rated_words import BETA, response_log_probs, response_utilities
from thespis.evidence.measures import Measure, untrained_states
from thespis.learners.language.preference_losses import DivergenceLink, ForwardKLLink, JensenShannonLink
from thespis.objectives import f_divergences

LogProbs = Float[Array, "prompt response"]


def divergence_gap(name: str, generator: f_divergences.RatioFunction, link: DivergenceLink) -> Measure:
    """How far the utility less ``BETA`` times a divergence, called ``name``, is below its maximum: exact."""
    utilities = response_utilities()

    def gaps(log_probs: LogProbs, ref_log_probs: LogProbs) -> Float[Array, " prompt"]:
        return f_divergences.f_optimality_gap(log_probs, ref_log_probs, utilities, BETA, generator, link)

    return _measure(f"optimality gap of the utility with a penalty on {name}", gaps, False)


def f_divergence(name: str, generator: f_divergences.RatioFunction) -> Measure:
    """The divergence, called ``name``, from the model before training: exact; lower is closer."""

    def divergences(log_probs: LogProbs, ref_log_probs: LogProbs) -> Float[Array, " prompt"]:
        return f_divergences.f_divergence(log_probs, ref_log_probs, generator)

    return _measure(f"{name} from the model before training", divergences, False)


def response_entropy() -> Measure:
    """Entropy of the response, in nats, with no word as one of the responses: exact; higher is more diverse."""

    def entropies(log_probs: LogProbs, _: LogProbs) -> Float[Array, " prompt"]:
        return -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)

    return _measure("entropy of responses", entropies, True)


def _measure(name: str, compute: Callable[[LogProbs, LogProbs], Float[Array, " prompt"]], is_better: bool) -> Measure:
    """The mean over prompts of what ``compute`` makes of log-probabilities after and before training."""

    def means(run: Any) -> Float[np.ndarray, " seed"]:
        log_probs, ref_log_probs = response_log_probs(run, run.states), response_log_probs(run, untrained_states(run))
        return np.asarray(jax.jit(jax.vmap(compute))(log_probs, ref_log_probs).mean(axis=-1))

    return Measure(name, means, is_better)


FORWARD_KL_GAP = divergence_gap("forward KL", f_divergences.forward_kl_generator, ForwardKLLink())
JENSEN_SHANNON_GAP = divergence_gap("Jensen-Shannon", f_divergences.jensen_shannon_generator, JensenShannonLink())
