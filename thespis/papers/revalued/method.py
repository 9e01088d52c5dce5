r"""Decoupled Q-networks, also as a regularized ensemble: the Q-value is the mean of one utility per dimension.

.. math:: Q(s, a) = \tfrac1N \sum_i U_i(s, a_i), \quad y = r + \gamma \tfrac1N \sum_i \max_{a_i} U_i(s', a_i)

The action space is factored: its dimensions are chosen separately. Each dimension of a box is discretized into
``num_bins`` values. An ensemble of ``ensemble_size`` members can learn in parallel, with targets of their own or of the
ensemble mean (``target_distribution``), and ``utility_regularizer`` can keep utilities near their previous values.

:class:`REValueD` is a regularized ensemble of decoupled Q-networks with common targets. Value decomposition reduces
overestimation but increases the variance of targets; the mean of ten members reduces it again. The regularizer
penalizes utilities where targets are unusual, so that a sub-action explored in one dimension does not spoil the
utilities of good choices in the others.

Source: Seyde et al., 2022 (:class:`DecQN`), from the authors' code; Ireland and Montana, 2024 (:class:`REValueD`), and
the authors' code, from which the hyperparameters of both are. The code of Ireland and Montana has no regularizer, and
their paper could be read in parts only: the form of ``UtilityPenalty`` and its weight follow what is said about it, not
its equation.

Differs from both: plain hidden layers, without normalization or residuals; epsilon decays linearly with updates.
Differs from Seyde et al.: Polyak-averaged target networks instead of periodic copies, 3 bins instead of 2, no
prioritized replay.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.actors.epsilon_greedy import epsilon_greedy_multidiscrete
from thespis.core.feeds import WindowFeed
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Number, Report, Transition, View
from thespis.critics.value_functions import evaluate_ensemble, init_ensemble
from thespis.data.feeds import Replay
from thespis.learners.off_policy.critic_updates import n_step_batch
from thespis.learners.off_policy.discrete_q import (
    DiscreteQState,
    EpsilonGreedy,
    EpsilonGreedyPolicy,
    MemberExploration,
    PerStep,
)
from thespis.learners.optim.optimizers import Adam, polyak_update
from thespis.objectives.value_losses import huber_loss
from thespis.papers.revalued.decoupled_q import (
    NO_REGULARIZER,
    DecoupledQ,
    EnsembleMeanTarget,
    MemberTarget,
    UtilityPenalty,
    UtilityRegularizer,
    UtilityTarget,
    discretize_actions,
    fit_utilities,
    utility_tables,
    utility_targets,
)


class DecQN(EpsilonGreedy):
    """Decoupled Q-network: Q-learning with one utility per action dimension; multi-discrete or binned box actions."""

    learning_rate: Number = 1e-4
    """Learning rate."""
    discount: Number = 0.99
    """Discount factor per step, in [0, 1]."""
    max_grad_norm: Number = 40.0
    """Global norm to which the gradient is clipped."""
    epsilon_decay_updates: Number = 4_000.0
    """Updates over which epsilon decays linearly; all dimensions explore at once."""
    tau: Number = 0.005
    """Polyak step size of the target networks."""
    huber_delta: Number = 1.0
    """TD error, in units of reward, beyond which the Huber loss is linear; a large value gives the squared error."""
    target_distribution: UtilityTarget = MemberTarget()
    """Value of the next state in targets: MemberTarget (own utilities) or EnsembleMeanTarget."""
    utility_regularizer: UtilityRegularizer | None = None
    """Regularizer of utilities towards their previous values: None or UtilityPenalty."""
    exploration: MemberExploration = PerStep()
    """When the exploring ensemble member changes: PerStep or PerEpisode."""
    ensemble_size: int = eqx.field(static=True, default=1)
    """Number of networks that learn in parallel from the same samples."""
    num_bins: int = eqx.field(static=True, default=3)
    """Values per dimension of a box, evenly spaced between its bounds; 2 is bang-bang control."""
    hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=(512, 512))
    """Units of each hidden layer."""
    feed: WindowFeed = eqx.field(
        static=True,
        default=Replay(
            buffer_size=500_000, batch_size=256, learning_starts=10_000, update_interval=5, sequence_length=3
        ),
    )
    """Replay buffer: buffer_size, batch_size, learning_starts, update_interval, num_updates, sequence_length
    (n-step)."""

    name: ClassVar[str] = "decqn"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Solving Continuous Control via Q-learning", "Seyde et al.", 2022, "arXiv:2210.12566"),
    )
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps, termination does not",
        "Huber loss of the mean utility, Adam, global gradient norm clipped",
        "n-step windows are cut at an episode's end and discounted by their own length",
    )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> DiscreteQState:
        """Initialize the networks and their target copies."""
        parts = discretize_actions(spec.action_space, self.num_bins, self.name)
        critic = init_ensemble(lambda k: DecoupledQ(spec, parts, self.hidden_sizes, k), self.ensemble_size, key)
        return DiscreteQState(critic, critic, self._make_optimizer().init(critic), jnp.zeros((), "int32"))

    def select_action(
        self, policy: EpsilonGreedyPolicy, values: Float[Array, " n"], view: View, key: Key[Array, ""]
    ) -> PyTree:
        """Epsilon-greedy action: the best choice in every dimension, or a random legal one."""
        parts = policy.critic.actions
        chosen = epsilon_greedy_multidiscrete(
            parts.pad_table(values), parts.discrete_space, view.action_mask, policy.epsilon, key
        )
        return parts.decode_action(chosen)

    def judge(self, state: DiscreteQState, episode: Transition) -> Critique:
        """Mean Q-values of the actions taken over members, their advantage over the best action, and disagreement."""

        def evaluate_step(view: View, action: Any) -> tuple[Array, Array]:
            best = jnp.max(jnp.mean(utility_tables(state.critic, view), axis=0), axis=-1)
            actions = jax.tree.map(lambda x: x[None], action)
            return evaluate_ensemble(state.critic, view.observation, actions)[:, 0], jnp.mean(best)

        member_values, best = jax.vmap(evaluate_step)(episode.view, episode.action)
        disagreement = jnp.std(member_values, axis=1) if self.ensemble_size > 1 else None
        value = jnp.mean(member_values, axis=1)
        return Critique(value=value, advantage=value - best, spread=disagreement, discount=self.discount)

    def update(self, state: DiscreteQState, batch: Batch, key: Key[Array, ""]) -> tuple[DiscreteQState, Report]:
        """One gradient step of every member, and one Polyak step of its target."""
        data = n_step_batch(batch, self.discount)
        target = utility_targets(self.target_distribution, state.critic, state.target_critic, data)
        critic, opt, metrics = fit_utilities(
            self._make_optimizer(),
            state.critic,
            state.target_critic,
            state.opt_state,
            data,
            target,
            lambda error: huber_loss(error, self.huber_delta),
            self.utility_regularizer or NO_REGULARIZER,
        )
        target_critic = polyak_update(state.target_critic, critic, self.tau)
        return DiscreteQState(critic, target_critic, opt, state.num_updates + 1), Report(metrics)

    def _make_optimizer(self) -> Adam:
        return Adam(self.learning_rate, self.max_grad_norm)


class REValueD(DecQN):
    """REValueD: regularized ensemble of decoupled Q-networks; multi-discrete or binned box actions."""

    target_distribution: UtilityTarget = EnsembleMeanTarget()
    """Value of the next state in targets: EnsembleMeanTarget or MemberTarget (own utilities)."""
    utility_regularizer: UtilityRegularizer | None = UtilityPenalty()
    """Regularizer of utilities towards their previous values: UtilityPenalty or None."""
    ensemble_size: int = eqx.field(static=True, default=10)
    """Number of networks that learn in parallel from the same samples."""

    name: ClassVar[str] = "revalued"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("REValueD: Regularised Ensemble Value-Decomposition", "Ireland, Montana", 2024, "arXiv:2401.08850"),
        *DecQN.citations,
    )
