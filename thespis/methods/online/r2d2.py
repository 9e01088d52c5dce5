r"""Recurrent replay (R2D2): deep Q-learning with memory, from sequences that begin with the actor's stored memory.

Q-values depend on a recurrent memory of the episode. Each update replays sequences: their first ``feed.burn_in`` steps
only warm up memory, which starts as the actor's was (``feed.stored_memory``) or at zero; from the others it learns

.. math:: Q(h_t, a_t) \leftarrow h \left( \sum_{k<n} \gamma^k r_{t+k} + \gamma^n h^{-1} \left[ \bar Q(h_{t+n},
    \arg\max_a Q(h_{t+n}, a)) \right] \right)

with the value rescaling ``h``. With a prioritized sampler, the priority of a sequence is ``priority_max_weight`` times
its largest absolute TD error plus the rest times the mean one.

Without stored memory and burn-in, ``n_step=1`` and ``value_rescaling=None`` this is the deep recurrent Q-network (DRQN;
Hausknecht and Stone, 2015).

Source: Kapturowski et al., 2019, sections 2.3 and 3.

Differs: one actor with an epsilon that decays with updates, in place of 256 with an epsilon each; a GRU in place of an
LSTM; shorter sequences that begin anywhere (see :mod:`thespis.data.sequence_replay`); targets that reach beyond the
end of a sequence bootstrap there, with fewer steps; sampling is uniform unless a sampler is set.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.actors.epsilon_greedy import epsilon_greedy
from thespis.actors.policy_heads import vmap_act
from thespis.core.contracts import Mode
from thespis.core.feeds import SequenceFeed
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Number, Report, Transition, View
from thespis.critics.recurrent_q import RecurrentQ
from thespis.data.sequence_replay import SequenceReplay, StoredMemory
from thespis.learners.off_policy.discrete_q import (
    EpsilonGreedyPolicy,
    EpsilonSchedule,
    QLearningSettings,
    mask_illegal,
    require_discrete,
)
from thespis.learners.off_policy.recurrent_q import (
    NO_RESCALING,
    RecurrentQState,
    ValueRescaling,
    ValueTransform,
    sequence_priorities,
    sequence_q_values,
)
from thespis.learners.optim.optimizers import (
    LearningRate,
    Optimizer,
    OptimizerFactory,
    build_optimizer,
    gradient_step,
    polyak_update,
)
from thespis.nets.body import GRU, unroll
from thespis.nets.recurrent import RecurrentCore
from thespis.objectives.returns import sliding_n_step_returns
from thespis.objectives.value_losses import double_q_value
from thespis.runs.ranges import FRACTION, in_range


class R2D2(EpsilonSchedule, QLearningSettings):
    """Recurrent Q-learning (R2D2, DRQN): deep Q-network with memory, from replayed sequences; one discrete action."""

    learning_rate: LearningRate = 1e-4
    """Learning rate."""
    optimizer: OptimizerFactory | None = None
    """Optimizer: None (Adam) or OptaxOptimizer (any of optax)."""
    adam_epsilon: Number = 1e-3
    """Adam's epsilon, added to the root of the mean squared gradient."""
    value_rescaling: ValueTransform | None = ValueRescaling()
    """Scale on which Q-values are learned: None, or ValueRescaling (large returns are compressed)."""
    priority_max_weight: Number = eqx.field(default=0.9, metadata=in_range(FRACTION))
    """Weight of the largest TD error of a sequence in its priority, in [0, 1]; the rest is that of the mean."""
    double_q: bool = eqx.field(static=True, default=True)
    """Double Q-learning: the online network chooses the next action, the target network evaluates it."""
    memory: RecurrentCore | None = eqx.field(static=True, default=GRU())
    """Recurrent core after the hidden layers: GRU, ELSTM, None for none, or your own module:Class."""
    n_step: int = eqx.field(static=True, default=5)
    """Steps of targets, fewer at the end of an episode or of a sequence."""
    target_update_interval: int = eqx.field(static=True, default=2_500)
    """Updates between copies of the network to the target network."""
    feed: SequenceFeed = eqx.field(static=True, default=SequenceReplay())
    """Replay of sequences: buffer_size, batch_size, learning_starts, update_interval, num_updates, sequence_length,
    burn_in, stored_memory, sampler."""

    name: ClassVar[str] = "r2d2"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "Recurrent Experience Replay in Distributed Reinforcement Learning", "Kapturowski et al.", 2019, "ICLR 2019"
        ),
        Citation(
            "Deep Recurrent Q-Learning for Partially Observable MDPs", "Hausknecht and Stone", 2015, "arXiv:1507.06527"
        ),
        Citation(
            "Observe and Look Further: Achieving Consistent Performance on Atari",
            "Pohlen et al.",
            2018,
            "arXiv:1805.11593",
        ),
    )
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps with the true final observation, termination does not",
        "no gradient into the burn-in; the target network is warmed up by it too",
        "squared error, Adam, global gradient norm clipped",
    )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> RecurrentQState:
        """Fresh Q-network and target network.

        Raises ``UserError`` unless the action space is one discrete choice.
        """
        require_discrete(self.name, spec)
        critic = RecurrentQ(
            spec, self.hidden_sizes, key, memory=self.memory, dueling=self.dueling, options=self.network_options
        )
        return RecurrentQState(critic, critic, self.make_optimizer().init(critic), jnp.zeros((), "int32"))

    def init_memory(self, policy: EpsilonGreedyPolicy, n: int) -> Any:
        """Recurrent memory of ``n`` fresh episodes."""
        return policy.critic.init_memory(n)

    def act(
        self, policy: EpsilonGreedyPolicy, memory: Any, view: View, key: Key[Array, ""]
    ) -> tuple[PyTree, Any, PyTree]:
        """Epsilon-greedy action; in ``EXPLORE`` mode the memory before it is stored, if the feed wants it."""

        def single(memory, view, key):
            values, memory = policy.critic(memory, view.observation)
            legal = mask_illegal(values, view.action_mask)
            return epsilon_greedy(legal, view.action_mask, policy.epsilon, key), memory

        action, after = vmap_act(single, memory, view, key)
        stored = self.feed.stored_memory and policy.mode is Mode.EXPLORE
        return action, after, StoredMemory(memory) if stored else ()

    def judge(self, state: RecurrentQState, episode: Transition) -> Critique:
        """Value of the actions taken, and its advantage over the greedy ones; ``episode`` is ``[time]``."""
        steps = jax.tree.map(lambda x: x[:, None], (episode.view.observation, episode.is_first))
        values, _ = unroll(state.critic, state.critic.init_memory(1), *steps)
        values = (self.value_rescaling or NO_RESCALING).unscale(mask_illegal(values[:, 0], episode.view.action_mask))
        value = jnp.take_along_axis(values, episode.action[:, None], axis=1)[:, 0]
        return Critique(value=value, advantage=value - jnp.max(values, axis=1), discount=self.discount)

    def update(self, state: RecurrentQState, batch: Batch, key: Key[Array, ""]) -> tuple[RecurrentQState, Report]:
        """One gradient step on a batch of sequences, then the target network update."""
        memory, burn_in = batch.memory, self.feed.burn_in
        if not jax.tree.leaves(memory):
            memory = state.critic.init_memory(batch.mask.shape[1])
        targets = self.targets(state, memory, batch.steps)
        actions = batch.steps.action[burn_in:, :, None]

        def loss(critic: RecurrentQ):
            values, _ = sequence_q_values(critic, memory, batch.steps, burn_in)
            values = jnp.take_along_axis(values, actions, axis=2)[:, :, 0]
            row_losses = jnp.mean(0.5 * jnp.square(values - targets), axis=0)
            weighted = row_losses if batch.weights is None else row_losses * batch.weights
            return jnp.mean(weighted), (jnp.mean(row_losses), values)

        critic, opt_state, (critic_loss, values), norm = gradient_step(
            self.make_optimizer(), loss, state.critic, state.opt_state
        )
        num_updates = state.num_updates + 1
        copy = (num_updates % self.target_update_interval == 0).astype("float32")
        target = polyak_update(state.target_critic, critic, copy)
        metrics = {"critic_loss": critic_loss, "value": jnp.mean(values), "critic_gradient": norm}
        priorities = None if batch.weights is None else sequence_priorities(values - targets, self.priority_max_weight)
        return RecurrentQState(critic, target, opt_state, num_updates), Report(metrics, priorities)

    def targets(self, state: RecurrentQState, memory: Any, steps: Transition) -> Float[Array, "time row"]:
        """Targets of the steps after the burn-in, on the scale on which values are learned."""
        rescaling, burn_in = self.value_rescaling or NO_RESCALING, self.feed.burn_in
        _, next_q = sequence_q_values(state.target_critic, memory, steps, burn_in)
        selection_q = sequence_q_values(state.critic, memory, steps, burn_in)[1] if self.double_q else next_q
        next_value = rescaling.unscale(jax.vmap(jax.vmap(double_q_value))(selection_q, next_q))
        learned: Transition = jax.tree.map(lambda x: x[burn_in:], steps)
        returns = jax.vmap(sliding_n_step_returns, in_axes=(1, 1, 1, 1, None, None), out_axes=1)(
            learned.reward, next_value, learned.terminated, learned.done, self.discount, self.n_step
        )
        return rescaling.rescale(returns)

    def make_optimizer(self) -> Optimizer:
        """Build the optimizer of the network from the settings."""
        return build_optimizer(self.optimizer, self.learning_rate, self.max_grad_norm, self.adam_epsilon)
