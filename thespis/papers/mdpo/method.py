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

Differs from it, on-policy: minibatches of a quarter of the rollout where theirs uses whole rollouts, actor and critic
are trained on them jointly, and the critic's values are not clipped. Off-policy: the actor maximizes the minimum of the
critics, theirs the first critic; the divergence is exact; the means and standard deviations themselves are not
penalized.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx

from thespis.core.feeds import RolloutFeed, WindowFeed
from thespis.core.records import Citation, Number
from thespis.data.feeds import Replay, Rollouts
from thespis.learners.off_policy.trust_region import MirrorDescentStep, TrustRegion
from thespis.learners.on_policy.policy_regularizers import MirrorDescentKL, PolicyRegularizer
from thespis.learners.optim.normalizers import ObsNormalizer, ReturnNormalizer, RewardNormalizer, RunningMeanStd
from thespis.methods.online.ppo import PPO
from thespis.methods.online.sac_v import SACV


class MDPO(PPO):
    """Mirror descent policy optimization, on-policy: policy gradient with a decaying KL penalty instead of clipping."""

    clip_range: Number = 1e9
    """Clip range of the ratio: so large that nothing is clipped."""
    policy_regularizer: PolicyRegularizer | None = MirrorDescentKL()
    obs_normalizer: ObsNormalizer | None = RunningMeanStd()
    reward_normalizer: RewardNormalizer | None = ReturnNormalizer()
    minibatch_size: int = eqx.field(static=True, default=512)
    feed: RolloutFeed = eqx.field(static=True, default=Rollouts(num_steps=2048, num_envs=1))

    name: ClassVar[str] = "mdpo"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Mirror Descent Policy Optimization", "Tomar et al.", 2022, "arXiv:2005.09814"),
        *PPO.citations,
    )


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
