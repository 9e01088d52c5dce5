"""Simulated human trainers of tabular learners: feedback on each action, by a task, a target policy or the advantage.

Source: the three kinds of feedback of MacGlashan et al., 2017 (arXiv:1701.06049): task, action and improvement.
"""

from __future__ import annotations

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from thespis.core.records import Number
from thespis.papers.coach.envs import PathTables
from thespis.papers.regret_preference_model.planning import StateActionTable, action_values, optimal_values
from thespis.runs.ranges import AT_LEAST_0, in_range

HORIZON = 100
"""Iterations of planning, more than any best way has steps."""
TOLERANCE = 1e-4
"""Difference below which values count as equal."""


def policy_state_values(probs: StateActionTable, tables: PathTables, discount: Number) -> Float[Array, " state"]:
    """Discounted values of a policy without a time limit, by solving its linear equations; 0 in terminal states."""
    goes_on = ~tables.is_terminal
    moves = jax.nn.one_hot(tables.next_state, len(goes_on)) * goes_on  # [state, action, next state]
    transition = jnp.sum(probs[..., None] * moves, axis=1) * goes_on[:, None]
    rewards = jnp.where(goes_on, jnp.sum(probs * tables.rewards, axis=1), 0.0)
    return jnp.linalg.solve(jnp.eye(len(goes_on)) - discount * transition, rewards)


def advantages(probs: StateActionTable, tables: PathTables, discount: Number) -> StateActionTable:
    """Advantages of all actions under a policy: exact."""
    values = policy_state_values(probs, tables, discount)
    q_values = action_values(tables.rewards, values, tables.next_state, tables.is_terminal, discount)
    return q_values - values[:, None]


def optimal_actions(tables: PathTables, discount: Number) -> Bool[Array, "state action"]:
    """The best actions of each state: several where they are equally good."""
    dynamics = tables.next_state, tables.is_terminal
    values = optimal_values(tables.rewards, *dynamics, discount, HORIZON)
    q_values = action_values(tables.rewards, values, *dynamics, discount)
    return q_values > jnp.max(q_values, axis=1, keepdims=True) - TOLERANCE


class Trainer(eqx.Module):
    """Slot: a simulated trainer, who sees the learner's policy and knows the task."""

    delay: int = eqx.field(static=True, default=0, metadata=in_range(AT_LEAST_0))
    """Steps after which the feedback on an action arrives."""

    @abc.abstractmethod
    def feedback(self, probs: StateActionTable, tables: PathTables, discount: Number) -> StateActionTable:
        """Feedback on each action of a learner that acts with the probabilities ``probs``."""


class TaskFeedback(Trainer):
    """The reward of the task: it depends neither on the policy nor on what follows."""

    def feedback(self, probs: StateActionTable, tables: PathTables, discount: Number) -> StateActionTable:
        """The rewards of all steps."""
        return tables.rewards


class ActionFeedback(Trainer):
    """1 for an action of the trainer's target policy, the best one, and -1 for any other, whatever the learner does."""

    def feedback(self, probs: StateActionTable, tables: PathTables, discount: Number) -> StateActionTable:
        """Whether actions are among the best."""
        return jnp.where(optimal_actions(tables, discount), 1.0, -1.0)


class AdvantageFeedback(Trainer):
    """How much better an action is than what the learner does: its advantage under the current policy.

    Its returns diminish: what a learner always does earns nothing.
    """

    def feedback(self, probs: StateActionTable, tables: PathTables, discount: Number) -> StateActionTable:
        """The advantages of all actions, without noise."""
        return advantages(probs, tables, discount)


class ImprovementFeedback(Trainer):
    """1 for an action that is better than what the learner does, -1 for a worse one, and nothing where they are equal.

    It is the sign of the advantage under the current policy: praise ends once a learner always acts well.
    """

    threshold: Number = eqx.field(default=0.05, metadata=in_range(AT_LEAST_0))
    """Advantage that a trainer does not notice."""

    def feedback(self, probs: StateActionTable, tables: PathTables, discount: Number) -> StateActionTable:
        """The signs of advantages, 0 within the threshold."""
        advantage = advantages(probs, tables, discount)
        return jnp.where(jnp.abs(advantage) > self.threshold, jnp.sign(advantage), 0.0)
