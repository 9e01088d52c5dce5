"""N-step Q-learning and Sarsa: value-based learning from fresh rollouts, without a replay buffer.

``Q(s, a)`` regresses on ``G_t = r_t + gamma [(1 - lambda) q_t + lambda G_{t+1}]`` with ``lambda`` the setting
``td_lambda``, ``G_{t+1} = q_t`` at the rollout's end and ``q_t`` the target network's value of the next action: the
best one (:class:`QLearning`) or the one taken (:class:`Sarsa`). Lambda 0 gives one-step targets, lambda 1 the longest
return in the rollout; neither corrects for exploratory actions on the way.

Source: Mnih et al., 2016, algorithms 1, S1 and S2, in a synchronous form; lambda between 0 and 1: Peng and Williams,
1996.

Differs from common code: each episode, not each thread, draws its final epsilon; epsilon decays with updates;
truncation bootstraps with the true final observation; illegal actions are neither taken nor part of the maximum.
"""

from __future__ import annotations

import abc
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.actors.epsilon_greedy import epsilon_greedy
from thespis.actors.policy_heads import vmap_act
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.feeds import RolloutFeed
from thespis.core.records import Batch, Citation, Number, Report, Transition, View
from thespis.critics.value_functions import DiscreteQ
from thespis.data.feeds import Rollouts
from thespis.learners.off_policy.critic_updates import NStepBatch, fit_critics
from thespis.learners.off_policy.discrete_q import (
    DiscreteQMethod,
    DiscreteQState,
    ensemble_q_values,
    legal_q_values,
    mask_illegal,
)
from thespis.learners.optim.optimizers import RMSProp
from thespis.objectives.returns import lambda_returns


class Bootstrap(eqx.Module):
    """Slot: the value of the next observation in targets."""

    @abc.abstractmethod
    def next_value(self, q_values: Float[Array, "time row n"], steps: Transition) -> Float[Array, "time row"]:
        """Value of each step's true next observation; ``q_values`` are those of all actions there."""


class QLearning(Bootstrap):
    """Bootstrap from the best legal next action (Watkins, 1989), whatever was done next."""

    def next_value(self, q_values: Float[Array, "time row n"], steps: Transition) -> Float[Array, "time row"]:
        """Value of each step's true next observation; ``q_values`` are those of all actions there."""
        return jnp.max(mask_illegal(q_values, steps.next_view.action_mask), axis=-1)


class Sarsa(Bootstrap):
    """Bootstrap from the next action that was taken (Rummery and Niranjan, 1994).

    At a rollout's last step and at a truncation there is none: then the expectation over the epsilon-greedy policy is
    used (Expected Sarsa, van Seijen et al., 2009), with ``epsilon`` as stored in the step's extras.
    """

    def next_value(self, q_values: Float[Array, "time row n"], steps: Transition) -> Float[Array, "time row"]:
        """Value of each step's true next observation; ``q_values`` are those of all actions there."""
        next_action = jnp.roll(steps.action, -1, axis=0)
        next_q_value = jnp.take_along_axis(q_values, next_action[..., None], axis=-1)[..., 0]
        has_next_action = ~steps.done & (jnp.arange(q_values.shape[0]) < q_values.shape[0] - 1)[:, None]
        return jnp.where(has_next_action, next_q_value, self._expected_value(q_values, steps))

    def _expected_value(self, q_values: Array, steps: Transition) -> Array:
        """Expected value of the next action under the epsilon-greedy policy."""
        action_mask, epsilon = steps.next_view.action_mask, steps.extras["epsilon"]
        best = jnp.max(mask_illegal(q_values, action_mask), axis=-1)
        return (1 - epsilon) * best + epsilon * jnp.mean(q_values, axis=-1, where=action_mask)


_UNSET = -1.0


class NStepQPolicy(eqx.Module):
    """Acting policy of n-step Q-learning: the critic and the parts of epsilon.

    Epsilon is ``base_epsilon + final_epsilon_weight * final`` with the episode's final epsilon.
    """

    critic: DiscreteQ
    base_epsilon: Float[Array, ""]
    final_epsilon_weight: Float[Array, ""]


