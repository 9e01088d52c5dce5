r"""Mirror descent policy optimisation: some gradient steps on each trust-region problem, its constraint a penalty.

.. math:: \max_\pi \; E[\rho A] - \tfrac{1}{t_k} E_s\left[ KL(\pi \| \pi_k) \right]

The ratio is not clipped; the step size :math:`t_k` falls to nothing over the run (``anchor.updates``, in rollouts).

Source: Tomar et al., 2022, algorithm 1; sizes are those of the authors' code. Differs from it: minibatches of a quarter
where theirs has whole rollouts, actor and critic learn from them together, and the critic's values are not clipped.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx

from thespis.core.feeds import Rollouts
from thespis.core.records import Citation
from thespis.learners.anchors import Anchor, Proximal
from thespis.learners.gradient import Number
from thespis.learners.normalisers import ObservationScale, ReturnScale, RewardScale, RunningScale
from thespis.methods.online.ppo import PPO


class MDPO(PPO):
    """MDPO on policy; any tree of actions, with or without memory."""

    clip: Number = 1e9
    """Largest change of the ratio that still earns: any."""
    anchor: Anchor = Proximal()
    observations: ObservationScale = RunningScale()
    rewards: RewardScale = ReturnScale()
    minibatch: int = eqx.field(static=True, default=512)
    feed: Rollouts = eqx.field(static=True, default=Rollouts(length=2048, envs=1))

    name: ClassVar[str] = "mdpo"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Mirror Descent Policy Optimization", "Tomar et al.", 2022, "arXiv:2005.09814"),
        *PPO.citations,
    )
