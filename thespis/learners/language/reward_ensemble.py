"""An ensemble of reward models: language models with linear heads, ``[member, ...]``, one after the other."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from thespis.learners.language.dialogues import Dialogues
from thespis.learners.language.lm_agent import LMWithValueHead, TrainableParams, add_value_head
from thespis.learners.language.turn_scores import turn_scores
from thespis.nets.decoder import Decoder
from thespis.runtime.keys import fold, indexed_keys

_HEAD_STD = 0.02  # of a head's weights, as transformers has it


def init_ensemble(model: Decoder, trainable: TrainableParams, num_members: int, key: Key[Array, ""]) -> LMWithValueHead:
    """Reward models that start as the same language model, each with a small random head of its own.

    The heads make members of an ensemble differ; by a head of zeros the language model would get no gradient at first.
    """

    def member(key: Key[Array, ""]) -> LMWithValueHead:
        scorer = add_value_head(trainable.init_from(model, fold(key, "adapters")), model.config.hidden_size)
        size = scorer.value_weight.shape[0]
        head = _HEAD_STD * size**0.5 * jax.random.normal(fold(key, "head"), (size,))  # values are divided by the root
        return dataclasses.replace(scorer, value_weight=head)

    members = [member(k) for k in indexed_keys(fold(key, "members"), num_members)]
    return jax.tree.map(lambda *x: jnp.stack(x), *members)


def ensemble_scores(ensemble: LMWithValueHead, dialogues: Dialogues) -> Float[Array, "member time row"]:
    """Each member's score of each response, which is read with all that was said before it."""
    return jax.lax.map(lambda scorer: turn_scores(scorer, dialogues), ensemble)
