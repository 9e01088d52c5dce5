"""Real-time recurrent actor-critic (R2AC): IMPALA with a recurrent core trained by real-time recurrent learning.

The core's gradients reach back beyond the start of the rollout.

Source: Irie, Gopalakrishnan and Schmidhuber, 2023; hyperparameters are those of the authors' commands for ProcGen and
Atari.

Differs from their code: actor and critic have a core each; the layers before the core do not see the last reward and
are as wide as the observation requires; losses are means, so the gradient clipping threshold is not the paper's 40; no
annealing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
from jaxtyping import Array

from thespis.core.feeds import RolloutFeed
from thespis.core.records import Citation, Number
from thespis.data.feeds import Rollouts
from thespis.methods.online.impala import IMPALA
from thespis.nets.elstm import ELSTM
from thespis.nets.recurrent import RecurrentCore


class R2AC(IMPALA):
    """Real-time recurrent actor-critic: IMPALA with an eLSTM core trained by real-time recurrent learning."""

    ent_coef: Number = 0.01
    hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=(256,))
    memory: RecurrentCore | None = eqx.field(static=True, default=ELSTM(256))
    activation: Callable[[Array], Array] = eqx.field(static=True, default=jax.nn.relu)
    feed: RolloutFeed = eqx.field(static=True, default=Rollouts(num_steps=50, num_envs=32, policy_lag=1))

    name: ClassVar[str] = "r2ac"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "Exploring the Promise and Limits of Real-Time Recurrent Learning", "Irie et al.", 2024, "arXiv:2305.19044"
        ),
        *IMPALA.citations,
    )
