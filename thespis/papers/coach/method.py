r"""Learning from a trainer's feedback with tables: COACH, TAMER, and Q-learning with feedback as the reward.

The trainer's feedback :math:`f_t` on the action :math:`a_t` in the state :math:`s_t` is all that they learn from; the
environment's reward is not used. COACH takes it for the advantage of the current policy, TAMER for a reward that
counts at once, and Q-learning for the reward of a return:

.. math::
    e \leftarrow \lambda e + \nabla \log \pi_\theta(a_t | s_t), \quad \theta \leftarrow \theta + \alpha f_t e \qquad
    H(s_t, a_t) \leftarrow H(s_t, a_t) + \alpha (f_t - H(s_t, a_t)) \qquad
    Q(s_t, a_t) \leftarrow Q(s_t, a_t) + \alpha (f_t + \gamma \max_a Q(s_{t+1}, a) - Q(s_t, a_t))

Source: MacGlashan et al., 2017 (arXiv:1701.06049), algorithm 1; Knox and Stone, 2009. Differs: tables in place of
linear features and networks; TAMER credits one action, that of ``delay`` steps ago, in place of a distribution over
past ones.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Number, Report, Transition, View
from thespis.data.feeds import Rollouts
from thespis.papers.coach.envs import START, PathTables
from thespis.papers.coach.trainers import AdvantageFeedback, Trainer, optimal_actions, policy_state_values
from thespis.papers.regret_preference_model.planning import StateActionTable
from thespis.runs.ranges import AT_LEAST_0, in_range
from thespis.runtime.keys import fold

_TIE = 1e-8
"""Difference below which actions are equally good to a greedy learner."""


class Visit(eqx.Module):
    """Steps of the learner, or one without axes: the action in a cell, and where it led."""

    cell: Int[Array, "*steps"]
    action: Int[Array, "*steps"]
    next_cell: Int[Array, "*steps"]
    terminated: Bool[Array, "*steps"]


class FeedbackLearnerState(eqx.Module):
    """Training state: the learner's table, its trace, and the visits and feedback that are still to be used."""

    table: StateActionTable
    trace: StateActionTable
    visits: Visit
    """The last ``delay + 1`` visits, newest first."""
    feedback: Float[Array, " lag"]
    """The trainer's last ``delay + 1`` feedbacks, newest first."""
    num_updates: Int[Array, ""]
    tables: PathTables


class TablePolicy(eqx.Module):
    """Policy by a table of probabilities."""

    probs: StateActionTable
    mode: Mode = eqx.field(static=True)


def greedy_with_ties(table: StateActionTable) -> StateActionTable:
    """Probabilities of the best actions, equal among equals."""
    is_best = table >= jnp.max(table, axis=1, keepdims=True) - _TIE
    return is_best / jnp.sum(is_best, axis=1, keepdims=True)


