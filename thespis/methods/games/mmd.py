r"""Magnetic mirror descent: self-play policy gradient that converges to equilibria, with hidden information as well.

Plain policy gradients in self-play cycle. Here each step is regularized by the KL divergences from the previous policy
and from a magnet policy:

.. math:: \pi_{t+1} = \arg\max_\pi \; E_\pi[A] - \alpha \, KL(\pi \| \rho) - \tfrac{1}{\eta} KL(\pi \| \pi_t)

A fixed magnet :math:`\rho`, such as the uniform policy, leads to the equilibrium regularized by :math:`\alpha`; a
magnet that follows the policy slowly leads to an equilibrium of the game itself. As deep reinforcement learning it is
PPO with these two terms.

Source: Sokota et al., 2023, sections 3 and 5; the magnet as a cost in the reward: Perolat et al., 2022.

Differs from common code: advantages are not normalized, as that would change the weights; the magnet is the running
average of parameters, which is also the policy that plays and is evaluated; the opponent's divergence is not added to
the reward.

Policy averaging: act by a running average of the policy's parameters.

Iterates that circle around an equilibrium are near it on average. The latest policy explores and is what the update
changes; evaluation and play use the average. A penalty on leaving the average makes the circles narrower.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.core.contracts import HasActionProbs, Method, Mode
from thespis.core.errors import UserError
from thespis.core.feeds import Feed
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Number, Report, Transition, View
from thespis.data.feeds import Rollouts
from thespis.learners.on_policy.policy_regularizers import MagnetKL
from thespis.learners.optim.optimizers import InverseSqrtSchedule
from thespis.methods.online.ppo import PPO


class AveragedPolicyState(eqx.Module):
    """Training state: that of the wrapped method, and the average of its policies."""

    method_state: PyTree
    average_policy: PyTree
    num_updates: Int[Array, ""]


_RECENCY_WEIGHT = 3.0
"""While all policies are averaged, the n-th has a weight proportional to n (n + 1); 1 here would be the plain mean."""


class AveragedPolicyMethod(eqx.Module):
    r"""Wrapper method whose evaluated policy is the average of its policies. A concrete class supplies the ``method``.

    With a ``magnet_coef`` :math:`\alpha` it learns from rewards minus :math:`\alpha \log \pi(a) / \rho(a)`, where
    :math:`\rho` is the average before the update. Where both are equal the penalty is 0: a fixed point is an
    equilibrium.
    """

    method: eqx.AbstractVar[Method]
    ema_decay: eqx.AbstractVar[Number]
    magnet_coef: eqx.AbstractVar[Number | None]

    name: eqx.AbstractClassVar[str]
    citations: eqx.AbstractClassVar[tuple[Citation, ...]]
    details: eqx.AbstractClassVar[tuple[str, ...]]

    @property
    def feed(self) -> Feed:
        """Feed of the wrapped method."""
        return self.method.feed

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> AveragedPolicyState:
        """Fresh state of the method; the average is its first policy."""
        method_state = self.method.init(spec, key)
        average = jax.tree.map(jnp.array, self.method.policy(method_state, Mode.EXPLORE))
        return AveragedPolicyState(method_state, average, jnp.zeros((), "int32"))

    def policy(self, state: AveragedPolicyState, mode: Mode) -> PyTree:
        """The latest policy in ``EXPLORE`` mode, else the average."""
        latest = self.method.policy(state.method_state, mode)
        if mode is Mode.EXPLORE:
            return latest
        return jax.tree.unflatten(jax.tree.structure(latest), jax.tree.leaves(state.average_policy))

    def init_memory(self, policy: PyTree, n: int) -> Any:
        """Initial memories of the wrapped method."""
        return self.method.init_memory(policy, n)

    def act(self, policy: PyTree, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """Actions of the wrapped method."""
        return self.method.act(policy, memory, view, key)

    def action_probs(self, policy: PyTree, memory: Any, view: View) -> PyTree:
        """Action probabilities of the wrapped method.

        Raises ``UserError`` if it has none.
        """
        if not isinstance(self.method, HasActionProbs):
            raise UserError(f"{self.method.name} has no action probabilities: use a method that provides them")
        return self.method.action_probs(policy, memory, view)

    def judge(self, state: AveragedPolicyState, episode: Transition) -> Critique:
        """Critique by the latest critic."""
        return self.method.judge(state.method_state, episode)

    def update(
        self, state: AveragedPolicyState, batch: Batch, key: Key[Array, ""]
    ) -> tuple[AveragedPolicyState, Report]:
        """One update of the method, then one step of the average.

        Raises ``UserError`` if ``magnet_coef`` is set and the policy has memory.
        """
        batch = batch if self.magnet_coef is None else self._penalize_rewards(state, batch, self.magnet_coef)
        method_state, report = self.method.update(state.method_state, batch, key)
        count = state.num_updates + 1
        step_size: Float[Array, ""] = jnp.maximum(
            1.0 - jnp.asarray(self.ema_decay), _RECENCY_WEIGHT / (count + _RECENCY_WEIGHT)
        )
        latest = self.method.policy(method_state, Mode.EXPLORE)

        def interpolate(old: Array, new: Array) -> Array:
            return old + (step_size * (new - old)).astype(old.dtype) if jnp.issubdtype(old.dtype, jnp.floating) else new

        return AveragedPolicyState(method_state, jax.tree.map(interpolate, state.average_policy, latest), count), report

    def _penalize_rewards(self, state: AveragedPolicyState, batch: Batch, magnet_coef: Number) -> Batch:
        """The batch with the penalty for leaving the average subtracted from its rewards."""
        if jax.tree.leaves(batch.memory):
            raise UserError(
                f"{self.method.name} has memory, with which magnet_coef does not work: set magnet_coef=none"
            )
        average, steps = self.policy(state, Mode.SAMPLE), batch.steps
        average_probs = jax.vmap(lambda view: self.action_probs(average, batch.memory, view))(steps.view)
        prob = jnp.take_along_axis(average_probs, steps.action[..., None], axis=-1)[..., 0]
        cost = magnet_coef * (steps.extras["log_prob"] - jnp.log(prob + 1e-30))
        if steps.view.alive is not None:
            cost = jnp.where(steps.view.alive, cost, 0.0)
        return eqx.tree_at(lambda b: b.steps.reward, batch, steps.reward - cost)


def default_ppo() -> PPO:
    """PPO settings of MMD: both KL penalties, for games whose payoffs are a few units."""
    feed, regularizer = Rollouts(num_steps=32, num_envs=128), MagnetKL(uniform_coef=0.0, kl_coef=5.0)
    return PPO(
        learning_rate=InverseSqrtSchedule(1e-3, 800.0),
        discount=1.0,
        gae_lambda=1.0,
        clip_range=0.5,
        advantage_normalizer=None,
        policy_regularizer=regularizer,
        num_epochs=4,
        minibatch_size=1024,
        feed=feed,
    )


class MMD(AveragedPolicyMethod):
    """Magnetic mirror descent: KL-regularized self-play PPO for two-player games; the parameter average plays."""

    method: PPO = default_ppo()
    """PPO that computes the updates."""
    ema_decay: Number = 0.997
    """Decay of the exponential moving average of parameters, in [0, 1]."""
    magnet_coef: Number | None = 0.2
    """Weight of the KL divergence from the average policy, in units of reward; None with a recurrent network."""

    name: ClassVar[str] = "mmd"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "A Unified Approach to RL, Quantal Response Equilibria, and Two-Player Zero-Sum Games",
            "Sokota et al.",
            2023,
            "arXiv:2206.05825",
        ),
        Citation("Mastering the Game of Stratego with Model-Free RL", "Perolat et al.", 2022, "arXiv:2206.15378"),
        *PPO.citations,
    )
    details: ClassVar[tuple[str, ...]] = (
        *PPO.details,
        "advantages are not normalized",
        "the running average of parameters plays and is evaluated; the latest policy explores",
    )
