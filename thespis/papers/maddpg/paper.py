"""Multi-agent actor-critic for mixed cooperative-competitive environments."""

from __future__ import annotations

import dataclasses

from thespis.core.records import Citation
from thespis.critics.critic_inputs import GlobalState
from thespis.evidence.benches.communication import AGENT, BASELINE, BENCH
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import final_return, learning_curve_auc, mean_metric
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.methods.multi_agent.maddpg import MADDPG
from thespis.papers.maddpg.measures import unnamed_targets

_AGENT = dataclasses.replace(AGENT, critic_learning_rate=1e-2, actor_learning_rate=1e-2)

PAPER = Paper(
    id="maddpg",
    name="MADDPG",
    citation=Citation(
        "Multi-Agent Actor-Critic for Mixed Cooperative-Competitive Environments",
        "Lowe et al.",
        2017,
        "arXiv:1706.02275",
    ),
    family="multi-agent",
    summary="DDPG for each of several agents: an actor acts on its own observation, while its critic, used only in "
    "training, observes what all agents observe and do. Discrete actions are learned through the straight-through "
    "Gumbel-softmax.",
    claim="Critics that observe all observations and actions find coordination, by movement and by messages, that "
    "independent DDPG does not find.",
    parts=(
        "thespis.methods.multi_agent.maddpg:MADDPG",
        "thespis.critics.critic_inputs:GlobalStateAction",
        "thespis.actors.deterministic:GumbelSoftmaxActor",
        "thespis.actors.deterministic:DeterministicActor",
        "thespis.papers.maddpg.envs:SpeakerListener",
        "thespis.papers.maddpg.measures:unnamed_targets",
    ),
    command="thespis train maddpg --env jaxmarl:MPE_simple_speaker_listener_v4",
    miniature=BENCH.trial(
        arms=(
            Arm("MADDPG", MADDPG(_AGENT)),
            Arm("DDPG for each", BASELINE),
            Arm("critics without others' actions", MADDPG(_AGENT, critic_input=GlobalState())),
        ),
        headline=Comparison("MADDPG", "DDPG for each", final_return()),
        mechanisms=(
            Comparison("MADDPG", "DDPG for each", unnamed_targets()),
            Comparison("MADDPG", "DDPG for each", mean_metric("speaker_critic_loss", larger_is_better=False)),
        ),
        context=(
            Comparison("MADDPG", "critics without others' actions", final_return()),
            Comparison("MADDPG", "DDPG for each", learning_curve_auc()),
        ),
    ),
    remarks="Cooperative communication is the paper's experiment with the clearest difference; the environment here is "
    "smaller than theirs. A word is heard one step later, and the speaker observes the target alone, so a critic of "
    "what it observes and does cannot see that a word has an effect: only that words and returns go together. Both "
    "methods had the same five trials of learning rate, discount and batch size on ten tuning seeds, and have their "
    "best: for MADDPG it is a learning rate of 1e-2, with which DDPG was worst. An earlier trial, by the first "
    "protocol, made fewer than 1,900 updates in JaxMARL's speaker-listener environment, after which no speaker used "
    "three words for three landmarks. The competitive environments, ensembles of policies and inferred policies are "
    "not tested. Result: of 20 pairs MADDPG's returns are larger by 4.2 on average, and in 14 its speaker has more "
    "words. Critics that observe everything but the others' actions have errors as large as DDPG's, but returns whose "
    "difference from MADDPG's is undecided: much of the gain seems to come from a speaker's critic that sees where the "
    "listener is and what it has heard.",
    fidelity=(
        Fidelity("critic", "one for each agent, of all observations and all actions, one-hot or relaxed"),
        Fidelity("critic's target", "own reward plus discounted target critic at samples of all target actors"),
        Fidelity(
            "actor", "ascends its critic at a fresh sample of its own action and the stored actions of the others"
        ),
        Fidelity("rival", "the same code with critics of the agent's own observation and action"),
        Fidelity(
            "discrete actions",
            "the relaxed Gumbel-softmax sample is acted, stored and fed to critics",
            "a one-hot sample, with the gradient of the softmax",
        ),
        Fidelity("penalty", "a thousandth of the mean square of the logits", "none"),
        Fidelity("gradients", "norm clipped at 0.5", "not clipped"),
        Fidelity("targets", "Polyak rate 0.01, at each update"),
        Fidelity(
            "networks",
            "two layers of 64 units (rectifiers), none shared",
            "one layer of 32 units, none shared, for time",
        ),
        Fidelity("optimizer", "Adam, 1e-2", "Adam; 1e-2 for MADDPG, 3e-3 for DDPG, each the best of three"),
        Fidelity("discount", "0.95, episodes of 25 steps", "0.9, episodes of 12 steps"),
        Fidelity(
            "data",
            "a replay of a million steps; an update on 1,024 of them after every 100 steps; 25,000 episodes",
            "a replay of all steps; an update on 64 of them after every 16 steps; 5,000 episodes",
        ),
        Fidelity(
            "environment",
            "three landmarks at random places, a listener with inertia that observes them; several words",
            "three landmarks at the corners of a triangle, a listener that moves by fixed steps; three words",
        ),
        Fidelity("several policies per agent, and inferred policies of others", "in the paper", "not implemented"),
    ),
)
