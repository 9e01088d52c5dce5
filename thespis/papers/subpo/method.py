r"""Submodular policy optimization: REINFORCE on whole episodes with marginal gains as rewards.

.. math:: \nabla J(\theta) = E \Big[ \sum_i \nabla \log \pi_\theta(a_i | s_i)
          \Big( \sum_{j \ge i} F(s_{j+1} | \tau_{0:j}) - b_i \Big) \Big]

:math:`F` is a monotone submodular function of the states of a trajectory :math:`\tau`: the value of a path is a set
function of its states. :math:`F(s | \tau)` is the marginal gain of one more state: the environment's reward
(:mod:`thespis.papers.subpo.envs`). There is no discount, and a horizon ends episodes. The policy is Markovian in its
observation, time included; ``memory`` makes it depend on the whole history (SubPO-NM).

The gain estimators weight the policy gradient. Rows hold one episode each; ``alive`` is false after its end.
``advantage`` is the return from an action on, minus the critic's value; the gains before an action are known when it is
taken.

Source: Prajapat et al., 2024; read: abstract and released code, from which hyperparameters and the learning rate (grid
coverage) are taken.

Differs from that code: for its grids, ``main.py`` weights an action by the value of the trajectory so far
(``advantage_estimator=GainSoFar``) without a baseline; here the baseline is a state-value critic, as in its code for
robots. No entropy coefficient that decays with the inverse of the update. As there, gradients are not clipped. No
natural gradient.
"""

from __future__ import annotations

import abc
from typing import ClassVar, Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from thespis.core.records import Batch, Citation, Number, Report
from thespis.data.feeds import Episodes
from thespis.learners.on_policy.method import OnPolicyMethod, OnPolicyState
from thespis.learners.optim.optimizers import LearningRate, OptimizerFactory

StepArray = Float[Array, "time row"]
AliveMask = Bool[Array, "time row"]


class GainEstimator(eqx.Module):
    """Slot: which gains of an episode an action is credited for."""

    @abc.abstractmethod
    def __call__(self, gain: StepArray, advantage: StepArray, alive: AliveMask) -> StepArray:
        """Credit of each action, from the gains and their advantages ``[time, row]``."""


class GainToGo(GainEstimator):
    """Gains from the action on, minus a baseline: unbiased (Prajapat et al. 2024)."""

    def __call__(self, gain: StepArray, advantage: StepArray, alive: AliveMask) -> StepArray:
        """Return the advantages unchanged."""
        return advantage


class TotalGain(GainEstimator):
    """Value of the whole path, minus the same baseline: unbiased too, but past gains only add variance."""

    def __call__(self, gain: StepArray, advantage: StepArray, alive: AliveMask) -> StepArray:
        """Advantages plus the gains before the action."""
        return advantage + cumulative_gain(gain, alive) - gain


class GainSoFar(GainEstimator):
    """Value of the path up to the state that the action leads to, as in the authors' released ``main.py``.

    Biased: an action is credited for gains it did not cause, and not for those it made possible. Without a baseline, as
    in their code.
    """

    def __call__(self, gain: StepArray, advantage: StepArray, alive: AliveMask) -> StepArray:
        """Gains up to the action, including its own."""
        return cumulative_gain(gain, alive)


def cumulative_gain(gain: StepArray, alive: AliveMask) -> StepArray:
    """Sum of the gains of the episode so far, including that of the step itself."""
    return jnp.cumsum(jnp.where(alive, gain, 0.0), axis=0)


class SubPO(OnPolicyMethod):
    """Submodular policy optimization: on-policy REINFORCE on marginal gains; any action space, optional memory."""

    learning_rate: LearningRate = 0.01
    """Learning rate."""
    discount: Number = 1.0
    """Discount factor per step, in [0, 1]."""
    gae_lambda: Number = 1.0
    """Lambda of generalized advantage estimation, in [0, 1]; 1 sums all later gains."""
    max_grad_norm: Number = 1e9
    """Global norm to which the gradient is clipped: so large that nothing is clipped."""
    advantage_estimator: GainEstimator = GainToGo()
    """Gains that weight an action: GainToGo, TotalGain or GainSoFar."""
    optimizer: Literal["adam", "rmsprop"] | OptimizerFactory = eqx.field(static=True, default="adam")
    """Optimizer: adam, rmsprop or OptaxOptimizer (any of optax)."""
    hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=(64, 32))
    """Units of each hidden layer, of actor and critic."""
    feed: Episodes = eqx.field(static=True, default=Episodes(num_envs=500))
    """Episodes: max_steps, num_envs."""

    name: ClassVar[str] = "subpo"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Submodular Reinforcement Learning", "Prajapat et al.", 2024, "arXiv:2307.13372"),
    )
    details: ClassVar[tuple[str, ...]] = (
        "one gradient step on one whole episode of every environment",
        "gains are not normalized",
        "a truncated episode bootstraps with the true final observation",
    )

    def update(self, state: OnPolicyState, batch: Batch, key: Key[Array, ""]) -> tuple[OnPolicyState, Report]:
        """One gradient step on one episode of every environment."""
        memory = state.network.init_memory(batch.mask.shape[1])  # every episode starts with fresh memory
        batch = eqx.tree_at(
            lambda b: (b.steps.view.alive, b.memory), batch, (batch.mask, memory), is_leaf=lambda x: x is None
        )
        rollout = self.rollout_processor().compute_values(state.network, state.normalizer_states, batch)
        to_go = self.rollout_processor().gae_advantages(rollout)
        evaluated = rollout.with_advantages(
            self.advantage_estimator(rollout.reward, to_go, batch.mask), rollout.value + to_go
        )
        state, metrics = self.update_full_batch(state, batch, evaluated)
        return state, Report(metrics)
