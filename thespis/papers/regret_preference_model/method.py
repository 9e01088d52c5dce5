r"""Reward from preferences between segments, with exact planning: preferences follow regret, or partial return.

The reward is linear in the features of steps, :math:`r(s, a) = w \cdot \phi(s, a)`, and the first of two segments is
preferred with the probability :math:`\sigma(S_1 - S_2)`. A segment's score is its partial return or minus its regret:

.. math:: S = \sum_{t < T} r_t \qquad \mathrm{or} \qquad S = \sum_{t < T} r_t + V^*_r(s_T) - V^*_r(s_0)

:math:`V^*_r` is the optimal value under the learned reward itself, 0 after an episode's end. The policy that is played
is the best one for the learned reward, by planning with the known dynamics.

Source: Knox et al., 2022 (arXiv:2206.02231, equations 1 to 4). Differs: the value is exact, by value iteration, through
which the gradient passes, where they take a soft maximum over the successor features of a set of policies.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Number, Report, Transition, View
from thespis.data.feeds import Rollouts
from thespis.learners.optim.optimizers import Adam, LearningRate, Optimizer, gradient_step
from thespis.objectives.preferences import bradley_terry_loss
from thespis.papers.regret_preference_model.envs import GridTables
from thespis.papers.regret_preference_model.planning import StateActionTable, action_values, optimal_values
from thespis.papers.regret_preference_model.segments import SegmentPairs, empty_pairs, pair_rows
from thespis.runs.ranges import AT_LEAST_0, in_range
from thespis.runtime.keys import fold


class SegmentLearnerState(eqx.Module):
    """Training state: parameters, optimizer, the labelled pairs, and what is known of the dynamics."""

    params: PyTree
    opt_state: PyTree
    pairs: SegmentPairs
    tables: GridTables


class TablePolicy(eqx.Module):
    """Policy by a table of preferences for actions."""

    logits: StateActionTable
    mode: Mode = eqx.field(static=True)


class SegmentLearner(eqx.Module):
    """Base of methods that learn from labelled pairs of segments of a delivery grid, all of them asked for at once.

    The segments of the first rollout are the data; later ones are not used. Actions are random in all of them.
    """

    teacher_value_weight: eqx.AbstractVar[Number]
    beta: eqx.AbstractVar[Number]
    discount: eqx.AbstractVar[Number]
    num_iterations: eqx.AbstractVar[int]
    stream: eqx.AbstractVar[int]
    learning_rate: eqx.AbstractVar[LearningRate]
    num_gradient_steps: eqx.AbstractVar[int]
    feed: eqx.AbstractVar[Rollouts]

    details: ClassVar[tuple[str, ...]] = ("the pairs are the segments of the first rollout",)

    @abc.abstractmethod
    def init_params(self, tables: GridTables, key: Key[Array, ""]) -> PyTree:
        """The parameters with which training begins."""

    @abc.abstractmethod
    def loss(self, params: PyTree, pairs: SegmentPairs, tables: GridTables, progress: Number) -> Float[Array, ""]:
        """Loss on all pairs; ``progress``: the number of updates so far."""

    @abc.abstractmethod
    def policy_logits(self, params: PyTree, tables: GridTables) -> StateActionTable:
        """Logits of actions that are played."""

    def segment_scores(self, params: PyTree, pairs: SegmentPairs, tables: GridTables) -> Float[Array, "pair segment"]:
        """What is learned of each segment, larger for the preferred one: by default how likely the policy makes it."""
        return pairs.sum_of(jax.nn.log_softmax(self.policy_logits(params, tables)))

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> SegmentLearnerState:
        """Untrained parameters and no pairs. Raises ``UserError`` where the environment tells no tables."""
        if not isinstance(spec.params, GridTables):
            raise UserError(f"{spec.name} tells no tables to plan with: use a DeliveryGrid")
        tables = jax.tree.map(jnp.asarray, spec.params)
        params = self.init_params(tables, key)
        pairs = empty_pairs(self.feed.num_envs // 2, self.feed.num_steps)
        return SegmentLearnerState(params, self.optimizer().init(params), pairs, tables)

    def optimizer(self) -> Optimizer:
        """Adam, for all parameters alike."""
        return Adam(self.learning_rate)

    def optimal_values(self, rewards: StateActionTable, tables: GridTables) -> Float[Array, " state"]:
        """Values of the best policy for rewards."""
        return optimal_values(rewards, tables.next_state, tables.is_terminal, self.discount, self.num_iterations)

    def policy(self, state: SegmentLearnerState, mode: Mode) -> TablePolicy:
        """The table of logits."""
        return TablePolicy(self.policy_logits(state.params, state.tables), mode)

    def init_memory(self, policy: TablePolicy, n: int) -> tuple[()]:
        """No memory: the observation says all."""
        return ()

    def act(self, policy: TablePolicy, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """Random actions to collect segments; else drawn by the logits, or the first of the best."""
        logits = view.observation @ policy.logits
        if policy.mode is Mode.EXPLORE:
            rows, num_actions = logits.shape
            return jax.random.randint(fold(key, "actions", self.stream), (rows,), 0, num_actions, "int32"), memory, ()
        if policy.mode is Mode.EXPLOIT:
            return jnp.argmax(logits, axis=-1).astype("int32"), memory, ()
        return jax.random.categorical(key, logits).astype("int32"), memory, ()

    def judge(self, state: SegmentLearnerState, episode: Transition) -> Critique:
        """No critique: labels compare segments, and say nothing of a step."""
        return Critique()

    def update(
        self, state: SegmentLearnerState, batch: Batch, key: Key[Array, ""]
    ) -> tuple[SegmentLearnerState, Report]:
        """Gradient steps on all pairs, which are those of the first batch."""
        tables = state.tables
        asked = pair_rows(batch)
        scores = asked.scores(tables.rewards, self.optimal_values(tables.rewards, tables), self.teacher_value_weight)
        asked = asked.with_labels(scores, self.beta, fold(key, "labels", self.stream))
        pairs = jax.tree.map(lambda new, old: jnp.where(batch.update_index == 0, new, old), asked, state.pairs)

        def step(carry: tuple[PyTree, PyTree], _: None) -> tuple[tuple[PyTree, PyTree], Array]:
            def loss(params: PyTree) -> tuple[Array, Array]:
                value = self.loss(params, pairs, tables, batch.update_index)
                return value, value

            params, opt_state, value = gradient_step(self.optimizer(), loss, *carry)[:3]
            return (params, opt_state), value

        (params, opt_state), losses = jax.lax.scan(step, (state.params, state.opt_state), None, self.num_gradient_steps)
        return SegmentLearnerState(params, opt_state, pairs, tables), Report({"loss": losses.mean()})


class PreferencePlanner(SegmentLearner):
    """Reward from preferences by regret or by partial return, and the best policy for it by planning."""

    value_weight: Number = 1.0
    """Weight of gains in optimal value in what preferences are taken to follow: 1 is regret, 0 partial return."""
    teacher_value_weight: Number = 1.0
    """The same weight in what they do follow: the teacher knows the true rewards."""
    beta: Number = eqx.field(default=1.0, metadata=in_range(AT_LEAST_0))
    """Rationality of the teacher, per unit of reward; with 0 labels are random."""
    discount: Number = 0.99
    """Discount of values; rewards within a segment are not discounted."""
    num_iterations: int = eqx.field(static=True, default=25)
    """Iterations of planning: the horizon."""
    learning_rate: LearningRate = 0.3
    """Step size."""
    num_gradient_steps: int = eqx.field(static=True, default=20)
    """Gradient steps per update, each on all pairs."""
    feed: Rollouts = eqx.field(static=True, default=Rollouts(num_steps=3, num_envs=128))
    """Rollouts: num_steps is the length of a segment, num_envs twice the number of pairs."""
    stream: int = eqx.field(static=True, default=0)
    """Number of the stream of random actions and labels: another number gives other data."""

    name: ClassVar[str] = "preference-planner"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Models of human preference for learning reward functions", "Knox et al.", 2022, "arXiv:2206.02231"),
    )

    def init_params(self, tables: GridTables, key: Key[Array, ""]) -> Float[Array, " feature"]:
        """No reward for anything."""
        return jnp.zeros(tables.features.shape[-1])

    def loss(
        self, params: Float[Array, " feature"], pairs: SegmentPairs, tables: GridTables, progress: Number
    ) -> Float[Array, ""]:
        """Mean cross-entropy of the labels."""
        rewards = tables.features @ params
        scores = pairs.scores(rewards, self.optimal_values(rewards, tables), self.value_weight)
        return jnp.mean(bradley_terry_loss(scores[:, 0] - scores[:, 1], pairs.label))

    def policy_logits(self, params: Float[Array, " feature"], tables: GridTables) -> StateActionTable:
        """Action values for the learned reward: the best action is played, or one is drawn by their softmax."""
        rewards = tables.features @ params
        values = self.optimal_values(rewards, tables)
        return action_values(rewards, values, tables.next_state, tables.is_terminal, self.discount)
