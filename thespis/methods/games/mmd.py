r"""Magnetic mirror descent: self-play that comes to rest where nobody can gain, also where cards are hidden.

Plain policy gradients in self-play run in circles. Here each step is drawn to the policy before it and to the uniform
one, the magnet:

.. math:: \pi_{t+1} = \arg\max_\pi \; E_\pi[A] - \alpha_t \, KL(\pi \| uniform) - \tfrac{1}{\eta_t} KL(\pi \| \pi_t)

whose last iterate converges to the equilibrium regularised by :math:`\alpha`. Both :math:`\alpha` and :math:`\eta` shrink
as :math:`1 / \sqrt{1 + t / \tau}`, so that it nears an equilibrium of the game itself.

Source: Sokota et al., 2023, section 3 and its deep version, which is PPO with these two terms.
Differs from common code: advantages are not standardised, as that would change the weights; the second divergence is
estimated from the actions played, with an unbiased gradient.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from thespis.core.feeds import Rollouts
from thespis.core.records import Batch, Citation, Report
from thespis.learners.actor_critic import ActorCritic, Evaluated
from thespis.learners.averaging import Averaged
from thespis.learners.gradient import Number, gradient_step
from thespis.learners.minibatches import columns, epochs
from thespis.learners.on_policy import OnPolicy, OnPolicyState, replay
from thespis.objectives.normalise import explained_variance, mean
from thespis.objectives.policies import kl_k3, ppo_clip, reverse_kl


class MirrorDescent(OnPolicy):
    """The steps of magnetic mirror descent; any tree of actions."""

    learning_rate: Number = 1e-3
    """Step size."""
    discount: Number = 1.0
    """Discount per step, in [0, 1]."""
    trace: Number = 0.95
    """Lambda of the generalised advantage, in [0, 1]."""
    clip: Number = 0.5
    """Largest change of the ratio that still earns."""
    magnet: Number = 0.2
    """First weight of the divergence from the uniform policy, in units of reward."""
    inertia: Number = 0.5
    """First weight of the divergence from the policy before, which grows as the other one shrinks."""
    halfway: Number = 50.0
    """Updates after which the magnet's weight is 0.7 of the first one; then it shrinks with the root of their number."""
    epochs: int = eqx.field(static=True, default=4)
    """Passes over each rollout."""
    minibatch: int = eqx.field(static=True, default=1024)
    """Transitions per gradient step; with memory, rounded to whole sequences."""
    optimiser: Literal["adam", "rmsprop"] = eqx.field(static=True, default="adam")
    """How gradients become steps: adam or rmsprop."""
    feed: Rollouts = eqx.field(static=True, default=Rollouts(length=32, envs=128))
    """Rollouts: length, envs."""

    name: ClassVar[str] = "mirror_descent"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("A Unified Approach to RL, Quantal Response Equilibria, and Two-Player Zero-Sum Games",
                 "Sokota et al.", 2023, "arXiv:2206.05825"),
    )  # fmt: skip
    details: ClassVar[tuple[str, ...]] = (
        "orthogonal weights: sqrt(2) hidden, 0.01 policy, 1 value",
        "advantages as they are, not standardised",
        "Adam epsilon 1e-5, global gradient norm clipped",
    )

    def update(self, state: OnPolicyState, batch: Batch, key: Key[Array, ""]) -> tuple[OnPolicyState, Report]:
        """All epochs on one rollout."""
        assessor, stepper = self.assessor(), self.stepper()
        verdict = assessor.assess(state.network, state.scales, batch)
        data = columns((verdict, batch.memory), joined=self.memory is not None)
        shrunk = 1.0 / jnp.sqrt(1.0 + batch.index / self.halfway)

        def step(carry, minibatch):
            network, opt = carry
            network, opt, metrics, norm = gradient_step(
                stepper, lambda n: self._loss(n, *minibatch, shrunk), network, opt
            )
            return (network, opt), metrics | {"gradient": norm}

        (network, opt), metrics = epochs(step, (state.network, state.opt), data, self.epochs, self.minibatch, key)
        metrics["explained_variance"] = explained_variance(verdict.value, verdict.target, verdict.alive)
        metrics["shrunk"] = shrunk
        return OnPolicyState(network, opt, assessor.learn_scales(state.scales, batch)), Report(metrics)

    def _loss(
        self, network: ActorCritic, data: Evaluated, memory: Any, shrunk: Float[Array, ""]
    ) -> tuple[Array, dict[str, Array]]:
        now = replay(network, memory, data)
        log_ratio = now.log_prob - data.log_prob
        actor_loss = mean(ppo_clip(log_ratio, data.advantage, self.clip), data.alive)
        moved = mean(reverse_kl(now.log_prob, data.log_prob, data.log_prob), data.alive)
        critic_loss = mean(jnp.square(now.value - data.target), data.alive)
        drawn = self.inertia / shrunk * moved - self.magnet * shrunk * now.entropy
        return actor_loss + drawn + self.value_weight * critic_loss, {
            "actor_loss": actor_loss,
            "critic_loss": critic_loss,
            "entropy": now.entropy,
            "kl": mean(kl_k3(log_ratio), data.alive),
        }


class MMD(Averaged):
    """Magnetic mirror descent for games of two; every seat learns by itself, and the average of its policies plays."""

    method: MirrorDescent = MirrorDescent()
    """What takes the steps."""
    decay: Number = 0.999
    """Weight of the average before an update, in [0, 1]."""

    name: ClassVar[str] = "mmd"
    citations: ClassVar[tuple[Citation, ...]] = MirrorDescent.citations
    details: ClassVar[tuple[str, ...]] = (
        *MirrorDescent.details,
        "the running average of parameters plays and is judged; the newest policy explores",
    )
