r"""Meta representations for agents: a set of policies that serves games of any population.

Every agent plays an episode in a mode :math:`z` of its own, drawn as it begins, which stands beside what actor and
critic see; others are read by attention, however many they are. Nets and values are common to all games and modes; whom
to heed, and what for, depends on :math:`z` and on who is there. What an action says of its mode,
:math:`\log \pi(a|o, z) - \log \frac{1}{K} \sum_{z'} \pi(a|o, z')`, is in the mean the information that modes and
actions share; it is paid beside the reward, with a weight that rises while the mean is below a floor.

Source: Zhang et al., 2021, and their code.
Differs from their code, which is a soft actor-critic with a central critic: PPO with the agent's own critic; :math:`z`
is seen by the whole actor, where theirs chooses a head of attention alone; the information is exact, where theirs
resamples modes, and a reward that PPO climbs, where theirs is a loss of the attention alone; modes are drawn evenly,
where theirs by a net that is told the population; greedy agents take the mode that the critic values most. Not
verified: how the paper weighs information against its constraint that policies be equilibria of the training games (the
floor and its weight are ours), and its adaptation to new games, which is not here: train on in them instead.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx

from thespis.core.records import Citation
from thespis.critics.central import Own
from thespis.learners.crowd import Crowd
from thespis.learners.modes import Modal
from thespis.learners.sharing import Shared, Sharing
from thespis.learners.temperature import Temperature, TunedTemperature
from thespis.methods.online.ppo import PPO
from thespis.nets.relations import Attention


class Modes(Modal):
    """PPO for one, of several modes."""

    method: PPO = PPO(others=Attention())
    """What acts and learns in every mode."""
    information: Temperature = TunedTemperature(initial=0.1, learning_rate=1e-2, target=0.3)
    """Weight of information, in units of reward per nat: FixedTemperature, or TunedTemperature to a floor in nats."""
    modes: int = eqx.field(static=True, default=6)
    """How many modes there are."""

    name: ClassVar[str] = "modal"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Learning Meta Representations for Agents in Multi-Agent Reinforcement Learning", "Zhang et al.", 2021,
                 "arXiv:2108.12988"),
        *PPO.citations,
    )  # fmt: skip
    details: ClassVar[tuple[str, ...]] = (
        *PPO.details,
        "a mode for each agent and episode, drawn evenly; the one that the critic values most where it plays greedily",
        "what actions say of their modes is paid beside the reward, and values count it",
    )


class MRA(Crowd):
    """PPO of several modes for every agent."""

    method: Modes = Modes()
    """By what each of them learns."""
    sharing: Sharing = Shared()
    """Parameters: Shared by a group, or Separate."""
    critics: Own = Own()
    """What critics see: Own, what the agent sees, and its mode."""

    name: ClassVar[str] = "mra"
    citations: ClassVar[tuple[Citation, ...]] = Modes.citations
    details: ClassVar[tuple[str, ...]] = Modes.details
