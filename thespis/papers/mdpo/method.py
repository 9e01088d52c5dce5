r"""Mirror descent policy optimization, on-policy and off-policy: trust region as a KL penalty to an earlier policy.

On-policy (:class:`MDPO`), with several gradient steps per rollout:

.. math:: \max_\pi \; E[\rho A] - \tfrac{1}{t_k} E_s\left[ KL(\pi \| \pi_k) \right]

The ratio is not clipped; the step size :math:`t_k` decays towards 0 over the run (``policy_regularizer.num_updates``,
in rollouts).

Off-policy (:class:`OffPolicyMDPO`) it is soft actor-critic with a KL penalty to an earlier actor. For
``trust_region.update_interval`` updates the actor maximizes Q-value and entropy, minus its divergence from the actor at
the start of these updates.

Source: Tomar et al., 2022, algorithm 1 (on-policy) and algorithm 2 (off-policy); hyperparameters are those of the
authors' code.

Theirs has separate critic steps (:attr:`MDPO.critic_epochs`), and whole rollouts as the actor's minibatches.

Differs from it, on-policy: the gradient of the critic's own steps is clipped like that of the actor's, and truncated
episodes bootstrap. Off-policy: the actor maximizes the minimum of the critics, theirs the first critic; the divergence
is exact; the means and standard deviations themselves are not penalized.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import Array, Key

from thespis.core.feeds import RolloutFeed, WindowFeed
from thespis.core.records import Batch, Citation, EnvSpec, Number, Report
from thespis.critics.value_functions import critic_observation
from thespis.data.feeds import Replay, Rollouts
from thespis.learners.off_policy.trust_region import MirrorDescentStep, TrustRegion
from thespis.learners.on_policy.actor_critic import ActorCriticNetwork, RolloutWithAdvantages
from thespis.learners.on_policy.method import OnPolicyState
from thespis.learners.on_policy.policy_regularizers import MirrorDescentKL, PolicyRegularizer
from thespis.learners.optim.normalizers import ObsNormalizer, ReturnNormalizer, RewardNormalizer, RunningMeanStd
from thespis.methods.online.ppo import PPO
from thespis.methods.online.sac_v import SACV
from thespis.objectives.statistics import masked_mean
from thespis.objectives.value_losses import clipped_value_loss
from thespis.runtime.keys import fold


class MDPO(PPO):
    """Mirror descent policy optimization, on-policy: policy gradient with a decaying KL penalty instead of clipping."""

    clip_range: Number = 1e9
    """Clip range of the ratio: so large that nothing is clipped."""
    policy_regularizer: PolicyRegularizer | None = MirrorDescentKL()
    obs_normalizer: ObsNormalizer | None = RunningMeanStd()
    reward_normalizer: RewardNormalizer | None = ReturnNormalizer()
    minibatch_size: int = eqx.field(static=True, default=512)
    critic_epochs: int = eqx.field(static=True, default=0)
    """Epochs of the critic's own gradient steps, after the actor's and with an optimizer of their own (0: the critic is
    trained in the actor's steps). In the authors' code 5."""
    critic_minibatch_size: int = eqx.field(static=True, default=128)
    """Transitions per gradient step of the critic's own."""
    value_clip_range: Number = 0.2
    """Clip range of values in the critic's own steps, in units of normalized rewards."""
    feed: RolloutFeed = eqx.field(static=True, default=Rollouts(num_steps=2048, num_envs=1))

    name: ClassVar[str] = "mdpo"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Mirror Descent Policy Optimization", "Tomar et al.", 2022, "arXiv:2005.09814"),
        *PPO.citations,
    )

    def init_from(self, spec: EnvSpec, network: ActorCriticNetwork) -> OnPolicyState:
        """Learner state that starts from ``network``; with separate critic steps it has two optimizer states."""
        state = super().init_from(spec, network)
        if not self.critic_epochs:
            return state
        return dataclasses.replace(state, opt_state=(state.opt_state, self.make_optimizer().init(network)))

    def update(self, state: OnPolicyState, batch: Batch, key: Key[Array, ""]) -> tuple[OnPolicyState, Report]:
        """Gradient steps of the trust-region problem on one rollout, then those of the critic."""
        if not self.critic_epochs:
            return super().update(state, batch, key)
        actor_opt_state, critic_opt_state = state.opt_state
        rollout = self.rollout_processor().compute_advantages(state.network, state.normalizer_states, batch)
        actor_state, report = dataclasses.replace(self, vf_coef=0.0, critic_epochs=0).update(
            dataclasses.replace(state, opt_state=actor_opt_state), batch, fold(key, "actor")
        )
        critic_state, metrics = self.update_minibatches(
            OnPolicyState(actor_state.network, critic_opt_state, state.normalizer_states),
            batch,
            rollout,
            self._critic_loss,
            self.critic_epochs,
            self.critic_minibatch_size,
            fold(key, "critic"),
        )
        opt_states = (actor_state.opt_state, critic_state.opt_state)
        report = report.with_metrics({"critic_loss": metrics["critic_loss"]})
        return dataclasses.replace(critic_state, opt_state=opt_states), report

    def _critic_loss(
        self, network: ActorCriticNetwork, data: RolloutWithAdvantages, memory: Any
    ) -> tuple[Array, dict[str, Array]]:
        observation = critic_observation(data.privileged, data.view.observation)
        value, _ = network.values(memory, observation, data.is_first)
        loss = masked_mean(clipped_value_loss(value, data.value, data.target, self.value_clip_range), data.alive)
        return loss, {"critic_loss": loss}


class OffPolicyMDPO(SACV):
    """Off-policy mirror descent policy optimization: soft actor-critic with a KL penalty to an earlier actor."""

    trust_region: TrustRegion | None = MirrorDescentStep()
    """Trust region of the actor: MirrorDescentStep or None."""
    feed: WindowFeed = eqx.field(static=True, default=Replay(batch_size=256, learning_starts=10_000))
    """Replay buffer: buffer_size, batch_size, learning_starts, num_updates."""

    name: ClassVar[str] = "mdpo-off"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Mirror Descent Policy Optimization", "Tomar et al.", 2022, "arXiv:2005.09814"),
        *SACV.citations,
    )
