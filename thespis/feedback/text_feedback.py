"""Base of feedbacks for text environments: a turn is a step, and what is scored is the response in it.

A subclass gives each response a reward (:meth:`TextFeedback.score_turns`), and may learn from dialogues.
Dialogues come from any batch whose steps are turns: of a method that acts, or of logged dialogues.
"""

from __future__ import annotations

import abc
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.actors.lm_policy import DialogueSpec
from thespis.core.feeds import Feed
from thespis.core.records import Batch, Citation, EnvSpec, Metrics, Report, Rewards
from thespis.feedback.env_kind import check_env_kind
from thespis.learners.language.dialogues import Dialogues


class TextFeedback(eqx.Module):
    """Base of feedbacks for text environments: scores the responses of dialogues."""

    name: eqx.AbstractClassVar[str]
    citations: eqx.AbstractClassVar[tuple[Citation, ...]]
    env_kind: ClassVar[str] = "text"

    @property
    def feed(self) -> Feed | None:
        """No data of its own: it learns from the method's batch. A subclass may name some."""
        return None

    @abc.abstractmethod
    def score_turns(self, state: PyTree, dialogues: Dialogues, key: Key[Array, ""]) -> Float[Array, "time row"]:
        """The reward of each response; where none is alive it does not count."""

    def init_state(self, spec: EnvSpec, dialogue_spec: DialogueSpec, key: Key[Array, ""]) -> PyTree:
        """The learned state, a tree of arrays; by default there is none."""
        return ()

    def learn(
        self, state: PyTree, dialogues: Dialogues, own_dialogues: Dialogues | None, key: Key[Array, ""]
    ) -> tuple[PyTree, Metrics]:
        """The state after learning from the method's dialogues, with the environment's own rewards, and metrics.

        ``own_dialogues`` are those of :attr:`feed`; ``None`` without one. By default nothing is learned.
        """
        return state, {}

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> PyTree:
        """The learned state. Raises ``UserError`` for an environment that is no dialogue of one agent."""
        check_env_kind(self, spec)  # pyright: ignore[reportArgumentType]
        return self.init_state(spec, DialogueSpec.from_spec(spec), key)

    def score(self, state: PyTree, batch: Batch, key: Key[Array, ""]) -> Rewards:
        """The rewards of all responses; 0 where no response of the agent is."""
        dialogues = Dialogues.from_transitions(batch.steps, batch.mask)
        return Rewards(jnp.where(dialogues.alive, self.score_turns(state, dialogues, key), 0.0))

    def update(
        self, state: PyTree, batch: Batch, own_batch: Batch | None, key: Key[Array, ""]
    ) -> tuple[PyTree, Report]:
        """Learn from the dialogues of the method's batch and of its own feed."""
        own = None if own_batch is None else Dialogues.from_transitions(own_batch.steps, own_batch.mask)
        state, metrics = self.learn(state, Dialogues.from_transitions(batch.steps, batch.mask), own, key)
        return state, Report(metrics)
