"""Decentralized partially observable mean field control."""

from __future__ import annotations

from thespis.core.records import Citation
from thespis.data.feeds import Rollouts
from thespis.evidence.benches.swarms import BASELINE, BENCH, KERNELS_ENV, MEMBERS_ENV
from thespis.evidence.comparisons import Comparison, NoWorse
from thespis.evidence.measures import final_return, learning_curve_auc
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.methods.multi_agent.ippo import IPPO
from thespis.methods.online.ppo import PPO

_MODULE = "thespis.papers.dec_pomfc.envs"
_IPPO = IPPO(
    PPO(
        hidden_sizes=(16,),
        learning_rate=3e-3,
        num_epochs=2,
        minibatch_size=4_000,
        discount=0.9,
        feed=Rollouts(num_steps=25, num_envs=8),
    )
)
"""Each member learns from its own turns, with parameters that all share."""

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
    command=f"thespis train ppo --env {_MODULE}:VICSEK_BY_KERNELS --steps 20000 --set hidden_sizes=32,32 num_steps=50",
    miniature=BENCH.trial(
        arms=(
            Arm("kernels", BASELINE, env=KERNELS_ENV),
            Arm("histogram", BASELINE),
            Arm("IPPO", _IPPO, env=MEMBERS_ENV, steps=10_000),
        ),
        looks=plan_looks((20, 40)),
        headline=Comparison("kernels", "histogram", final_return()),
        context=(
            Comparison("kernels", "histogram", learning_curve_auc()),
            NoWorse("kernels", "IPPO", final_return(), margin=2.5),
        ),
    ),
    remarks="A swarm has twenty Vicsek particles, and a return is the sum of its order parameter over 25 steps, so it "
    "is at most 25. Rules are on a grid of three by three points. Kernels and cells have the same settings of PPO, "
    "looked at once. The grid decides much: by a rule written by hand, cells return 10.1 of 25 and kernels up to 15.7 "
    "on this grid, but both 19 on one of five by five points, so that what is tested is a coarse representation. An "
    "earlier trial by the first protocol had such a finer grid, fifty particles and four seeds, and did not tell them "
    "apart. One step is one step of the whole swarm: IPPO, whose members share parameters, learns from 20 transitions "
    "where mean-field control learns from one, and so makes a quarter of the steps here. The margin is a tenth of the "
    "largest return. Parity with multi-agent RL does not hold here: IPPO ends 3.6 above the kernels. The grid is a "
    "likely cause, since kernels end less than 1 below the rule written by hand on it, and IPPO has none. The policy "
    "observes only the clock, so that rules can be distributed in advance. Sizes and settings are ours: only the "
    "paper's abstract and what others say of the paper were available, and the authors' code was not. The Kuramoto "
    "model, larger swarms than in training and the paper's other tasks are not tried.",
    fidelity=(
        Fidelity("single agent", "the action is the decision rule of all members; the state is the mean field"),
        Fidelity("rule and field", "represented by kernels on a grid of points, or by a histogram"),
        Fidelity("critic", "observes the mean field in training"),
        Fidelity(
            "policy",
            "decentralized: members need no mean field in execution",
            "observes the clock alone, so that rules can be distributed in advance",
        ),
        Fidelity("learner", "PPO", "PPO with 16 units"),
        Fidelity(
            "settings",
            "not available to us: neither the authors' code nor their sizes",
            "a grid of three by three points, a bandwidth of 0.4, swarms of 20",
        ),
    ),
)
