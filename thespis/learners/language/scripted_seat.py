"""Scripted seat: the part of a conversation that a rule plays, as a method that never learns.

So it is known what the best responses of a seat are worth to the others, or random ones.
"""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from thespis.core.contracts import Mode
from thespis.core.records import EnvSpec, View
from thespis.data.feeds import Episodes
from thespis.learners.language.never_learns import NeverLearns


class ScriptedSeat(NeverLearns):
    """Scripted seat of a conversation: responses by a rule that reads the transcript; no parameters, no learning.

    A seat has a ``name`` and the rule, :meth:`respond`.
    """

    feed: Episodes = eqx.field(static=True, default=Episodes(), kw_only=True)
    """Not used: the learning seats say what is collected."""

    @abc.abstractmethod
    def respond(self, transcripts: Array, key: Key[Array, ""]) -> Array:
        """Responses ``[row, token]`` to transcripts ``[row, length]``."""

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> Float[Array, ""]:
        """A state of nothing."""
        return jnp.zeros(())

    def policy(self, state: Float[Array, ""], mode: Mode) -> Float[Array, ""]:
        """The state, as there is nothing to choose a mode of."""
        return state

    def init_memory(self, policy: Float[Array, ""], n: int) -> tuple[()]:
        """No memory: a response depends on the transcript alone."""
        return ()

    def act(self, policy: Float[Array, ""], memory: tuple[()], view: View, key: Key[Array, ""]) -> Any:
        """A response to each transcript; the log-probabilities that methods store are 0."""
        responses = self.respond(view.observation, key)
        return responses.astype("int32"), memory, jnp.zeros(responses.shape)
