r"""Categorical deep Q-network (C51): distributional Q-learning over a fixed grid of returns, with epsilon-greedy play.

The return distribution of the next action with the highest mean is shifted by the reward, scaled by the discount,
projected onto the atoms, and used as the target of a cross-entropy:

.. math:: \min_\theta \; -\sum_i m_i \log p_i(s, a; \theta), \quad m = \Pi \left[ r + \gamma z, p(s', a^*) \right]

An ensemble of ``ensemble_size`` members can learn in parallel, each from its own share of a batch, with targets from
its own distribution or from the mixture of all members (``target_distribution``). Each member acts in episodes of its
own; in exploit mode they act together.

With ``dueling``, ``double_q``, ``noisy=NoisyNetwork()`` and ``feed=Replay(sequence_length=3,
sampler=PrioritizedSampler(), ...)`` it is Rainbow (Hessel et al., 2018), of which every part can be left out.

Source: Bellemare et al., 2017, algorithm 1; ensemble: Lindenberg et al., 2020, and their code. Hyperparameters are
theirs, except ``learning_starts``: 1,000 steps instead of 50,000.

Differs from Rainbow: the two dueling streams share all hidden layers. Differs from the ensemble's code: members share
one replay buffer, where there each has its own buffer and its own environment; epsilon decays with updates. Returns
outside ``v_min`` and ``v_max`` cannot be represented: widen the range.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
from jaxtyping import Array, Key

from thespis.core.errors import UserError
from thespis.core.feeds import WindowFeed
from thespis.core.records import Batch, Citation, EnvSpec, Number, Report
from thespis.critics.categorical import CategoricalQ
from thespis.data.feeds import Replay
from thespis.learners.off_policy.categorical_q import (
    MemberDistribution,
    TargetDistribution,
    categorical_targets,
    fit_distributions,
    split_batch,
)
from thespis.learners.off_policy.critic_updates import n_step_batch
from thespis.learners.off_policy.discrete_q import (
    DiscreteQMethod,
    DiscreteQState,
    EpsilonGreedy,
    MemberExploration,
    PerEpisode,
)
from thespis.learners.optim.optimizers import LearningRate, Optimizer, OptimizerFactory, build_optimizer
from thespis.nets.noisy import NetworkNoise, draw_noise


class C51(EpsilonGreedy, DiscreteQMethod):
    """Categorical deep Q-network (C51): distributional Q-learning; one discrete action, optionally an ensemble."""

    learning_rate: LearningRate = 2.5e-4
    """Learning rate."""
    optimizer: OptimizerFactory | None = None
    """Optimizer: None (Adam) or OptaxOptimizer (any of optax)."""
    adam_epsilon: Number = 3.125e-4
    """Adam's epsilon, added to the root of the mean squared gradient."""
    final_epsilon: Number = 0.01
    """Probability of a random action after ``epsilon_decay_updates`` updates."""
    epsilon_decay_updates: Number = 62_500.0
    """Updates over which epsilon decays linearly."""
    target_distribution: TargetDistribution = MemberDistribution()
    """Distribution that targets are built from: MemberDistribution (own) or MixtureDistribution (ensemble average)."""
    exploration: MemberExploration = PerEpisode()
    """When the exploring ensemble member changes: PerEpisode or PerStep."""
    double_q: bool = eqx.field(static=True, default=False)
    """Double Q-learning: the online network chooses the next action, the target network evaluates it."""
    noisy: NetworkNoise | None = None
    """Exploration by noisy layers: None (epsilon-greedy) or NoisyNetwork."""
    v_min: float = eqx.field(static=True, default=-10.0)
    """Smallest discounted return that can be represented."""
    v_max: float = eqx.field(static=True, default=10.0)
    """Largest discounted return that can be represented."""
    num_atoms: int = eqx.field(static=True, default=51)
    """Number of atoms, evenly spaced from ``v_min`` to ``v_max``."""
    ensemble_size: int = eqx.field(static=True, default=1)
    """Networks that learn in parallel; ``feed.batch_size`` is split among them in equal shares."""
    target_update_interval: int = eqx.field(static=True, default=2_500)
    """Updates between copies of the networks to the target networks."""
    feed: WindowFeed = eqx.field(
        static=True, default=Replay(buffer_size=900_000, batch_size=32, learning_starts=1_000, update_interval=4)
    )
    """Replay buffer: buffer_size, batch_size, learning_starts, update_interval, num_updates, sequence_length
    (n-step)."""

    name: ClassVar[str] = "c51"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "A Distributional Perspective on Reinforcement Learning", "Bellemare et al.", 2017, "arXiv:1707.06887"
        ),
        Citation(
            "Rainbow: Combining Improvements in Deep Reinforcement Learning", "Hessel et al.", 2018, "arXiv:1710.02298"
        ),
    )
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps, termination does not",
        "the target network chooses the next action by its mean return, without double_q",
        "cross-entropy, Adam, global gradient norm clipped; returns clipped into the range of the atoms",
    )

    def init_network(self, spec: EnvSpec, key: Key[Array, ""]) -> CategoricalQ:
        """Initialize one ensemble member. Raises ``UserError`` for unsupported settings."""
        if self.num_atoms < 2 or self.v_max <= self.v_min:
            raise UserError(f"{self.name} needs num_atoms >= 2 and v_max > v_min: change these settings")
        support = {"v_min": self.v_min, "v_max": self.v_max, "num_atoms": self.num_atoms}
        network = CategoricalQ(
            spec, self.hidden_sizes, key, **support, dueling=self.dueling, options=self.network_options
        )
        return network if self.noisy is None else self.noisy.add_noise(network)

    def update(self, state: DiscreteQState, batch: Batch, key: Key[Array, ""]) -> tuple[DiscreteQState, Report]:
        """One gradient step of every member; targets are copied every ``target_update_interval`` updates."""
        shares = split_batch(n_step_batch(batch, self.discount), self.ensemble_size)
        loss_key, target_key, selection_key = jax.random.split(key, 3)  # of the noise, if the layers are noisy
        selectors = draw_noise(state.critic, selection_key) if self.double_q else None
        target_critic = draw_noise(state.target_critic, target_key)
        target = categorical_targets(self.target_distribution, target_critic, shares, selectors)
        critic, opt, report = fit_distributions(
            self.make_optimizer(),
            state.critic,
            state.opt_state,
            shares,
            target,
            prepare=lambda critics: draw_noise(critics, loss_key),
        )
        return self.update_target(state, critic, opt), report

    def make_optimizer(self) -> Optimizer:
        """Build the optimizer of the networks from the settings."""
        return build_optimizer(self.optimizer, self.learning_rate, self.max_grad_norm, self.adam_epsilon)
