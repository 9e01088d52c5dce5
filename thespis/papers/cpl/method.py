r"""Contrastive preference learning: log-probabilities of the policy as advantages, compared between two segments.

With a penalty on entropy, the optimal advantage is :math:`A^*(s, a) = \alpha \log \pi^*(a | s)`, and preferences by
regret compare sums of advantages. So the policy itself is fitted to the labels:

.. math:: L = -\log \frac{e^{S^+}}{e^{S^+} + e^{\lambda S^-}}, \qquad S = \sum_t \alpha \log \pi(a_t | s_t)

:math:`\lambda < 1` is the conservative bias: without it, both segments can become unlikely. Training begins with
behavior cloning of all segments.

Source: Hejna et al., 2023 (arXiv:2310.13639, equation 5 and section 3.2), and their code (github.com/jhejna/cpl).
Differs: policies are tables. Comparison methods, as in that code: cloning of the preferred segments (SFT), and P-IQL, a
reward by partial return with implicit Q-learning (Kostrikov et al., 2021).
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.records import Citation, Number
from thespis.data.feeds import Rollouts
from thespis.learners.optim.optimizers import LearningRate
from thespis.objectives.preferences import bradley_terry_loss
from thespis.papers.regret_preference_model.envs import GridTables
from thespis.papers.regret_preference_model.method import SegmentLearner
from thespis.papers.regret_preference_model.planning import StateActionTable
from thespis.papers.regret_preference_model.segments import SegmentPairs
from thespis.runs.ranges import AT_LEAST_0, in_range

_IQL = Citation("Offline Reinforcement Learning with Implicit Q-Learning", "Kostrikov et al.", 2021, "arXiv:2110.06169")
_CITATION = Citation(
    "Contrastive Preference Learning: Learning from Human Feedback without RL", "Hejna et al.", 2023, "arXiv:2310.13639"
)


def contrastive_loss(
    scores: Float[Array, "pair 2"], label: Float[Array, " pair"], bias: Number
) -> Float[Array, " pair"]:
    """Loss of labels in which the score of the segment that is not preferred counts ``bias`` times."""
    first, second = scores[:, 0], scores[:, 1]
    return label * jax.nn.softplus(bias * second - first) + (1.0 - label) * jax.nn.softplus(bias * first - second)


def mean_log_prob(log_probs: StateActionTable, pairs: SegmentPairs, weight: Float[Array, "pair 2"]) -> Float[Array, ""]:
    """Mean log-probability of the steps of segments, each with the weight of its segment."""
    num_steps = jnp.sum(weight * pairs.mask.sum(axis=-1))
    return jnp.sum(weight * pairs.sum_of(log_probs)) / jnp.maximum(num_steps, 1.0)


class TableSegmentLearner(SegmentLearner):
    """Base of methods whose policy is a table of logits, or has one among its tables."""

    teacher_value_weight: Number = 1.0
    """Weight of gains in optimal value in what preferences follow: 1 is regret, 0 partial return."""
    beta: Number = eqx.field(default=1.0, metadata=in_range(AT_LEAST_0))
    """Rationality of the teacher, per unit of reward."""
    discount: Number = 0.99
    """Discount of the teacher's values."""
    num_iterations: int = eqx.field(static=True, default=25)
    """Iterations of the teacher's planning."""
    learning_rate: LearningRate = 0.03
    """Step size."""
    num_gradient_steps: int = eqx.field(static=True, default=200)
    """Gradient steps per update, each on all pairs."""
    feed: Rollouts = eqx.field(static=True, default=Rollouts(num_steps=8, num_envs=1024))
    """Rollouts: num_steps is the length of a segment, num_envs twice the number of pairs."""
    stream: int = eqx.field(static=True, default=0)
    """Number of the stream of random actions and labels: another number gives other data."""


