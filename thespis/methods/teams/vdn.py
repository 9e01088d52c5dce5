"""Value decomposition: one value of the team, the sum of one for each agent, learnt by deep Q-learning.

``sum_i Q_i(o_i, a_i)`` regresses on ``r + gamma sum_i Q_i'(o_i', argmax Q_i)`` from replay, ``r`` being the reward of
all; agents act epsilon-greedily on their own. Agents of a group share a net, which is told which of them it values.

Source: Sunehag et al., 2018. Differs from their code: double Q-learning; without memory unless ``memory=GRU(64)``
beside ``feed.length`` of several steps: windows then begin anywhere in an episode, without memory.
"""

from __future__ import annotations

from typing import ClassVar

from thespis.core.records import Citation
from thespis.critics.mixing import Mixer, Sum
from thespis.learners.factored import Factored


class VDN(Factored):
    """Deep Q-learning of a sum of values."""

    mixer: Mixer = Sum()
    """How the agents' values become one: Sum."""

    name: ClassVar[str] = "vdn"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Value-Decomposition Networks For Cooperative Multi-Agent Learning", "Sunehag et al.", 2018,
                 "arXiv:1706.05296"),
    )  # fmt: skip
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps, termination does not",
        "shared nets that know which agent they value; double Q-learning",
        "absent agents add 0 to the team's value",
    )
