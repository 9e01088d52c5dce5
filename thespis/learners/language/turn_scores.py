"""Scores of responses by a linear head on a language model, as reward models and process rewards give them."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from thespis.actors.lm_policy import response_features
from thespis.learners.language.dialogues import Dialogues
from thespis.learners.language.lm_agent import LMWithValueHead


def turn_scores(model: LMWithValueHead, dialogues: Dialogues) -> Float[Array, "time row"]:
    """Score of each response: the model's value at its last token; 0 where there is no response."""
    features = response_features(
        model.model, dialogues.transcript, dialogues.response_starts[:-1], dialogues.responses.shape[-1] + 1
    )
    num_tokens = dialogues.response_mask.sum(axis=-1, keepdims=True)
    return jnp.where(dialogues.alive, jnp.take_along_axis(model.value(features), num_tokens, axis=-1)[..., 0], 0.0)
