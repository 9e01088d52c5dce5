"""Criticized answers: an answer with three qualities, and in a second turn a critique of it.

``2 1 >`` is answered by ``3 1 4 <end>``, of which one quality counts (graded answers,
:mod:`thespis.papers.deepseek_grm_spct.envs`). The environment says ``>``, and a critique names a principle and the
grade that the answer has by it, ``truth 3 <end>``. The reward is that of the answer, whatever the critique is: two
answers to a query are a preference pair, and critiques are what a model can say before it scores them.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from thespis.envs.text.task import RESPONSE_CUE, TaskSpec, TaskStep, pack_tokens
from thespis.papers.deepseek_grm_spct.envs import GradedAnswers, GradedQuery


class CriticizedState(eqx.Module):
    """State of an episode: the query, the answer, and whether there is one."""

    query: GradedQuery
    answer: Int[Array, "*episodes response"]
    has_answered: Bool[Array, "*episodes"]


class CriticizedAnswers(eqx.Module):
    """Task of an answer with three qualities, and of a critique of it in a second turn; the answer earns the reward.

    ``graded``: the queries, the answers and the critiques that are demonstrated.
    """

    graded: GradedAnswers = GradedAnswers()

    @property
    def task_spec(self) -> TaskSpec:
        """That of the answers, with a second turn."""
        return dataclasses.replace(self.graded.task_spec, name="text:criticized-answers", max_turns=2)

    def init(self, key: Key[Array, ""]) -> tuple[CriticizedState, Int[Array, " opening"]]:
        """A random query as the prompt."""
        query, opening = self.graded.init(key)
        no_answer = jnp.full(self.task_spec.max_response_tokens, -1, "int32")
        return CriticizedState(query, no_answer, jnp.zeros((), bool)), opening

    def step(
        self, state: CriticizedState, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[CriticizedState, TaskStep]:
        """The reward of the answer; after the critique the end."""
        reward = jnp.where(state.has_answered, 0.0, self.graded.step(state.query, response, key)[1].reward)
        message = jnp.where(state.has_answered, -1, jnp.asarray(self.task_spec.encode(RESPONSE_CUE)))
        answer = jnp.where(state.has_answered, state.answer, response).astype("int32")
        return (
            CriticizedState(state.query, answer, jnp.ones((), bool)),
            TaskStep(message, reward.astype("float32"), state.has_answered),
        )

    def demonstrator_response(self, state: CriticizedState, key: Key[Array, ""]) -> Int[Array, " response"]:
        """An answer whose qualities are random, then the critique of a teacher with habits."""
        width = self.task_spec.max_response_tokens
        answer = self.graded.demonstrator_response(state.query, key)
        critique = pack_tokens(width, self.graded.demonstrator_critique(state.query, state.answer, key))
        return jnp.where(state.has_answered, critique, answer).astype("int32")
