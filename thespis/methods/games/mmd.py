r"""Magnetic mirror descent: self-play that comes to rest where nobody can gain, also where cards are hidden.

Plain policy gradients in self-play run in circles. Here each step is drawn to the policy before it and to a magnet:

.. math:: \pi_{t+1} = \arg\max_\pi \; E_\pi[A] - \alpha \, KL(\pi \| \rho) - \tfrac{1}{\eta} KL(\pi \| \pi_t)

A magnet :math:`\rho` that stays, such as the uniform policy, leads to the equilibrium regularised by :math:`\alpha`;
one that follows the policy slowly leads to an equilibrium of the game itself. As deep reinforcement learning it is PPO
with these two terms.

Source: Sokota et al., 2023, sections 3 and 5; the magnet as a cost in the reward: Perolat et al., 2022.
Differs from common code: advantages are not standardised, as that would change the weights; the magnet is the running
average of parameters, which is also what plays and is judged; the opponent's divergence is not added to the reward.
"""

from __future__ import annotations

from typing import ClassVar

from thespis.core.feeds import Rollouts
from thespis.core.records import Citation
from thespis.learners.advantages import Unscaled
from thespis.learners.anchors import Magnet
from thespis.learners.averaging import Averaged
from thespis.learners.gradient import Falling, Number
from thespis.methods.online.ppo import PPO


def mirror_descent() -> PPO:
    """PPO with the two divergences, for games whose payoffs are a few units."""
    feed, anchor = Rollouts(length=32, envs=128), Magnet(uniform=0.0, inertia=5.0)
    return PPO(learning_rate=Falling(1e-3, 800.0), discount=1.0, trace=1.0, clip=0.5, advantages=Unscaled(),
               anchor=anchor, epochs=4, minibatch=1024, feed=feed)  # fmt: skip


class MMD(Averaged):
    """Magnetic mirror descent for games of two; every seat learns by itself, and the average of its policies plays."""

    method: PPO = mirror_descent()
    """What takes the steps."""
    decay: Number = 0.997
    """Weight of the average before an update, in [0, 1]."""
    magnet: Number | None = 0.2
    """Weight of the divergence from the average, in units of reward; None where there is memory."""

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