class FeedbackLearner(eqx.Module):
    """Base of tabular learners that learn after each step from a trainer's feedback alone."""

    learning_rate: eqx.AbstractVar[Number]
    trainer: Trainer = AdvantageFeedback()
    """Trainer: TaskFeedback, ActionFeedback, AdvantageFeedback, ImprovementFeedback."""
    discount: Number = 0.95
    """Discount of the values that the trainer judges by, and of the learner's returns where it has some."""
    delay: int = eqx.field(static=True, default=0, metadata=in_range(AT_LEAST_0))
    """Steps between an action and the feedback that is taken to be for it."""
    stream: int = eqx.field(static=True, default=0)
    """Number of the stream of random actions: another number gives other ones."""
    feed: Rollouts = eqx.field(static=True, default=Rollouts(num_steps=1, num_envs=1))
    """Rollouts: num_steps between two changes of the acting policy, num_envs (1)."""

    details: ClassVar[tuple[str, ...]] = ("one update per step, on the trainer's feedback alone",)

    @abc.abstractmethod
    def probs(self, table: StateActionTable, mode: Mode) -> StateActionTable:
        """Probabilities of actions in all cells."""

    @abc.abstractmethod
    def learn(
        self, table: StateActionTable, trace: StateActionTable, visit: Visit, feedback: Float[Array, ""]
    ) -> tuple[StateActionTable, StateActionTable]:
        """The table and the trace after feedback on a visit."""

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> FeedbackLearnerState:
        """A table of zeros. Raises ``UserError`` where the environment tells no tables to its trainers."""
        if not isinstance(spec.params, PathTables):
            raise UserError(f"{spec.name} tells no tables for a simulated trainer: use a PathGrid")
        tables = jax.tree.map(jnp.asarray, spec.params)
        zeros, none = jnp.zeros(tables.rewards.shape), jnp.zeros(self.delay + 1, "int32")
        visits = Visit(none, none, none, none.astype(bool))
        feedback, num_updates = jnp.zeros(self.trainer.delay + 1), jnp.zeros((), "int32")
        return FeedbackLearnerState(zeros, zeros, visits, feedback, num_updates, tables)

    def policy(self, state: FeedbackLearnerState, mode: Mode) -> TablePolicy:
        """The table of probabilities."""
        return TablePolicy(self.probs(state.table, mode), mode)

    def init_memory(self, policy: TablePolicy, n: int) -> tuple[()]:
        """No memory: the observation says all."""
        return ()

    def act(self, policy: TablePolicy, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """Actions drawn by the table; in exploit mode the first of the likeliest."""
        probs = view.observation @ policy.probs
        if policy.mode is Mode.EXPLOIT:
            return jnp.argmax(probs, axis=-1).astype("int32"), memory, ()
        logits = jnp.log(probs)
        return jax.random.categorical(fold(key, "actions", self.stream), logits).astype("int32"), memory, ()

    def judge(self, state: FeedbackLearnerState, episode: Transition) -> Critique:
        """No critique: feedback is a trainer's."""
        return Critique()

    def update(
        self, state: FeedbackLearnerState, batch: Batch, key: Key[Array, ""]
    ) -> tuple[FeedbackLearnerState, Report]:
        """Learns from each step in its order; all have feedback on the policy that took them."""
        probs = self.probs(state.table, Mode.EXPLORE)
        judged = self.trainer.feedback(probs, state.tables, self.discount)
        acting_return = policy_state_values(probs, state.tables, self.discount)[START]
        is_optimal = optimal_actions(state.tables, self.discount)
        steps = jax.tree.map(lambda x: x[:, 0], batch.steps)
        visits = Visit(
            jnp.argmax(steps.view.observation, axis=-1).astype("int32"),
            steps.action,
            jnp.argmax(steps.next_view.observation, axis=-1).astype("int32"),
            steps.terminated,
        )

        def learn_step(state: FeedbackLearnerState, visit: Visit) -> tuple[FeedbackLearnerState, dict[str, Array]]:
            feedback = judged[visit.cell, visit.action]
            visits = jax.tree.map(lambda new, old: jnp.concatenate([new[None], old[:-1]]), visit, state.visits)
            feedbacks = jnp.concatenate([feedback[None], state.feedback[:-1]])
            credited = jax.tree.map(lambda x: x[-1], visits)
            table, trace = self.learn(state.table, state.trace, credited, feedbacks[-1])
            is_credited = state.num_updates >= self.delay
            table, trace = jax.tree.map(
                lambda new, old: jnp.where(is_credited, new, old), (table, trace), (state.table, state.trace)
            )
            metrics = {
                "feedback": feedback,
                "has_feedback": (feedback != 0).astype("float32"),
                "unlearned_cells": _share_unlearned(state.table, table, is_optimal),
            }
            after = FeedbackLearnerState(table, trace, visits, feedbacks, state.num_updates + 1, state.tables)
            return after, metrics

        state, metrics = jax.lax.scan(learn_step, state, visits)
        means = {name: values.mean() for name, values in metrics.items()}
        return state, Report(means | {"acting_return": acting_return})


def _share_unlearned(
    before: StateActionTable, after: StateActionTable, is_optimal: Bool[Array, "state action"]
) -> Float[Array, ""]:
    """Cells in which the greedy action was one of the best before and is none now, less likely or not at all."""
    right_before, right_after = (
        jnp.sum(greedy_with_ties(table), axis=1, where=is_optimal) for table in (before, after)
    )
    return jnp.sum((right_before > right_after + 1e-3) & (right_before > 0.999)).astype("float32")


_COACH = Citation(
    "Interactive Learning from Policy-Dependent Human Feedback", "MacGlashan et al.", 2017, "arXiv:1701.06049"
)


class Coach(FeedbackLearner):
    """COACH: policy gradient of a softmax table in which a trainer's feedback is the advantage, with a trace."""

    learning_rate: Number = 1.0
    """Step size."""
    trace_decay: Number = eqx.field(default=0.0, metadata=in_range(AT_LEAST_0))
    """Decay of the eligibility trace per step, the lambda of the paper."""

    name: ClassVar[str] = "coach"
    citations: ClassVar[tuple[Citation, ...]] = (_COACH,)

    def probs(self, table: StateActionTable, mode: Mode) -> StateActionTable:
        """The softmax; the most likely action in exploit mode."""
        return greedy_with_ties(table) if mode is Mode.EXPLOIT else jax.nn.softmax(table, axis=1)

    def learn(
        self, table: StateActionTable, trace: StateActionTable, visit: Visit, feedback: Float[Array, ""]
    ) -> tuple[StateActionTable, StateActionTable]:
        """A step along the trace of gradients of the log-probability, times the feedback."""
        row = jax.nn.one_hot(visit.action, table.shape[1]) - jax.nn.softmax(table[visit.cell])
        trace = (self.trace_decay * trace).at[visit.cell].add(row)
        return table + self.learning_rate * feedback * trace, trace


class GreedyLearner(FeedbackLearner):
    """Base of learners of a value of each action, who take the best one, and sometimes a random one to explore."""

    epsilon: Number = 0.1
    """Probability of a random action."""

    def probs(self, table: StateActionTable, mode: Mode) -> StateActionTable:
        """The best actions, equal among equals; with the probability ``epsilon`` any one in explore mode."""
        epsilon = self.epsilon if mode is Mode.EXPLORE else 0.0
        return (1 - epsilon) * greedy_with_ties(table) + epsilon / table.shape[1]


class Tamer(GreedyLearner):
    """TAMER: learns what feedback to expect for each action, and takes the action with the largest."""

    learning_rate: Number = 0.3
    """Step size: 1 keeps the last feedback alone."""
    epsilon: Number = 0.0
    """Probability of a random action."""

    name: ClassVar[str] = "tamer"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "Interactively Shaping Agents via Human Reinforcement: The TAMER Framework", "Knox and Stone", 2009, ""
        ),
    )

    def learn(
        self, table: StateActionTable, trace: StateActionTable, visit: Visit, feedback: Float[Array, ""]
    ) -> tuple[StateActionTable, StateActionTable]:
        """A step of the expected feedback towards the one that came."""
        error = feedback - table[visit.cell, visit.action]
        return table.at[visit.cell, visit.action].add(self.learning_rate * error), trace


class FeedbackQLearning(GreedyLearner):
    """Q-learning with the trainer's feedback as the reward."""

    learning_rate: Number = 0.3
    """Step size."""

    name: ClassVar[str] = "feedback-q-learning"
    citations: ClassVar[tuple[Citation, ...]] = (Citation("Q-learning", "Watkins and Dayan", 1992, ""),)

    def learn(
        self, table: StateActionTable, trace: StateActionTable, visit: Visit, feedback: Float[Array, ""]
    ) -> tuple[StateActionTable, StateActionTable]:
        """A step towards the feedback and the discounted value of the best next action."""
        following = jnp.where(visit.terminated, 0.0, jnp.max(table[visit.next_cell]))
        error = feedback + self.discount * following - table[visit.cell, visit.action]
        return table.at[visit.cell, visit.action].add(self.learning_rate * error), trace