class SegmentCPL(TableSegmentLearner):
    """Contrastive preference learning with a table of logits; without its contrast, cloning of preferred segments."""

    alpha: Number = 0.1
    """Scale of log-probabilities: the temperature of the advantages."""
    bias: Number = 0.5
    """Weight of the segment that is not preferred, above 0 and at most 1: the paper's lambda."""
    num_cloning_updates: Number = 1
    """Updates of behavior cloning before."""
    is_contrastive: bool = eqx.field(static=True, default=True)
    """False: SFT, which goes on to clone, but the preferred segments alone."""

    name: ClassVar[str] = "segment-cpl"
    citations: ClassVar[tuple[Citation, ...]] = (_CITATION,)

    def init_params(self, tables: GridTables, key: Key[Array, ""]) -> StateActionTable:
        """A table in which all actions are alike."""
        return jnp.zeros(tables.next_state.shape)

    def loss(
        self, params: StateActionTable, pairs: SegmentPairs, tables: GridTables, progress: Number
    ) -> Float[Array, ""]:
        """Negative log-likelihood of all segments at first, then the contrastive loss."""
        log_probs = jax.nn.log_softmax(params, axis=1)
        preferred = jnp.stack([pairs.label, 1.0 - pairs.label], axis=1)
        cloning = -mean_log_prob(log_probs, pairs, jnp.ones_like(preferred))
        if self.is_contrastive:
            main = jnp.mean(contrastive_loss(self.alpha * pairs.sum_of(log_probs), pairs.label, self.bias))
        else:
            main = -mean_log_prob(log_probs, pairs, preferred)
        return jnp.where(progress < self.num_cloning_updates, cloning, main)

    def policy_logits(self, params: StateActionTable, tables: GridTables) -> StateActionTable:
        """The table of logits itself."""
        return params


class PIQLTables(eqx.Module):
    """Tables of P-IQL: rewards, action values, values and logits."""

    rewards: StateActionTable
    end_reward: Float[Array, ""]
    """Reward of each step after an episode's end, up to the segment's last."""
    q_values: StateActionTable
    values: Float[Array, " state"]
    logits: StateActionTable


class SegmentPIQL(TableSegmentLearner):
    """P-IQL: a reward by partial return, and implicit Q-learning on the steps of the same segments, with tables.

    Segments that an episode's end cuts short go on with steps of an own reward, which is then 0, so that a constant in
    the reward of every step changes neither comparisons nor the best policy.
    """

    expectile: Number = 0.7
    """Expectile of action values that values are fitted to, in (1/2, 1)."""
    temperature: Number = 0.3333
    """Temperature of the advantages that weight cloning: smaller values are greedier."""
    value_discount: Number = 0.99
    """Discount of the values that are learned."""
    max_weight: Number = 100.0
    """Largest weight of a step."""

    name: ClassVar[str] = "segment-piql"
    citations: ClassVar[tuple[Citation, ...]] = (_CITATION, _IQL)

    def init_params(self, tables: GridTables, key: Key[Array, ""]) -> PIQLTables:
        """All tables begin with zeros."""
        zeros = jnp.zeros(tables.next_state.shape)
        return PIQLTables(zeros, jnp.zeros(()), zeros, zeros[:, 0], zeros)

    def loss(self, params: PIQLTables, pairs: SegmentPairs, tables: GridTables, progress: Number) -> Float[Array, ""]:
        """The sum of the losses of all tables; each leaves the others as they are."""
        fixed: PyTree = jax.lax.stop_gradient(params)
        scores = self.segment_scores(params, pairs, tables)
        reward_loss = jnp.mean(bradley_terry_loss(scores[:, 0] - scores[:, 1], pairs.label))
        error = fixed.q_values - params.values[:, None]
        value_loss = jnp.where(error > 0, self.expectile, 1.0 - self.expectile) * jnp.square(error)
        following = jnp.where(tables.is_terminal, 0.0, fixed.values)[tables.next_state]
        rewards = fixed.rewards - fixed.end_reward
        q_loss = jnp.square(params.q_values - rewards - self.value_discount * following)
        advantage = fixed.q_values - fixed.values[:, None]
        weight = jnp.minimum(jnp.exp(advantage / self.temperature), self.max_weight)
        actor_loss = -weight * jax.nn.log_softmax(params.logits, axis=1)
        num_steps = jnp.maximum(jnp.sum(pairs.mask), 1)
        return reward_loss + jnp.sum(pairs.sum_of(value_loss + q_loss + actor_loss)) / num_steps

    def segment_scores(
        self, params: PIQLTables, pairs: SegmentPairs, tables: GridTables
    ) -> Float[Array, "pair segment"]:
        """Learned returns, with the reward of steps after an episode's end."""
        return pairs.sum_of(params.rewards) + jnp.sum(~pairs.mask, axis=-1) * params.end_reward

    def policy_logits(self, params: PIQLTables, tables: GridTables) -> StateActionTable:
        """The logits that weighted cloning has learned."""
        return params.logits