class NStepQ(DiscreteQMethod):
    """N-step Q-learning or Sarsa: fits Q-values to returns of fresh rollouts, with a final epsilon for each episode."""

    learning_rate: Number = 7e-4
    """Learning rate."""
    td_lambda: Number = 1.0
    """Lambda of the returns, in [0, 1]: 0 for one-step targets, 1 for the longest return in the rollout."""
    epsilon_decay_updates: Number = 1_000.0
    """Updates over which epsilon decays linearly from 1 to the episode's final epsilon."""
    bootstrap: Bootstrap = QLearning()
    """Value of the next action in targets: QLearning (maximum) or Sarsa (action taken)."""
    final_epsilons: tuple[float, ...] = eqx.field(static=True, default=(0.1, 0.01, 0.5))
    """Final epsilons; every episode draws one of them."""
    final_epsilon_probs: tuple[float, ...] = eqx.field(static=True, default=(0.4, 0.3, 0.3))
    """Probability of each final epsilon; they sum to 1."""
    target_update_interval: int = eqx.field(static=True, default=100)
    """Updates between copies of the network to the target network."""
    feed: RolloutFeed = eqx.field(static=True, default=Rollouts(num_steps=5, num_envs=8))
    """Rollouts: num_steps, num_envs."""

    ensemble_size: ClassVar[int] = 1
    name: ClassVar[str] = "n-step-q"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Asynchronous Methods for Deep Reinforcement Learning", "Mnih et al.", 2016, "arXiv:1602.01783"),
        Citation("Incremental Multi-Step Q-Learning", "Peng and Williams", 1996, "Machine Learning 22"),
    )
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps with the true final observation",
        "synchronous: one step on all environments' rollouts",
        "every episode draws its final epsilon at its first step",
        "Sarsa takes the mean over epsilon-greedy choices where the rollout ends or an episode is truncated",
        "mean squared error, RMSProp with epsilon 1e-5, started at 1; global gradient norm clipped",
    )

    def policy(self, state: DiscreteQState, mode: Mode) -> NStepQPolicy:
        """The critic with decaying epsilons in explore mode, the final ones in sample mode, 0 in exploit mode."""
        progress = jnp.clip(state.num_updates / self.epsilon_decay_updates, 0.0, 1.0)
        base, final_weight = {
            Mode.EXPLORE: (1.0 - progress, progress),
            Mode.SAMPLE: (0.0, 1.0),
            Mode.EXPLOIT: (0.0, 0.0),
        }[mode]
        return NStepQPolicy(state.critic, jnp.asarray(base, "float32"), jnp.asarray(final_weight, "float32"))

    def init_memory(self, policy: NStepQPolicy, n: int) -> Float[Array, " n"]:
        """Final epsilons, not yet drawn. Raises ``UserError`` if their probabilities do not fit."""
        if len(self.final_epsilons) != len(self.final_epsilon_probs) or abs(sum(self.final_epsilon_probs) - 1) > 1e-6:
            raise UserError(
                f"final_epsilons are {self.final_epsilons}: give as many final_epsilon_probs, which sum to 1"
            )
        return jnp.full(n, _UNSET)

    def act(
        self, policy: NStepQPolicy, memory: Float[Array, " n"], view: View, key: Key[Array, ""]
    ) -> tuple[PyTree, Float[Array, " n"], PyTree]:
        """Epsilon-greedy action with the episode's final epsilon, which is drawn at its first step."""

        def single(final, view, key):
            draw_key, key = jax.random.split(key)
            initial = jax.random.choice(draw_key, jnp.array(self.final_epsilons), p=jnp.array(self.final_epsilon_probs))
            final = jnp.where(final < 0, initial, final)
            epsilon = policy.base_epsilon + policy.final_epsilon_weight * final
            action = epsilon_greedy(legal_q_values(policy.critic, view)[0], view.action_mask, epsilon, key)
            return action, final, {"epsilon": epsilon}

        return vmap_act(single, memory, view, key)

    def update(self, state: DiscreteQState, batch: Batch, key: Key[Array, ""]) -> tuple[DiscreteQState, Report]:
        """One gradient step on one rollout."""
        steps = batch.steps
        values = jax.vmap(jax.vmap(lambda view: ensemble_q_values(state.target_critic, view)[0]))(steps.next_view)
        returns = jax.vmap(lambda_returns, in_axes=(1, 1, 1, 1, None, None), out_axes=1)(
            steps.reward,
            self.bootstrap.next_value(values, steps),
            steps.terminated,
            steps.done,
            self.discount,
            self.td_lambda,
        )
        flattened = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (steps, returns))
        data = NStepBatch(
            flattened[0].view, flattened[0].action, flattened[1], jnp.zeros_like(flattened[1]), flattened[0].next_view
        )
        critic, opt, report = fit_critics(self.make_optimizer(), state.critic, state.opt_state, data, data.reward)
        return self.update_target(state, critic, opt), report.with_metrics(
            {"epsilon": jnp.mean(steps.extras["epsilon"])}
        )

    def make_optimizer(self) -> RMSProp:
        """Build the optimizer of the networks from the settings."""
        return RMSProp(self.learning_rate, self.max_grad_norm)
