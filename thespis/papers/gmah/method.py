"""GMAH: hierarchical multi-agent Q-learning with mixed values of subgoals and intrinsic rewards for reaching them.

Every agent has a subgoal, one of a few features to observe. The team's subgoals are chosen together: their values
``Q_i(o_i, g_i)`` are mixed as in QMIX, but over periods instead of steps, and fitted to ``sum of rewards + gamma max
Q'``. They are chosen again when all are reached, or after ``high_level_interval`` steps. In between each agent acts by
values ``q_i(o_i, g_i, a_i)`` of an intrinsic reward, 1 at the subgoal, where the agent's low-level episode ends.

Source: Xu et al., 2024, by its abstract, by summaries of it and by its authors' code, as its text was not available.

Differs from that: their single-agent code trains the lower level first, with PPO and a reward that decays with time;
here both levels learn at once, by values, the lower ones summed, and the discount encourages short paths. Their
subgoals are a list written for each environment, with a tree of prerequisites; here they are features of the
observation, any at any time. Not verified: how their mixer differs from QMIX's (its file is published empty; that it
mixes subgoals is what is implemented here), and an auto-encoder said to have a part in renewing subgoals, which is left
out.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx

from thespis.core.records import Citation
from thespis.critics.mixers import SumMixer
from thespis.data.feeds import Replay
from thespis.learners.multi_agent.hierarchical import Hierarchical
from thespis.methods.multi_agent.qmix import QMIX
from thespis.papers.gmah.subgoals import SubgoalSpace

_SETTINGS: dict[str, Any] = {"learning_rate": 5e-4, "discount": 0.99, "epsilon_decay_updates": 10_000.0}


class GMAH(Hierarchical):
    """GMAH: hierarchical multi-agent Q-learning with team-level subgoals and intrinsic rewards for reaching them."""

    high_level: QMIX = QMIX(**_SETTINGS)
    """QMIX over subgoals; its feed is not used."""
    low_level: QMIX = QMIX(
        **_SETTINGS,
        mixer=SumMixer(),
        feed=Replay(batch_size=32, learning_starts=1_000, update_interval=2, sequence_length=15, num_envs=8),
    )
    """Value decomposition over actions. feed.sequence_length is at least ``2 * high_level_interval - 1``."""
    high_level_actions: SubgoalSpace = SubgoalSpace()
    """Subgoals to choose from, and the reward of the lower level."""
    high_level_interval: int = eqx.field(static=True, default=8)
    """Maximum number of steps between two choices of subgoals."""

    name: ClassVar[str] = "gmah"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "Subgoal-based Hierarchical Reinforcement Learning for Multi-Agent Collaboration",
            "Xu et al.",
            2024,
            "arXiv:2408.11416",
        ),
        *QMIX.citations,
    )
    details: ClassVar[tuple[str, ...]] = (
        *QMIX.details,
        "subgoals are renewed for the whole team when all are reached, or after high_level_interval steps",
        "a subgoal is valued by the undiscounted rewards of its period, discounted once",
    )
