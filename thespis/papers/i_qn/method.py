"""Iterated deep Q-network: a chain of five Q-networks, each fitted to one Bellman update of its predecessor.

Five updates of value iteration are learned at once; after ``target_update_interval`` updates (the paper's ``T``) the
chain moves on. In explore mode each step is decided by one network, drawn uniformly; the greedy action maximizes the
networks' mean value.

Source: Vincent et al., 2024, and the authors' code, whose hyperparameters these are in updates, one every four steps.

Differs from it: ``learning_starts`` of 1,000 steps instead of 20,000; Adam's epsilon 1e-8 instead of 1.5e-4; the
gradient's norm is clipped over all networks; half the squared error. The variant for actor-critic methods is not
implemented.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx

from thespis.core.feeds import WindowFeed
from thespis.core.records import Citation, Number
from thespis.data.feeds import Replay
from thespis.learners.off_policy.discrete_q import IteratedTargets, TargetUpdate
from thespis.methods.online.dqn import DQN


class IDQN(DQN):
    """Iterated deep Q-network: DQN that learns a chain of Bellman updates at once; one discrete action."""

    learning_rate: Number = 6.25e-5
    final_epsilon: Number = 0.01
    epsilon_decay_updates: Number = 62_500.0
    huber_delta: Number = 1e6
    double_q: bool = eqx.field(static=True, default=False)
    target_network: TargetUpdate = IteratedTargets()
    target_update_interval: int = eqx.field(static=True, default=1_500)
    feed: WindowFeed = eqx.field(static=True, default=Replay(batch_size=32, learning_starts=1_000, update_interval=4))

    name: ClassVar[str] = "i-dqn"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Iterated Q-Network: Beyond One-Step Bellman Updates", "Vincent et al.", 2024, "arXiv:2403.02107"),
        *DQN.citations,
    )
