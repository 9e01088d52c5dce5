"""GMAH: subgoals chosen for a team by mixed values, and agents that are paid for reaching their own.

Every agent has a subgoal, one of a few things to come to see. The team's subgoals are chosen together: their values
``Q_i(o_i, g_i)`` are mixed as in QMIX, but over periods and not over steps, and fitted to
``sum of rewards + gamma max Q'``. They are chosen anew when all are reached, or after ``every`` steps. In between each
agent acts by values ``q_i(o_i, g_i, a_i)`` of an intrinsic reward, 1 at the subgoal, where its own task ends.

Source: Xu et al., 2024, by its abstract, by summaries of it and by its authors' code, as its text could not be had.
Differs from that: their single-agent code trains the lower level first, with PPO and a reward that falls with time;
here both learn at once, by values, the lower ones summed, and haste comes from the discount. Their subgoals are a list
written for each world, with a tree of what comes first; here they are marks in what is seen, any at any time. Not
verified: how their mixer differs from QMIX's (its file is published empty; that it mixes subgoals is what is built
here), and an auto-encoder said to have a part in renewing subgoals, which is left out.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx

from thespis.core.feeds import Replay
from thespis.core.records import Citation
from thespis.critics.mixing import Sum
from thespis.learners.levels import Levels
from thespis.learners.subgoals import Subgoals
from thespis.methods.teams.qmix import QMIX


class GMAH(Levels):
    """A team that chooses subgoals, and agents that go there."""

    upper: QMIX = QMIX()
    """How subgoals are chosen; its feed is not used."""
    lower: QMIX = QMIX(mixer=Sum(), feed=Replay(batch=32, warmup=1_000, every=2, length=15, envs=8))
    """How actions are chosen. Windows (feed.length) are of ``2 every - 1`` steps or more."""
    choices: Subgoals = Subgoals()
    """What subgoals there are, and what the lower level is paid."""
    every: int = eqx.field(static=True, default=8)
    """Steps after which subgoals are chosen anew, reached or not."""

    name: ClassVar[str] = "gmah"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Subgoal-based Hierarchical Reinforcement Learning for Multi-Agent Collaboration",
                 "Xu et al.", 2024, "arXiv:2408.11416"),
        *QMIX.citations,
    )  # fmt: skip
    details: ClassVar[tuple[str, ...]] = (
        *QMIX.details,
        "subgoals are renewed for the whole team when all are reached, or after a time",
        "a subgoal is valued by undiscounted rewards of its period, discounted once",
    )
