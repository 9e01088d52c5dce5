"""QMIX: one value of the team, which rises in the value of each agent, learnt by deep Q-learning.

``f(Q_1(o_1, a_1) ... Q_N(o_N, a_N); s)`` regresses on ``r + gamma f'(Q_i'(o_i', argmax Q_i); s')`` from replay, with
``r`` the reward of all. ``f`` is a net whose weights are never negative and come from the state ``s`` (what the world
shows critics, else all observations joined), so the best joint action is the best of each agent. Agents act
epsilon-greedily on their own.

Source: Rashid et al., 2018. Differs from their code: Adam; weights come from nets with a hidden layer; without memory
unless ``memory=GRU(64)`` beside ``feed.length`` of several steps: windows then begin anywhere in an episode.
"""

from __future__ import annotations

from typing import ClassVar

from thespis.core.records import Citation
from thespis.critics.mixing import Mixer, Monotonic
from thespis.learners.factored import Factored


class QMIX(Factored):
    """Deep Q-learning of a monotonic mixture of values."""

    mixer: Mixer = Monotonic()
    """How the agents' values become one: Monotonic."""

    name: ClassVar[str] = "qmix"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("QMIX: Monotonic Value Function Factorisation for Deep Multi-Agent Reinforcement Learning",
                 "Rashid et al.", 2018, "arXiv:1803.11485"),
    )  # fmt: skip
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps, termination does not",
        "shared nets that know which agent they value; double Q-learning",
        "the mixer's weights are absolute values of nets of the state; absent agents enter it as 0",
    )
