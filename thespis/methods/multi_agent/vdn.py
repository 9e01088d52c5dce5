"""Value-decomposition networks: deep Q-learning of a team value that is the sum of one utility per agent.

``sum_i Q_i(o_i, a_i)`` regresses on ``r + gamma sum_i Q_i'(o_i', argmax Q_i)`` from replay, with ``r`` the team reward;
each agent acts epsilon-greedily on its own utility. Agents of a group share a network, which gets the agent's index.

Source: Sunehag et al., 2018.

Differs from their code: double Q-learning; no memory unless ``memory=GRU(64)`` together with a ``feed.sequence_length``
of several steps: sequences then begin anywhere in an episode, without memory.
"""

from __future__ import annotations

from typing import ClassVar

from thespis.core.records import Citation
from thespis.critics.mixers import Mixer, SumMixer
from thespis.learners.multi_agent.value_decomposition import ValueDecomposition


class VDN(ValueDecomposition):
    """Value-decomposition networks: cooperative deep Q-learning of a sum of per-agent utilities."""

    mixer: Mixer = SumMixer()
    """Mixer of the agents' utilities into the team value: SumMixer."""

    name: ClassVar[str] = "vdn"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "Value-Decomposition Networks For Cooperative Multi-Agent Learning",
            "Sunehag et al.",
            2018,
            "arXiv:1706.05296",
        ),
    )
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps, termination does not",
        "shared networks that get the agent's index; double Q-learning",
        "absent agents add 0 to the team's value",
    )
