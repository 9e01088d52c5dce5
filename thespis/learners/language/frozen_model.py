"""Frozen language model: an actor that never learns, as a seat of a conversation.

Its state is the parameters alone: no optimizer state, no reference, no critic.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from thespis.actors.lm_policy import DialogueSpec, KVCacheState, LMPolicy
from thespis.core.contracts import Mode
from thespis.core.records import EnvSpec, Number, View
from thespis.data.feeds import Episodes
from thespis.language.sampling import TemperatureSampler
from thespis.learners.language.lm_agent import LMModelConfig
from thespis.learners.language.never_learns import NeverLearns
from thespis.nets.decoder import Decoder
from thespis.runtime.keys import fold


class FrozenModelState(eqx.Module):
    """State of a frozen model: its parameters, and the limits of its dialogues."""

    model: Decoder
    dialogue_spec: DialogueSpec = eqx.field(static=True)


class FrozenModel(LMModelConfig, NeverLearns):
    """Frozen language model: samples responses and never learns."""

    temperature: Number = 1.0
    """Sampling temperature, above 0."""
    feed: Episodes = eqx.field(static=True, default=Episodes())
    """Not used: the learning seats say what is collected."""

    name: ClassVar[str] = "frozen"

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> FrozenModelState:
        """The model that ``model`` names. Raises ``UserError`` for an environment without text."""
        return FrozenModelState(self.model_init.init_from(spec, fold(key, "model")), DialogueSpec.from_spec(spec))

    def policy(self, state: FrozenModelState, mode: Mode) -> LMPolicy:
        """The model as policy."""
        sampler = TemperatureSampler(jnp.asarray(self.temperature, "float32"))
        return LMPolicy(state.model, sampler, state.dialogue_spec, mode)

    def init_memory(self, policy: LMPolicy, n: int) -> KVCacheState:
        """An empty key-value cache for ``n`` dialogues."""
        return policy.init_memory(n)

    def act(
        self, policy: LMPolicy, memory: KVCacheState, view: View, key: Key[Array, ""]
    ) -> tuple[PyTree, Any, PyTree]:
        """Sample responses; extras are the log-probabilities of their tokens as sampled."""
        return policy.act(memory, view, key)
