r"""Offline preference-guided policy optimization: a context for each trajectory, and the context that is preferred.

A hindsight encoder embeds a segment :math:`\tau` in a context :math:`z = I(\tau)`, and a policy that is given this
context imitates the segment's actions (hindsight information matching). Preferences pull contexts of preferred segments
to a learned optimal context :math:`z^*`, and push those of the others away, by a triplet loss :math:`L_t`; the optimal
context is fitted by the same loss. Contexts are kept at a length of about 1:

.. math:: \min_{I, \pi} \; E\Big[-\sum_t \log \pi(a_t | s_t, I(\tau))\Big]
          + w_p \, L_t\big(z^*, I(\tau^+), I(\tau^-)\big) + w_n \, (\|I(\tau)\| - 1)^2, \qquad
          \min_{z^*} \; L_t\big(z^*, I(\tau^+), I(\tau^-)\big)

The policy that is played is :math:`\pi(a | s, z^*)`: there is no reward and no value.

Source: Kang et al., 2023 (arXiv:2305.16217), and their code (github.com/bkkgbkjb/OPPO). Differs: encoder and policy are
perceptrons on steps, where theirs are transformers, and the policy sees no history. Comparison methods: imitation of
segments given their true return, in place of a context, and implicit Q-learning with true rewards.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.records import Citation, Number
from thespis.learners.optim.optimizers import AdamW, LearningRate, Optimizer
from thespis.nets.mlp import MLP, Linear, orthogonal
from thespis.papers.cpl.method import PIQLTables, SegmentPIQL, TableSegmentLearner
from thespis.papers.oppo.losses import length, triplet_margin_loss, unit_length_penalty
from thespis.papers.regret_preference_model.envs import GridTables
from thespis.papers.regret_preference_model.planning import StateActionTable
from thespis.papers.regret_preference_model.segments import SegmentPairs
from thespis.runs.ranges import AT_LEAST_0, in_range
from thespis.runtime.keys import fold

CITATION = Citation(
    "Beyond Reward: Offline Preference-guided Policy Optimization", "Kang et al.", 2023, "arXiv:2305.16217"
)
_DECISION_TRANSFORMER = Citation(
    "Decision Transformer: Reinforcement Learning via Sequence Modeling", "Chen et al.", 2021, "arXiv:2106.01345"
)


class ContextPolicy(eqx.Module):
    """Policy of a cell and a context: logits of actions by a perceptron."""

    body: MLP
    head: Linear

    def __init__(
        self, num_states: int, context_size: int, num_actions: int, hidden_sizes: tuple[int, ...], key: Key[Array, ""]
    ):
        sizes = num_states + context_size, hidden_sizes
        self.body = MLP(*sizes, orthogonal(2**0.5), jax.nn.relu, fold(key, "body"))
        self.head = Linear(hidden_sizes[-1], num_actions, orthogonal(0.01), fold(key, "head"))

    def __call__(self, states: Float[Array, "state one_hot"], context: Float[Array, " context"]) -> StateActionTable:
        """Logits for states, all of them with one context."""
        inputs = jnp.concatenate([states, jnp.broadcast_to(context, (len(states), len(context)))], axis=1)
        return jax.vmap(lambda x: self.head(self.body(x)))(inputs)


class HindsightEncoder(eqx.Module):
    """Context of a segment: features of its steps, summed over time, and a perceptron of their sum."""

    steps: MLP
    body: MLP
    head: Linear

    def __init__(self, step_size: int, context_size: int, hidden_sizes: tuple[int, ...], key: Key[Array, ""]):
        gain, size = orthogonal(2**0.5), hidden_sizes[-1]
        self.steps = MLP(step_size, hidden_sizes, gain, jax.nn.relu, fold(key, "steps"))
        self.body = MLP(size, (size,), gain, jax.nn.relu, fold(key, "body"))
        self.head = Linear(size, context_size, orthogonal(1.0), fold(key, "head"))

    def __call__(self, steps: Float[Array, "time step"], mask: Bool[Array, " time"]) -> Float[Array, " context"]:
        """The context of the steps that are not masked."""
        features = jnp.sum(jax.vmap(self.steps)(steps), axis=0, where=mask[:, None])
        return self.head(self.body(features / len(steps)))


class ContextModel(eqx.Module):
    """Parameters of OPPO: hindsight encoder and policy, and the optimal context."""

    encoder: HindsightEncoder
    policy: ContextPolicy
    context: Float[Array, " context"]

    def embed(self, pairs: SegmentPairs) -> Float[Array, "pair 2 context"]:
        """The context of each segment of the pairs."""
        num_states = self.policy.body.layers[0].weight.shape[0] - len(self.context)
        num_actions = len(self.policy.head.bias)
        time = jnp.broadcast_to(jnp.arange(pairs.actions.shape[-1]), pairs.actions.shape)
        tokens = (pairs.states[..., :-1], num_states), (pairs.actions, num_actions), (time, time.shape[-1])
        steps = jnp.concatenate([jax.nn.one_hot(index, size) for index, size in tokens], axis=-1)
        return jax.vmap(jax.vmap(self.encoder))(steps, pairs.mask)


def imitation_loss(
    policy: ContextPolicy, pairs: SegmentPairs, contexts: Float[Array, "pair 2 context"], num_states: int
) -> Float[Array, ""]:
    """Mean negative log-probability of the steps of segments, each segment with its context."""

    def log_probs(states: Int[Array, " time"], actions: Int[Array, " time"], context: Array) -> Float[Array, " time"]:
        logits = policy(jax.nn.one_hot(states, num_states), context)
        return jnp.take_along_axis(jax.nn.log_softmax(logits), actions[:, None], axis=1)[:, 0]

    values = jax.vmap(jax.vmap(log_probs))(pairs.states[..., :-1], pairs.actions, contexts)
    return -jnp.sum(values, where=pairs.mask) / jnp.maximum(jnp.sum(pairs.mask), 1)


class ContextOptimizer(Optimizer):
    """AdamW with clipped gradients for encoder and policy, and another for the optimal context."""

    learning_rate: LearningRate
    context_learning_rate: LearningRate
    max_grad_norm: Number = 0.25
    weight_decay: Number = 1e-4

    def transform(self) -> Any:
        """The optimizer as an optax gradient transformation."""
        model = optax.chain(
            optax.clip_by_global_norm(self.max_grad_norm), AdamW(self.learning_rate, self.weight_decay).transform()
        )
        context = AdamW(self.context_learning_rate, self.weight_decay).transform()

        def labels(params: ContextModel) -> PyTree:
            return eqx.tree_at(lambda p: p.context, jax.tree.map(lambda _: "model", params), "context")

        return optax.partition({"model": model, "context": context}, labels)


class OPPO(TableSegmentLearner):
    """Offline preference-guided policy optimization, on all pairs of segments at once."""

    context_size: int = eqx.field(static=True, default=8)
    """Dimensions of contexts."""
    hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=(32, 32))
    """Units of the hidden layers of the policy, and of the encoder's network of steps."""
    preference_weight: Number = eqx.field(default=0.5, metadata=in_range(AT_LEAST_0))
    """Weight of the triplet loss in the loss of encoder and policy; with 0 it moves the optimal context alone."""
    length_weight: Number = eqx.field(default=0.1, metadata=in_range(AT_LEAST_0))
    """Weight of the penalty on lengths of contexts other than 1."""
    margin: Number = 1.0
    """Margin of the triplet loss."""
    context_learning_rate: LearningRate = 1e-3
    """Step size of the optimal context."""
    context_scale: Number = 0.1
    """Standard deviation with which the optimal context begins, in each dimension."""
    teacher_value_weight: Number = 0.0
    """Weight of gains in optimal value in what preferences follow: 1 is regret, 0 partial return."""
    learning_rate: LearningRate = 1e-3
    """Step size."""

    name: ClassVar[str] = "oppo"
    citations: ClassVar[tuple[Citation, ...]] = (CITATION,)

    def optimizer(self) -> Optimizer:
        """Other step sizes for the optimal context, whose gradient is not clipped."""
        return ContextOptimizer(self.learning_rate, self.context_learning_rate)

    def init_params(self, tables: GridTables, key: Key[Array, ""]) -> ContextModel:
        """Untrained networks, and a random optimal context."""
        num_states, num_actions = tables.next_state.shape
        step_size = num_states + num_actions + self.feed.num_steps
        return ContextModel(
            HindsightEncoder(step_size, self.context_size, self.hidden_sizes, fold(key, "encoder")),
            ContextPolicy(num_states, self.context_size, num_actions, self.hidden_sizes, fold(key, "policy")),
            self.context_scale * jax.random.normal(fold(key, "context"), (self.context_size,)),
        )

    def loss(self, params: ContextModel, pairs: SegmentPairs, tables: GridTables, progress: Number) -> Float[Array, ""]:
        """The losses of encoder and policy and of the optimal context; neither moves what the other learns."""
        embedded = params.embed(pairs)
        first_wins = pairs.label[:, None] > 0.5
        positive, negative = (jnp.where(first_wins, embedded[:, i], embedded[:, 1 - i]) for i in (0, 1))
        fixed = jax.lax.stop_gradient((params.context, positive, negative))
        return (
            imitation_loss(params.policy, pairs, embedded, len(tables.next_state))
            + self.preference_weight * jnp.mean(triplet_margin_loss(fixed[0], positive, negative, self.margin))
            + self.length_weight * jnp.mean(unit_length_penalty(embedded))
            + jnp.mean(triplet_margin_loss(params.context, *fixed[1:], self.margin))
        )

    def segment_scores(
        self, params: ContextModel, pairs: SegmentPairs, tables: GridTables
    ) -> Float[Array, "pair segment"]:
        """How near the context of each segment is to the optimal one."""
        return -length(params.embed(pairs) - params.context)

    def policy_logits(self, params: ContextModel, tables: GridTables) -> StateActionTable:
        """Logits in all cells, given the optimal context."""
        return params.policy(jnp.eye(len(tables.next_state)), params.context)


