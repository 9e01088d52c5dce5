"""ACORM: QMIX with contrastive role representations of agents and an attention mixer over roles.

A GRU embeds the history of agent ``i`` as ``e_i``, a layer computes its role ``z_i = sigmoid(W e_i)``, and ``Q_i(o_i,
z_i, a)`` is learned as in QMIX, through the role. The mixer's weights come from the state and from attention over the
roles, with queries from another GRU over the states so far. Every ``auxiliary_loss.update_interval`` updates the role
layer takes a step of its own: k-means over the embeddings of a team at one step gives clusters, and the loss is
``-log(sum over its cluster of exp(z_i M z'_j) / sum over all of exp(z_i M z'_j))``, with ``z'`` from a Polyak-averaged
copy.

Source: Hu et al., 2024, sections 2 and 3. Hyperparameters and learning rates are those of their code.

Before the values, their code trains the embeddings to predict the next observation and the agent's index, for 120
updates, and then the roles by the contrast alone, for 100: ``auxiliary_loss.num_embedding_updates`` and
``auxiliary_loss.num_role_updates``, by default 0.

Differs from it: networks get the agent's index and not its last action; training sequences begin without memory; the
target network has its own roles and GRU and is copied periodically; no gradient through the Polyak-averaged copy;
k-means starts from distant points; one constant learning rate.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx

from thespis.core.feeds import WindowFeed
from thespis.core.records import Citation, Number
from thespis.critics.mixers import Mixer, Utility
from thespis.critics.role_encoding import AttentionMixer, RoleUtility
from thespis.data.feeds import Replay
from thespis.learners.multi_agent.role_contrast import AuxiliaryLoss, RoleContrast
from thespis.learners.multi_agent.value_decomposition import ValueDecomposition
from thespis.methods.multi_agent.qmix import QMIX
from thespis.nets.body import GRU
from thespis.nets.recurrent import RecurrentCore


class ACORM(ValueDecomposition):
    """ACORM: cooperative deep Q-learning with contrastive agent roles and an attention mixer over roles."""

    mixer: Mixer = AttentionMixer()
    """Mixer of the agents' utilities: AttentionMixer (by roles), MonotonicMixer or SumMixer, which ignore roles, or
    your own module:Class."""
    utility_network: Utility = RoleUtility()
    """Network of the agents' utilities: RoleUtility (with roles), LinearUtility, or your own module:Class."""
    auxiliary_loss: AuxiliaryLoss | None = RoleContrast()
    """Auxiliary loss of roles: RoleContrast (InfoNCE over clusters), None (roles learned from values only) or your own
    module:Class."""
    learning_rate: Number = 6e-4
    """Learning rate."""
    hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=(64,))
    """Units of each hidden layer of the agents' networks."""
    memory: RecurrentCore | None = eqx.field(static=True, default=GRU(64))
    """Recurrent core of the agents' utility networks, besides the GRU of the roles."""
    feed: WindowFeed = eqx.field(
        static=True,
        default=Replay(batch_size=32, learning_starts=1_000, update_interval=2, sequence_length=10, num_envs=8),
    )
    """Replay buffer of sequences: feed.sequence_length of several steps."""

    name: ClassVar[str] = "acorm"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "Attention-Guided Contrastive Role Representations for Multi-Agent Reinforcement Learning",
            "Hu et al.",
            2024,
            "arXiv:2312.04819",
        ),
        *QMIX.citations,
    )
    details: ClassVar[tuple[str, ...]] = (
        *QMIX.details,
        "values train roles and embeddings; the contrastive loss trains the role layer only",
        "an agent's cluster includes the agent itself; absent agents are neither attended to nor clustered",
    )
