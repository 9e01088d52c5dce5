"""Discrete-action methods on a list of candidate responses, with a language model as actor.

The actor's probabilities come from the model's likelihoods of the candidates; the wrapped method chooses among them and
learns. A turn is a step, the transcript is the observation.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree

from thespis.actors.distributions import Categorical
from thespis.actors.lm_policy import CandidateActor, DialogueSpec
from thespis.core.contracts import GoalRelabeler, Mode
from thespis.core.errors import UserError
from thespis.core.feeds import Feed
from thespis.core.records import Batch, Critique, EnvSpec, Report, Transition, View
from thespis.core.spaces import Discrete
from thespis.critics.candidate_values import ValueHead
from thespis.learners.language.lm_agent import LMModelConfig
from thespis.nets.candidate_scoring import CandidateScorer, pad_candidates
from thespis.runtime.keys import fold


class CandidateActorCritic(eqx.Module):
    """Actor-critic with one decoder for the policy over candidate responses and the value of the text before them."""

    actor: CandidateActor
    value_head: ValueHead

    def init_memory(self, n: int) -> tuple[()]:
        """No memory: the observation is the whole transcript."""
        return ()

    def action_distribution(self, memory: Any, view: View) -> tuple[Categorical, Any]:
        """Distribution over candidates for one view."""
        return self.actor(view), memory

    def distributions(self, memory: Any, views: View, is_first: Bool[Array, "time row"]) -> Categorical:
        """Distributions of a whole rollout, leaves ``[time, row, ...]``."""
        return jax.vmap(jax.vmap(self.actor))(View(views.observation, views.action_mask))

    def values(
        self, memory: Any, critic_observation: PyTree, is_first: Bool[Array, "time row"]
    ) -> tuple[Float[Array, "time row"], Any]:
        """Values of the transcripts of a whole rollout."""
        return self.next_values(memory, critic_observation), memory

    def next_values(self, memories: Any, next_critic_observation: PyTree) -> Float[Array, "time row"]:
        """Values of the next transcripts."""
        return jax.vmap(jax.vmap(lambda text: self.value_head(self.actor.scorer.prompt_features(text))[0]))(
            next_critic_observation
        )

    def evaluate(
        self, memory: Any, views: View, critic_observation: PyTree, is_first: Bool[Array, "time row"]
    ) -> tuple[Categorical, Float[Array, "time row"]]:
        """Action distributions and state values of a whole rollout."""
        return self.distributions(memory, views, is_first), self.values(memory, critic_observation, is_first)[0]


class CandidateMethodState(eqx.Module):
    """Training state: that of the wrapped method, the candidates, and the environment's goal relabeler, if any."""

    method_state: PyTree
    dialogue_spec: DialogueSpec = eqx.field(static=True)
    goal_relabeler: GoalRelabeler | None = eqx.field(static=True)


class CandidatePolicy(eqx.Module):
    """Acting policy: that of the wrapped method, and the candidates."""

    actor: PyTree
    dialogue_spec: DialogueSpec = eqx.field(static=True)


class WrappedMethod(eqx.Module):
    """Slot for the wrapped discrete-action method, which a concrete class supplies."""

    method: eqx.AbstractVar[Any]


class CandidateMethod(LMModelConfig, WrappedMethod):
    """Discrete-action method over candidate responses.

    A concrete class supplies the wrapped ``method``, its initial state and its update.
    """

    context_length: int = eqx.field(static=True, default=0)
    """Number of tokens of a dialogue that are read, the last ones; 0: all."""

    @abc.abstractmethod
    def init_from(self, spec: EnvSpec, scorer: CandidateScorer, key: Key[Array, ""]) -> PyTree:
        """Initial state of the wrapped method, in an environment with candidate indices as actions."""

    @abc.abstractmethod
    def update_method(self, state: CandidateMethodState, batch: Batch, key: Key[Array, ""]) -> tuple[PyTree, Report]:
        """State of the wrapped method after a batch with candidate indices as actions, and the report."""

    @property
    def feed(self) -> Feed:
        """Feed of the wrapped method."""
        return self.method.feed

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> CandidateMethodState:
        """Initial state, from the language model of ``model_init``.

        Raises ``UserError`` for an environment without a list of responses.
        """
        dialogue_spec = DialogueSpec.from_spec(spec)
        if not dialogue_spec.choices:
            raise UserError(f"{spec.name} has no list of responses (text:maze has one): use grpo or ppo-lm")
        scorer = CandidateScorer(
            self.model_init.init_from(spec, fold(key, "model")), dialogue_spec.choices, self.context_length
        )
        discrete_spec = dataclasses.replace(spec, action_space=Discrete(len(dialogue_spec.choices)))
        return CandidateMethodState(
            self.init_from(discrete_spec, scorer, fold(key, "nets")), dialogue_spec, spec.goal_relabeler
        )

    def policy(self, state: CandidateMethodState, mode: Mode) -> CandidatePolicy:
        """Policy of the wrapped method."""
        return CandidatePolicy(self.method.policy(state.method_state, mode), state.dialogue_spec)

    def init_memory(self, policy: CandidatePolicy, n: int) -> Any:
        """Memory of the wrapped method."""
        return self.method.init_memory(policy.actor, n)

    def act(self, policy: CandidatePolicy, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """Tokens of the chosen responses, and memory and extras of the wrapped method."""
        index, memory, extras = self.method.act(policy.actor, memory, view, key)
        return (
            jnp.asarray(pad_candidates(policy.dialogue_spec.choices, policy.dialogue_spec.max_response_tokens))[index],
            memory,
            extras,
        )

    def judge(self, state: CandidateMethodState, episode: Transition) -> Critique:
        """Critique by the wrapped method."""
        return self.method.judge(state.method_state, to_discrete_actions(state.dialogue_spec, episode))

    def update(
        self, state: CandidateMethodState, batch: Batch, key: Key[Array, ""]
    ) -> tuple[CandidateMethodState, Report]:
        """One update of the wrapped method."""
        batch = dataclasses.replace(batch, steps=to_discrete_actions(state.dialogue_spec, batch.steps))
        method_state, report = self.update_method(state, batch, key)
        return dataclasses.replace(state, method_state=method_state), report


def to_discrete_actions(dialogue_spec: DialogueSpec, steps: Transition) -> Transition:
    """Convert responses to discrete actions: candidate indices in place of tokens.

    A response that is not listed counts as the first.
    """
    matches = (
        steps.action[..., None, :] == pad_candidates(dialogue_spec.choices, dialogue_spec.max_response_tokens)
    ).all(axis=-1)
    return dataclasses.replace(steps, action=jnp.argmax(matches, axis=-1).astype("int32"))
