"""Deep Q-network: off-policy Q-learning from replay, with a target network and epsilon-greedy exploration.

``Q(s, a)`` regresses on ``r + gamma max_a' Q_target(s', a')``. With ``double_q``, the online network chooses ``a'`` and
the target network evaluates it (van Hasselt et al., 2016); ``dueling`` separates state value and advantage (Wang et
al., 2016); ``feed.sequence_length`` steps give n-step targets; ``feed.sampler`` may be prioritized (Schaul et al.,
2016); ``noisy`` layers explore in place of random actions (Fortunato et al., 2018); ``target_network`` may be a chain
of networks (Vincent et al., 2024). Each is one setting. Distributions of returns:
:class:`~thespis.methods.online.c51.C51`.

Source: Mnih et al., 2015.

Differs from common code: epsilon decays with updates, not with environment steps; illegal actions are neither taken nor
part of the maximum. Where targets scatter by more than ``huber_delta`` and unevenly, the minimum of the Huber loss is
not their mean, and values are biased (too low where rare returns are high): set a larger ``huber_delta``.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
from jaxtyping import Array, Key

from thespis.core.feeds import WindowFeed
from thespis.core.records import Batch, Citation, EnvSpec, Number, Report
from thespis.critics.value_functions import DiscreteQ
from thespis.data.feeds import Replay
from thespis.learners.off_policy.critic_updates import fit_critics, n_step_batch
from thespis.learners.off_policy.discrete_q import (
    DiscreteQMethod,
    DiscreteQState,
    EpsilonGreedy,
    MemberExploration,
    PeriodicCopy,
    PerStep,
    TargetUpdate,
    legal_q_values,
)
from thespis.learners.optim.optimizers import LearningRate, Optimizer, OptimizerFactory, build_optimizer
from thespis.nets.noisy import NetworkNoise, draw_noise
from thespis.objectives.value_losses import double_q_value, huber_loss


class DQN(EpsilonGreedy, DiscreteQMethod):
    """Deep Q-network: off-policy Q-learning for one discrete action; double, dueling and n-step as options."""

    learning_rate: LearningRate = 1e-4
    """Learning rate."""
    optimizer: OptimizerFactory | None = None
    """Optimizer: None (Adam) or OptaxOptimizer (any of optax)."""
    huber_delta: Number = 1.0
    """TD error, in units of reward, beyond which the Huber loss is linear; a large value gives the squared error."""
    double_q: bool = eqx.field(static=True, default=True)
    """Double Q-learning: the online network chooses the next action, the target network evaluates it."""
    noisy: NetworkNoise | None = None
    """Exploration by noisy layers: None (epsilon-greedy) or NoisyNetwork."""
    target_network: TargetUpdate = PeriodicCopy()
    """Target network update: PeriodicCopy, or IteratedTargets (a chain of networks, several Bellman updates at
    once)."""
    target_update_interval: int = eqx.field(static=True, default=1_000)
    """Updates between copies of the network to the target network."""
    feed: WindowFeed = eqx.field(static=True, default=Replay(batch_size=64, learning_starts=1_000, update_interval=4))
    """Replay buffer: buffer_size, batch_size, learning_starts, update_interval, num_updates, sequence_length
    (n-step)."""

    exploration: ClassVar[MemberExploration] = PerStep()
    name: ClassVar[str] = "dqn"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Human-level control through deep reinforcement learning", "Mnih et al.", 2015, "Nature 518"),
        Citation("Deep Reinforcement Learning with Double Q-learning", "van Hasselt et al.", 2016, "arXiv:1509.06461"),
        Citation("Dueling Network Architectures", "Wang et al.", 2016, "arXiv:1511.06581"),
        Citation("Noisy Networks for Exploration", "Fortunato et al.", 2018, "arXiv:1706.10295"),
    )
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps, termination does not",
        "Huber loss, Adam, global gradient norm clipped",
        "n-step windows are cut at an episode's end and discounted by their own length",
    )

    @property
    def ensemble_size(self) -> int:
        """Number of Q-networks that are learned."""
        return self.target_network.ensemble_size

    def init_network(self, spec: EnvSpec, key: Key[Array, ""]) -> DiscreteQ:
        """Q-network of one fresh member."""
        network = DiscreteQ(spec, self.hidden_sizes, key, dueling=self.dueling, options=self.network_options)
        return network if self.noisy is None else self.noisy.add_noise(network)

    def update(self, state: DiscreteQState, batch: Batch, key: Key[Array, ""]) -> tuple[DiscreteQState, Report]:
        """One gradient step of every network, then the target network update."""
        data = n_step_batch(batch, self.discount)
        loss_key, target_key, selection_key = jax.random.split(key, 3)  # of the noise, if the layers are noisy
        evaluator = draw_noise(state.target_critic, target_key)
        next_q = jax.vmap(lambda view: legal_q_values(evaluator, view))(data.next_view)
        selection_q = next_q
        if self.double_q:
            selector = draw_noise(state.critic, selection_key)
            selection_q = jax.vmap(lambda view: legal_q_values(selector, view))(data.next_view)
        next_value = jax.vmap(jax.vmap(double_q_value))(selection_q, next_q)
        critic, opt, report = fit_critics(
            self.make_optimizer(),
            state.critic,
            state.opt_state,
            data,
            data.reward[:, None] + data.discount[:, None] * next_value,
            lambda error: huber_loss(error, self.huber_delta),
            prepare=lambda critics: draw_noise(critics, loss_key),
        )
        critic, target = self.target_network.update(
            critic, state.target_critic, state.num_updates + 1, self.target_update_interval
        )
        return DiscreteQState(critic, target, opt, state.num_updates + 1), report

    def make_optimizer(self) -> Optimizer:
        """Build the optimizer of the networks from the settings."""
        return build_optimizer(self.optimizer, self.learning_rate, self.max_grad_norm)
