r"""Risk-sensitive PPO by convex scoring functions: an auxiliary variable turns risk into an expected objective.

.. math:: \min_\pi \rho(Y) = \min_v h\Big(\min_\pi E[f(Y, v)], v\Big), \qquad Y = \text{the episode's cost}

Actor and critic observe :math:`v`, sampled for every episode around the best value so far with a decreasing standard
deviation; after each update the best value is that of the latest costs. The score :math:`f` is paid by differences as
the episode's cost grows: rewards sum to the score at its end, and with ``MeanCost`` they are the environment's rewards.
The optimal action depends on the return so far, which the environment should observe
(:class:`thespis.papers.convex_scoring_risk_sensitive_ac.envs.ReturnObservation`).

Source: Han et al., 2025: abstract, and what a reproduction by others and notes on the paper say of algorithm and
hyperparameters.

Differs from that: PPO instead of one plain step on the critic's one-step targets; the score by differences; the best
:math:`v` is exact on the sample for every risk measure, where the paper uses gradient steps except for expected
shortfall.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.contracts import Mode
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Number, Report, Transition, View
from thespis.core.spaces import Box, dict_space
from thespis.data.feeds import Episodes
from thespis.methods.online.ppo import PPO
from thespis.papers.convex_scoring_risk_sensitive_ac.risk_measures import (
    ExpectedShortfall,
    MeanCost,
    RiskMeasure,
    estimate_risk,
)
from thespis.runtime.keys import fold, indexed_keys


class ConvexScoringState(eqx.Module):
    """Training state: PPO's state, the best auxiliary value so far and the standard deviation of sampled ones."""

    method_state: PyTree
    auxiliary: Float[Array, ""]
    auxiliary_std: Float[Array, ""]


class ConvexScoringPolicy(eqx.Module):
    """Acting policy: PPO's policy, and the distribution of the auxiliary value."""

    actor: PyTree
    auxiliary: Float[Array, ""]
    auxiliary_std: Float[Array, ""]


