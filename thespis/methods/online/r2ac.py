"""Real-time recurrent actor-critic: IMPALA with a core whose gradients reach back beyond the rollout.

Source: Irie, Gopalakrishnan and Schmidhuber, 2023; sizes are those of the authors' commands for ProcGen and Atari.
Differs from their code: actor and critic have a core each; what comes before the core sees no last reward and is as
wide as the observation asks for; losses are means, so the gradient's bound is not the paper's 40; no annealing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
from jaxtyping import Array

from thespis.core.feeds import Rollouts
from thespis.core.records import Citation
from thespis.learners.gradient import Number
from thespis.methods.online.impala import IMPALA
from thespis.nets.body import GRU
from thespis.nets.elstm import ELSTM


class R2AC(IMPALA):
    """R2AC; any tree of actions."""

    entropy_weight: Number = 0.01
    hidden: tuple[int, ...] = eqx.field(static=True, default=(256,))
    memory: GRU | ELSTM | None = eqx.field(static=True, default=ELSTM(256))
    activation: Callable[[Array], Array] = eqx.field(static=True, default=jax.nn.relu)
    feed: Rollouts = eqx.field(static=True, default=Rollouts(length=50, envs=32, lag=1))

    name: ClassVar[str] = "r2ac"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Exploring the Promise and Limits of Real-Time Recurrent Learning", "Irie et al.", 2024,
                 "arXiv:2305.19044"),
        *IMPALA.citations,
    )  # fmt: skip
