"""QMIX: deep Q-learning of a team value that is a monotonic mixture of one utility per agent.

``f(Q_1(o_1, a_1) ... Q_N(o_N, a_N); s)`` regresses on ``r + gamma f'(Q_i'(o_i', argmax Q_i); s')`` from replay, with
``r`` the team reward. ``f`` is a network whose weights are non-negative and computed from the state ``s`` (the
environment's privileged observation for critics, else all observations concatenated), so the best joint action is the
best action of each agent. Each agent acts epsilon-greedily on its own utility.

Source: Rashid et al., 2018.

Defaults are for short horizons: a discount of 0.9. The mixture overestimates values of joint actions that are rare in
replay. With a discount of 0.99, in tasks whose episodes end by a time limit alone, that error grows with each copy of
the networks, and values diverge (in MPE simple spread, in three of three seeds).

Differs from their code: Adam; weights come from hypernetworks with a hidden layer; no memory unless ``memory=GRU(64)``
together with a ``feed.sequence_length`` of several steps: sequences then begin anywhere in an episode.
"""

from __future__ import annotations

from typing import ClassVar

from thespis.core.records import Citation, Number
from thespis.critics.mixers import Mixer, MonotonicMixer
from thespis.learners.multi_agent.value_decomposition import ValueDecomposition
from thespis.learners.optim.optimizers import LearningRate


class QMIX(ValueDecomposition):
    """QMIX: cooperative deep Q-learning of a monotonic mixture of per-agent utilities."""

    mixer: Mixer = MonotonicMixer()
    """Mixer of the agents' utilities into the team value: MonotonicMixer or SumMixer."""
    learning_rate: LearningRate = 1e-3
    """Step size."""
    discount: Number = 0.9
    """Discount per step, in [0, 1]: larger ones may diverge where episodes do not terminate."""
    epsilon_decay_updates: Number = 5_000.0
    """Updates over which epsilon falls linearly."""

    name: ClassVar[str] = "qmix"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "QMIX: Monotonic Value Function Factorisation for Deep Multi-Agent Reinforcement Learning",
            "Rashid et al.",
            2018,
            "arXiv:1803.11485",
        ),
    )
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps, termination does not",
        "shared networks that get the agent's index; double Q-learning",
        "the mixer's weights are absolute values of hypernetworks of the state; absent agents enter it as 0",
    )
