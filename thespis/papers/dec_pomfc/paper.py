"""Decentralized partially observable mean field control."""

from __future__ import annotations

from thespis.core.records import Citation
from thespis.data.feeds import Rollouts
from thespis.evidence.claims import NonInferiority, Superiority
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.methods.multi_agent.ippo import IPPO
from thespis.methods.online.ppo import PPO

_MEAN_FIELD_MODULE, _SWARMS_MODULE = "thespis.papers.dec_pomfc.envs", "thespis.papers.dec_pomfc.envs"
_FEED = Rollouts(num_steps=50, num_envs=8)
_PPO = PPO(hidden_sizes=(32, 32), learning_rate=1e-3, minibatch_size=100, feed=_FEED)
_IPPO = IPPO(PPO(hidden_sizes=(32, 32), learning_rate=1e-3, num_epochs=4, minibatch_size=3200, feed=_FEED))

PAPER = Paper(
    id="dec-pomfc",
    name="Dec-POMFC",
    citation=Citation(
        "Learning Decentralized Partially Observable Mean Field Control for Artificial Collective Behavior",
        "Cui et al.",
        2024,
        "arXiv:2307.06175",
    ),
    family="multi-agent",
    summary="Mean-field control turns a swarm into a single-agent environment: an action is the decision rule by "
    "which every member acts on its own observation, and the critic observes the mean field. Kernels represent rule "
    "and field. PPO learns the policy, and members need no information but the rule.",
    claim="Returns are on par with multi-agent RL on adapted Kuramoto and Vicsek models, and kernels do better than "
    "histograms.",
    parts=(
        "thespis.papers.dec_pomfc.envs:Swarm",
        "thespis.papers.dec_pomfc.envs:MeanFieldEnv",
        "thespis.papers.dec_pomfc.envs:RBFKernels",
        "thespis.papers.dec_pomfc.envs:HistogramBins",
        "thespis.methods.online.ppo:PPO",
        "thespis.methods.multi_agent.ippo:IPPO",
    ),
    command=f"thespis train ppo --env {_MEAN_FIELD_MODULE}:VICSEK_BY_KERNELS --steps 20000 --set hidden_sizes=32,32 "
    "num_steps=50",
    miniature=Trial(
        arms=(
            Arm("Dec-POMFC", _PPO, env=f"{_MEAN_FIELD_MODULE}:VICSEK_BY_KERNELS"),
            Arm("histogram", _PPO, env=f"{_MEAN_FIELD_MODULE}:VICSEK_BY_HISTOGRAM"),
            Arm("IPPO", _IPPO, env=f"{_SWARMS_MODULE}:VICSEK"),
            Arm("Dec-POMFC, Kuramoto", _PPO, env=f"{_MEAN_FIELD_MODULE}:KURAMOTO_BY_KERNELS"),
            Arm("histogram, Kuramoto", _PPO, env=f"{_MEAN_FIELD_MODULE}:KURAMOTO_BY_HISTOGRAM"),
        ),
        envs=(f"{_MEAN_FIELD_MODULE}:VICSEK_BY_KERNELS",),
        steps=16_000,
        claims=(
            Superiority("Dec-POMFC", "histogram", final_return()),
            Superiority("Dec-POMFC, Kuramoto", "histogram, Kuramoto", final_return()),
            NonInferiority("Dec-POMFC", "IPPO", final_return(), 5.0),
        ),
        seeds_per_look=4,
        max_looks=1,
    ),
    remarks="A swarm has fifty agents. A return is the sum of the swarm's order parameter over 50 steps, so it is at "
    "most 50. All arms use the Vicsek model unless their name says Kuramoto; the record lists the first arm's "
    "environment for all of them. One step is one step of the whole swarm: IPPO, whose agents share parameters, "
    "learns from 50 transitions where the mean-field arms learn from one. The margin is a tenth of the largest "
    "return. The policy observes only the clock, so that rules can be distributed in advance. Model sizes, kernel "
    "points and PPO's settings are ours: only the paper's abstract and what others say of the paper were available, "
    "and the authors' code was not. Larger swarms than in training and the paper's other tasks are not tested. The "
    "budget was chosen after a preliminary run of 20,000 steps with two other seeds on the Vicsek model, in which all "
    "three arms of that model learned. Not shown: any of the claims. Kernels have the higher mean in both models, but "
    "four seeds do not decide it, and IPPO is about 5 ahead on the Vicsek model. Checked again: environments, mean "
    "fields and rules agree with plain simulations and counts, and rules that turn members toward their neighbors' "
    "mean heading do align the swarm. Likely cause: training returns of all mean-field arms still rise at the last "
    "step, most on the Kuramoto model, while IPPO's had nearly settled after a third of the budget in the preliminary "
    "run. A rule is 50 numbers that are sampled at once and evaluated by one reward, where IPPO sees 50 turns per "
    "step, so the budget is probably too small for parity.",
)
