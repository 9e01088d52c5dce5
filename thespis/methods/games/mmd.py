r"""Magnetic mirror descent: self-play that comes to rest where nobody can gain, also where cards are hidden.

Plain policy gradients in self-play run in circles. Here each step is drawn to the policy before it and to the uniform
one, the magnet:

.. math:: \pi_{t+1} = \arg\max_\pi \; E_\pi[A] - \alpha_t \, KL(\pi \| uniform) - \tfrac{1}{\eta_t} KL(\pi \| \pi_t)

whose last iterate converges to the equilibrium regularised by :math:`\alpha`; where :math:`\alpha` shrinks, it nears an
equilibrium of the game itself. As deep reinforcement learning it is PPO with these two terms.

Source: Sokota et al., 2023, sections 3 and 5.
Differs from common code: advantages are not standardised, as that would change the weights; what plays and is judged is
a running average of parameters, as in Perolat et al., 2022; by default the weights are small and do not shrink.
"""

from __future__ import annotations

from typing import ClassVar

from thespis.core.feeds import Rollouts
from thespis.core.records import Citation
from thespis.learners.advantages import Unscaled
from thespis.learners.anchors import Magnet
from thespis.learners.averaging import Averaged
from thespis.learners.gradient import Number
from thespis.methods.online.ppo import PPO


def mirror_descent() -> PPO:
    """PPO with the two divergences, for games whose payoffs are a few units."""
    feed = Rollouts(length=32, envs=128)
    anchor = Magnet(uniform=0.03, inertia=5.0, halfway=1e9)
    return PPO(learning_rate=1e-3, discount=1.0, trace=1.0, clip=0.5, advantages=Unscaled(), anchor=anchor, epochs=4,
               minibatch=1024, feed=feed)  # fmt: skip


class MMD(Averaged):
    """Magnetic mirror descent for games of two; every seat learns by itself, and the average of its policies plays."""

    method: PPO = mirror_descent()
    """What takes the steps."""
    decay: Number = 0.9995
    """Weight of the average before an update, in [0, 1]."""

    name: ClassVar[str] = "mmd"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("A Unified Approach to RL, Quantal Response Equilibria, and Two-Player Zero-Sum Games",
                 "Sokota et al.", 2023, "arXiv:2206.05825"),
        Citation("Mastering the Game of Stratego with Model-Free RL", "Perolat et al.", 2022, "arXiv:2206.15378"),
        *PPO.citations,
    )  # fmt: skip
    details: ClassVar[tuple[str, ...]] = (
        *PPO.details,
        "advantages as they are, not standardised",
        "the running average of parameters plays and is judged; the newest policy explores",
    )