class ConvexScoring(eqx.Module):
    """Risk-sensitive PPO: minimizes a risk measure of the episode's cost by convex scoring; any action space."""

    method: PPO = PPO(discount=1.0)
    """PPO that acts and learns. Its discount should stay 1."""
    risk_measure: RiskMeasure = ExpectedShortfall()
    """Risk measure to minimize: ExpectedShortfall, MeanVariance, EntropicVaR or MeanCost."""
    initial_auxiliary_std: Number = 1.0
    """Initial standard deviation of the auxiliary value, in units of cost."""
    auxiliary_std_decay: Number = 0.99
    """Factor of the standard deviation after each update."""
    min_auxiliary_std: Number = 0.05
    """Minimum standard deviation."""
    auxiliary_learning_rate: Number = 1.0
    """Step size, in [0, 1], of the auxiliary value towards the best one of an update's episodes."""
    feed: Episodes = eqx.field(static=True, default=Episodes(num_envs=256))
    """Episodes: max_steps, num_envs."""

    name: ClassVar[str] = "convex-scoring"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "Risk-sensitive Reinforcement Learning Based on Convex Scoring Functions",
            "Han et al.",
            2025,
            "arXiv:2505.04553",
        ),
        *PPO.citations,
    )
    details: ClassVar[tuple[str, ...]] = (*PPO.details, "evaluated at the best auxiliary value, which is not sampled")

    @property
    def discount(self) -> Number:
        """Discount of the wrapped PPO."""
        return self.method.discount

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> ConvexScoringState:
        """Initialize PPO for the observation space with the auxiliary value."""
        augmented_space = dict_space(auxiliary=Box((1,)), own=spec.observation_space)
        method_state = self.method.init(dataclasses.replace(spec, observation_space=augmented_space), key)
        return ConvexScoringState(
            method_state,
            self.risk_measure.project_auxiliary(jnp.zeros(())),
            jnp.asarray(self.initial_auxiliary_std, "float32"),
        )

    def policy(self, state: ConvexScoringState, mode: Mode) -> ConvexScoringPolicy:
        """PPO's policy; auxiliary values are sampled in explore mode only."""
        std = state.auxiliary_std if mode is Mode.EXPLORE else jnp.zeros(())
        return ConvexScoringPolicy(self.method.policy(state.method_state, mode), state.auxiliary, std)

    def init_memory(self, policy: ConvexScoringPolicy, n: int) -> Any:
        """Auxiliary values, not yet sampled, and PPO's memory."""
        return (jnp.zeros(n, bool), jnp.zeros(n)), self.method.init_memory(policy.actor, n)

    def act(
        self, policy: ConvexScoringPolicy, memory: Any, view: View, key: Key[Array, ""]
    ) -> tuple[PyTree, Any, PyTree]:
        """Act with PPO on the observation with the episode's auxiliary value."""
        (is_sampled, previous), method_memory = memory
        noise = jax.vmap(jax.random.normal)(indexed_keys(fold(key, "auxiliary"), is_sampled.shape[0]))
        v = jnp.where(
            is_sampled,
            previous,
            jax.vmap(self.risk_measure.project_auxiliary)(policy.auxiliary + policy.auxiliary_std * noise),
        )
        action, method_memory, extras = self.method.act(
            policy.actor, method_memory, _augment_view(view, v), fold(key, "ppo")
        )
        return action, ((jnp.ones_like(is_sampled), v), method_memory), {**extras, "auxiliary": v}

    def judge(self, state: ConvexScoringState, episode: Transition) -> Critique:
        """PPO's critique under ``MeanCost``; otherwise empty, as PPO's values are scores and not returns."""
        if not isinstance(self.risk_measure, MeanCost):
            return Critique()
        v = jnp.broadcast_to(state.auxiliary, episode.reward.shape)
        views = _augment_view(episode.view, v), _augment_view(episode.next_view, v)
        return self.method.judge(state.method_state, eqx.tree_at(lambda e: (e.view, e.next_view), episode, views))

    def update(self, state: ConvexScoringState, batch: Batch, key: Key[Array, ""]) -> tuple[ConvexScoringState, Report]:
        """PPO's update on score rewards, then the update of the auxiliary value."""
        memory = self.method.init_memory(self.method.policy(state.method_state, Mode.EXPLORE), batch.mask.shape[1])
        scored = Batch(self._score_rewards(batch), batch.mask, memory, batch.update_index)
        method_state, report = self.method.update(state.method_state, scored, key)
        costs = -jnp.sum(jnp.where(batch.mask, batch.steps.reward, 0.0), axis=0)
        best = self.risk_measure.best_auxiliary(costs)
        auxiliary = self.risk_measure.project_auxiliary(
            state.auxiliary + self.auxiliary_learning_rate * (best - state.auxiliary)
        )
        std = jnp.maximum(self.auxiliary_std_decay * state.auxiliary_std, self.min_auxiliary_std)
        metrics = {"auxiliary": auxiliary, "spread": std, "risk": estimate_risk(self.risk_measure, costs)}
        return ConvexScoringState(method_state, auxiliary, std), Report({**report.metrics, **metrics})

    def _score_rewards(self, batch: Batch) -> Transition:
        """Steps whose reward is the decrease of their episode's score, with the auxiliary value in the observation."""
        steps, v = batch.steps, batch.steps.extras["auxiliary"]
        rewards = jnp.where(batch.mask, steps.reward, 0.0)
        cost = -jnp.cumsum(rewards, axis=0)
        score = jax.vmap(jax.vmap(self.risk_measure.score))
        reward = jnp.where(batch.mask, score(cost + rewards, v) - score(cost, v), 0.0)
        view = dataclasses.replace(_augment_view(steps.view, v), alive=batch.mask)
        return dataclasses.replace(steps, view=view, next_view=_augment_view(steps.next_view, v), reward=reward)


def _augment_view(view: View, auxiliary: Float[Array, "..."]) -> View:
    return View(
        {"auxiliary": auxiliary[..., None], "own": view.observation}, view.action_mask, view.alive, view.game_state
    )
