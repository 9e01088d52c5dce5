"""Mirror descent policy optimisation off policy: soft actor-critic in which each actor is held to an earlier one.

For ``hold.every`` updates the actor climbs action values and entropy, less its divergence from the one that began them.

Source: Tomar et al., 2022, algorithm 2; sizes are those of the authors' code. Differs from it: the actor climbs the
least action value, theirs the first; the divergence is exact; means and deviations are not penalised themselves.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx

from thespis.core.feeds import Replay
from thespis.core.records import Citation
from thespis.learners.held import Hold, Steps
from thespis.methods.online.sac_v import SACV


class OffPolicyMDPO(SACV):
    """MDPO off policy; continuous boxes and discrete choices."""

    hold: Hold = Steps()
    """What holds the actor to what it was: Steps or Loose."""
    feed: Replay = eqx.field(static=True, default=Replay(batch=256, warmup=10_000))
    """Replay: capacity, batch, warmup, updates."""

    name: ClassVar[str] = "mdpo-off"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Mirror Descent Policy Optimization", "Tomar et al.", 2022, "arXiv:2005.09814"),
        *SACV.citations,
    )