class ReturnConditionedImitation(TableSegmentLearner):
    """Imitation of segments given their true return, which is played with a large one; labels are not used."""

    hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=(32, 32))
    """Units of the hidden layers of the policy."""
    target_return: Number = 45.0
    """The return that is asked for."""
    return_scale: Number = 50.0
    """Returns are divided by it."""
    learning_rate: LearningRate = 1e-3
    """Step size."""

    name: ClassVar[str] = "return-conditioned-imitation"
    citations: ClassVar[tuple[Citation, ...]] = (_DECISION_TRANSFORMER,)

    def init_params(self, tables: GridTables, key: Key[Array, ""]) -> ContextPolicy:
        """An untrained policy, whose context is a return."""
        num_states, num_actions = tables.next_state.shape
        return ContextPolicy(num_states, 1, num_actions, self.hidden_sizes, fold(key, "policy"))

    def loss(
        self, params: ContextPolicy, pairs: SegmentPairs, tables: GridTables, progress: Number
    ) -> Float[Array, ""]:
        """Negative log-likelihood given the true partial return of the segment."""
        returns = pairs.sum_of(tables.rewards)[..., None] / self.return_scale
        return imitation_loss(params, pairs, returns, len(tables.next_state))

    def policy_logits(self, params: ContextPolicy, tables: GridTables) -> StateActionTable:
        """Logits in all cells, given the return that is asked for."""
        target = jnp.reshape(jnp.asarray(self.target_return / self.return_scale, "float32"), 1)
        return params(jnp.eye(len(tables.next_state)), target)


class SegmentIQL(SegmentPIQL):
    """Implicit Q-learning with true rewards on the steps of segments; labels are not used."""

    reward_scale: Number = 0.1
    """True rewards are multiplied by it."""

    name: ClassVar[str] = "segment-iql"

    def loss(self, params: PIQLTables, pairs: SegmentPairs, tables: GridTables, progress: Number) -> Float[Array, ""]:
        """The losses of P-IQL, for known rewards."""
        rewards = self.reward_scale * tables.rewards, jnp.zeros(())
        return super().loss(eqx.tree_at(lambda p: (p.rewards, p.end_reward), params, rewards), pairs, tables, progress)
