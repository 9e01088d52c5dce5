"""Decentralized partially observable mean field control."""

from __future__ import annotations

from thespis.core.feeds import Rollouts
from thespis.core.records import Citation
from thespis.evidence.claims import Better, NoWorse
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.methods.online.ppo import PPO
from thespis.methods.teams.ippo import IPPO

_FIELD, _SWARMS = "thespis.envs.compiled.mean_field", "thespis.envs.compiled.swarms"
_FEED = Rollouts(length=50, envs=8)
_RULES = PPO(hidden=(32, 32), learning_rate=1e-3, minibatch=100, feed=_FEED)
_EACH = IPPO(PPO(hidden=(32, 32), learning_rate=1e-3, epochs=4, minibatch=3200, feed=_FEED))

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
    does="Makes a swarm a world of one agent: its action is the rule by which every member acts on what it sees "
    "itself, and its critic sees the mean field, both by kernels; PPO learns it, and members are told nothing but the "
    "rule.",
    claim="On par with multi-agent learning on adapted Kuramoto and Vicsek models, and kernels do better than "
    "histograms.",
    parts=(
        "thespis.envs.compiled.swarms:Swarm",
        "thespis.envs.compiled.mean_field:MeanField",
        "thespis.envs.compiled.mean_field:Kernels",
        "thespis.envs.compiled.mean_field:Histogram",
        "thespis.methods.online.ppo:PPO",
        "thespis.methods.teams.ippo:IPPO",
    ),
    use=f"thespis train ppo --env {_FIELD}:VICSEK_BY_KERNELS --steps 20000 --set hidden=32,32 length=50",
    miniature=Trial(
        arms=(
            Arm("Dec-POMFC", _RULES, env=f"{_FIELD}:VICSEK_BY_KERNELS"),
            Arm("histogram", _RULES, env=f"{_FIELD}:VICSEK_BY_HISTOGRAM"),
            Arm("IPPO", _EACH, env=f"{_SWARMS}:VICSEK"),
            Arm("Dec-POMFC, Kuramoto", _RULES, env=f"{_FIELD}:KURAMOTO_BY_KERNELS"),
            Arm("histogram, Kuramoto", _RULES, env=f"{_FIELD}:KURAMOTO_BY_HISTOGRAM"),
        ),
        envs=(f"{_FIELD}:VICSEK_BY_KERNELS",),
        steps=16_000,
        claims=(
            Better("Dec-POMFC", "histogram", final_return()),
            Better("Dec-POMFC, Kuramoto", "histogram, Kuramoto", final_return()),
            NoWorse("Dec-POMFC", "IPPO", final_return(), 5.0),
        ),
        batch=4,
        looks=1,
    ),
    remarks="Fifty agents; returns are sums of the swarm's order over 50 steps, so 50 is the most. All arms play the "
    "Vicsek model unless their name says Kuramoto; the record names the first arm's world for all of them. One step "
    "is one step of the whole swarm: IPPO, whose agents share parameters, learns from 50 transitions where the mean- "
    "field arms learn from one. The margin is a tenth of the largest return. A first look at 20,000 steps of two "
    "other seeds on the Vicsek model sized the budget, and also showed all three arms there learning. The sizes of "
    "the models, the points of the kernels and the settings of PPO are ours; of the paper only the abstract and what "
    "others say of it were at hand, and its authors' code was not. The rule's policy sees the clock alone, so that "
    "rules can be handed out beforehand. Larger swarms than the one trained in, and the paper's other tasks, are not "
    "tried. Nothing is shown: kernels have the larger mean in both models, but four seeds do not decide it, and IPPO "
    "is about five ahead on the Vicsek model. Second look: worlds, fields and rules agree with plain simulations and "
    "counts, and rules that turn to what is near bring order; but training returns of all mean-field arms still rise "
    "at the last step, most on the Kuramoto model, while IPPO's had nearly settled by a third of the budget in the "
    "first look. A rule is 50 numbers drawn at once and judged by one reward, where IPPO sees 50 turns a step, so the "
    "budget is probably too small for parity.",
)
