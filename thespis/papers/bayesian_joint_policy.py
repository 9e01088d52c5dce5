"""Context-aware Bayesian networks as joint policies."""

from __future__ import annotations

from thespis.actors.graphs import Complete
from thespis.core.feeds import Rollouts
from thespis.core.records import Citation
from thespis.evidence.claims import Better, NoWorse
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.learners.advantages import Unscaled
from thespis.learners.sharing import Separate
from thespis.methods.online.ppo import PPO
from thespis.methods.teams.bayesian import Bayesian, Fading
from thespis.methods.teams.mappo import MAPPO

_PPO = PPO(
    learning_rate=3e-3,
    entropy_weight=2.0,
    advantages=Unscaled(),
    hidden=(32,),
    epochs=4,
    minibatch=128,
    feed=Rollouts(length=8, envs=32),
)
_WORLD = "thespis.envs.compiled.climbing:Climbing"

PAPER = Paper(
    id="bayesian-joint-policy",
    name="Bayesian network joint-policy actor-critic",
    citation=Citation(
        "Context-Aware Bayesian Network Actor-Critic Methods for Cooperative Multi-Agent Reinforcement Learning",
        "Chen and Zhang",
        2023,
        "arXiv:2306.01920",
    ),
    family="multi-agent",
    does="Factors the joint policy of a team along a graph without cycles, which a net draws for what is seen and "
    "which learns with the actors; edges are thinned out until the actors are independent.",
    claim="Agents whose choices may hang on each other learn to cooperate better than independent ones, also when "
    "edges are thinned out in training until none is left.",
    parts=(
        "thespis.methods.teams.bayesian:Bayesian",
        "thespis.methods.teams.bayesian:Fading",
        "thespis.actors.graphs:Ordered",
        "thespis.actors.graphs:Drawn",
        "thespis.learners.joint:TeamNetwork",
        "thespis.envs.compiled.climbing:Climbing",
    ),
    use=f"thespis train bayesian --env {_WORLD} --set edges=Fading",
    miniature=Trial(
        arms=(
            Arm("learnt and faded", Bayesian(_PPO, edges=Fading(100.0, 250.0))),
            Arm("all edges", Bayesian(_PPO, Complete())),
            Arm("MAPPO", MAPPO(_PPO, Separate())),
        ),
        envs=(_WORLD,),
        steps=76_800,
        claims=(
            Better("learnt and faded", "MAPPO", final_return("sampled")),
            NoWorse("learnt and faded", "all edges", final_return("sampled"), 1.0),
        ),
        batch=5,
        looks=1,
        episodes=100,
    ),
    remarks="The climbing game of Claus and Boutilier, of which one of three agents is left out, in turns; all see "
    "which one. Two that play it can have 11, but the choice that leads there costs 30 unless both make it. Entropy "
    "weighs 2, in units of reward, for all arms: a first mover whose follower answers well then prefers the best "
    "choice, whatever it began with. Settings were chosen by this reasoning, without a first look. Not tried: the "
    "authors' games, Aloha and StarCraft; worlds in which agents see unlike; the proof. What is "
    "not shown: four seeds of the learnt graph end as high as with all edges or higher, with no edge left; the fifth "
    "stays at 7.7. It was there long before edges faded, so thinning out lost nothing: probably its graph net "
    "closed an edge in some of the games before the follower had learnt to answer; this was not looked into. The "
    "minutes above are those of gathering runs that had been trained side by side before.",
)
