r"""Meta representations for agents (MRA): policies indexed by a latent mode, for games of any population size.

Every agent plays an episode in a mode :math:`z` of its own, sampled at its start, which is part of the input of actor
and critic; the other agents, any number of them, are encoded by attention. Networks and values are common to all games
and modes; which agents are attended to depends on :math:`z` and on the agents present. The information that an action
carries about its mode, :math:`\log \pi(a|o, z) - \log \frac{1}{K} \sum_{z'} \pi(a|o, z')`, is on average the mutual
information between modes and actions; it is added to the reward, with a coefficient that rises while the mean is below
a floor.

Source: Zhang et al., 2021, and their code.

Differs from their code, which is a soft actor-critic with a centralized critic: PPO with the agent's own critic;
:math:`z` is input of the whole actor, where theirs only selects an attention head; the information is exact, where
theirs resamples modes, and a reward that PPO maximizes, where theirs is a loss of the attention only; modes are sampled
uniformly, where theirs by a network that gets the population; greedy agents take the mode that the critic values most.
Not verified: how the paper weights information against its constraint that policies be equilibria of the training games
(the floor and its coefficient are ours), and its adaptation to new games, which is not implemented: continue training
in them instead.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx

from thespis.core.records import Citation
from thespis.critics.critic_inputs import LocalObs
from thespis.learners.multi_agent.independent_learners import BaseIndependentLearners
from thespis.learners.multi_agent.parameter_sharing import ParameterSharing, SharedParameters
from thespis.learners.off_policy.temperature import Temperature, TunedTemperature
from thespis.methods.online.ppo import PPO
from thespis.nets.set_attention import SetAttention
from thespis.papers.mra.latent_modes import LatentModeMethod


class LatentModePPO(LatentModeMethod):
    """PPO of one agent with several latent modes."""

    method: PPO = PPO(set_encoder=SetAttention())
    """PPO that acts and learns in every mode."""
    mi_coef: Temperature = TunedTemperature(init_value=0.1, learning_rate=1e-2, target_entropy=0.3)
    """Coefficient of the mutual information, in units of reward per nat: FixedTemperature, or TunedTemperature to a
    floor in nats."""
    num_modes: int = eqx.field(static=True, default=6)
    """Number of modes."""

    name: ClassVar[str] = "modal"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "Learning Meta Representations for Agents in Multi-Agent Reinforcement Learning",
            "Zhang et al.",
            2021,
            "arXiv:2108.12988",
        ),
        *PPO.citations,
    )
    details: ClassVar[tuple[str, ...]] = (
        *PPO.details,
        "a mode for each agent and episode, sampled uniformly; greedy play takes the mode that the critic values most",
        "the information of actions about their mode is added to the reward, and part of the values",
    )


class MRA(BaseIndependentLearners):
    """MRA: PPO for every agent with a latent mode and a mutual-information reward, for any number of agents."""

    method: LatentModePPO = LatentModePPO()
    """Single-agent method with which each agent learns."""
    sharing: ParameterSharing = SharedParameters()
    """Parameter sharing: SharedParameters (one network per group), Independent or PeriodicReset."""
    critic_input: LocalObs = LocalObs()
    """Input of the critic: LocalObs, the agent's own observation and its mode."""

    name: ClassVar[str] = "mra"
    citations: ClassVar[tuple[Citation, ...]] = LatentModePPO.citations
    details: ClassVar[tuple[str, ...]] = LatentModePPO.details
