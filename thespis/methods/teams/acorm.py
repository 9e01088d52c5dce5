"""ACORM: QMIX whose agents have roles, made alike for those who have gone through alike, and weighed by the state.

A GRU makes an embedding ``e_i`` of what agent ``i`` has seen, a layer a role ``z_i = sigmoid(W e_i)`` of that, and
``Q_i(o_i, z_i, a)`` is learnt as in QMIX, through the role. The mixer's weights come from the state and from the roles
it attends to: queries are what another GRU makes of the states so far. Every ``auxiliary.every`` updates the layer of
roles takes a step of its own: k-means over the embeddings of a team at one step makes clusters, and
``-log(sum over its cluster of exp(z_i M z'_j) / sum over all of exp(z_i M z'_j))`` falls, with ``z'`` from a copy that
follows slowly.

Source: Hu et al., 2024, sections 2 and 3. Sizes and step sizes are those of their code. Differs from it: before
training, embeddings are not taught to foretell observations, nor roles to be told apart; nets know which agent they
serve and not what it did last; windows, which begin without memory; the target has roles and a GRU of its own and is
copied now and then; no gradient through the slow copy; k-means starts from far points; one step size, that does not
fall.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx

from thespis.core.feeds import Replay
from thespis.core.records import Citation
from thespis.critics.attending import Attending
from thespis.critics.embedding import Embedded
from thespis.critics.mixing import Monotonic
from thespis.learners.factored import Factored
from thespis.learners.gradient import Number
from thespis.learners.likeness import NoContrast, RoleContrast
from thespis.methods.teams.qmix import QMIX
from thespis.nets.body import GRU


class ACORM(Factored):
    """Deep Q-learning of a mixture by roles."""

    mixer: Attending | Monotonic = Attending()
    """How the agents' values become one: Attending, or Monotonic, which looks at no role."""
    utility: Embedded = Embedded()
    """How roles are made, and values under them."""
    auxiliary: NoContrast | RoleContrast = RoleContrast()
    """How roles are made alike and unlike: RoleContrast; NoContrast leaves them to the values."""
    learning_rate: Number = 6e-4
    """Step size."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(64,))
    """Units of each hidden layer of the agents' nets."""
    memory: GRU | None = eqx.field(static=True, default=GRU(64))
    """Recurrent core of the agents' nets beside that of the roles."""
    feed: Replay = eqx.field(static=True, default=Replay(batch=32, warmup=1_000, every=2, length=10, envs=8))
    """Replay: windows (feed.length) of several steps."""

    name: ClassVar[str] = "acorm"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Attention-Guided Contrastive Role Representations for Multi-Agent Reinforcement Learning",
                 "Hu et al.", 2024, "arXiv:2312.04819"),
        *QMIX.citations,
    )  # fmt: skip
    details: ClassVar[tuple[str, ...]] = (
        *QMIX.details,
        "values teach roles and embeddings; the contrast teaches the layer of roles alone",
        "of an agent's cluster it is one itself; who is absent is neither attended to nor in a cluster",
    )
