r"""Iterated deep Q-network: a chain of five nets, each fitted to one Bellman update of the one before it.

Five updates of value iteration are learnt at once; after ``target_every`` updates (the paper's ``T``) the chain moves
on. While it explores, each step is one net's choice, drawn uniformly; the best choice is that of the nets' mean value.

Source: Vincent et al., 2024, and the authors' code, whose sizes these are in updates, one every four steps. Differs
from it: a warm-up of 1,000 steps for 20,000; Adam adds 1e-8 for 1.5e-4; the gradient's norm is clipped over all nets;
half the squared error. The variant for actor-critic methods is not here.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx

from thespis.core.feeds import Replay
from thespis.core.records import Citation
from thespis.learners.gradient import Number
from thespis.learners.targets import Chain, Targets
from thespis.methods.online.dqn import DQN


class IDQN(DQN):
    """Iterated deep Q-network for one discrete choice."""

    learning_rate: Number = 6.25e-5
    last_epsilon: Number = 0.01
    epsilon_updates: Number = 62_500.0
    huber: Number = 1e6
    double: bool = eqx.field(static=True, default=False)
    targets: Targets = Chain()
    target_every: int = eqx.field(static=True, default=1_500)
    feed: Replay = eqx.field(static=True, default=Replay(batch=32, warmup=1_000, every=4))

    name: ClassVar[str] = "i-dqn"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Iterated Q-Network: Beyond One-Step Bellman Updates", "Vincent et al.", 2024, "arXiv:2403.02107"),
        *DQN.citations,
    )
