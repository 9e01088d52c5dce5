"""Random network distillation for the path planning of a guided vehicle."""

from __future__ import annotations

from typing import Any

from thespis.core.records import Citation
from thespis.data.feeds import Rollouts
from thespis.evidence.benches.exploration import BASELINE, BENCH, COUNTS, TUNED_RND
from thespis.evidence.claims import NonInferiority, Superiority
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import final_return, learning_curve_auc, success_rate
from thespis.evidence.paper import Arm, Fidelity, Paper, Trial
from thespis.feedback.count_bonus import CountBonus
from thespis.feedback.rnd import RandomNetworkDistillation
from thespis.learners.optim.normalizers import ReturnNormalizer
from thespis.methods.online.ppo import PPO

_PPO = PPO(
    learning_rate=1e-3,
    ent_coef=0.003,
    reward_normalizer=ReturnNormalizer(),
    num_epochs=4,
    minibatch_size=512,
    feed=Rollouts(num_steps=128, num_envs=16),
)
_RND_OPTIONS: dict[str, Any] = {
    "feedback": RandomNetworkDistillation(bonus_coef=0.01, learning_rate=1e-3, num_epochs=4, minibatch_size=512)
}
_COUNT_OPTIONS: dict[str, Any] = {"feedback": CountBonus(bonus_coef=0.1, cell_size=0.125, obs_indices=(0, 1))}
_ARMS = (Arm("RND", _PPO, _RND_OPTIONS), Arm("PPO", _PPO), Arm("counts", _PPO, _COUNT_OPTIONS))
_CLAIMS = (
    Superiority("RND", "PPO", learning_curve_auc()),
    Superiority("RND", "PPO", success_rate(1.0)),
    NonInferiority("RND", "counts", learning_curve_auc(), margin=0.05),
)

PAPER = Paper(
    id="rnd-ppo-for-agv",
    name="RND-PPO for AGV",
    citation=Citation(
        "Random Network Distillation Based Deep Reinforcement Learning for AGV Path Planning",
        "Yin et al.",
        2024,
        "arXiv:2404.12594",
    ),
    family="exploration",
    summary="PPO drives a vehicle through a warehouse with continuous states and actions, where only the goal is "
    "rewarded. The prediction error of random network distillation (RND) is added to the reward as an exploration "
    "bonus.",
    claim="With the bonus, the vehicle finds its way sooner than with PPO alone.",
    parts=(
        "thespis.feedback.rnd:RandomNetworkDistillation",
        "thespis.feedback.count_bonus:CountBonus",
        "thespis.papers.rnd_ppo_for_agv.envs:Warehouse",
    ),
    command="thespis train ppo --env thespis.papers.rnd_ppo_for_agv.envs:Warehouse --feedback rnd --steps 600000",
    miniature=BENCH.trial(
        arms=(
            Arm("RND", BASELINE, {"feedback": TUNED_RND}),
            Arm("PPO", BASELINE),
            Arm("counts", BASELINE, {"feedback": COUNTS}),
        ),
        headline=Comparison("RND", "PPO", final_return()),
        context=(
            Comparison("RND", "PPO", learning_curve_auc()),
            Comparison("RND", "counts", final_return()),
            Comparison("RND", "PPO", final_return("sampled")),
        ),
    ),
    remarks="Of the paper only its abstract and summaries of it were available: scenes, sizes and observations are "
    "ours. On the bench an episode has one of two goals: one is near the start and found by chance, the other is "
    "behind a shelf. Without a bonus PPO learns the first and, in no tuning seed and with none of six settings, the "
    "second; the headline asks whether the bonus leads there. One standard deviation of the prediction error is worth "
    "a tenth of the goal, one critic values bonus and goal together, and the predictor trains on a rollout for as many "
    "epochs as the policy. The counts have cells of half a metre and count positions alone, which are what matters "
    "here; the predictor does not have this knowledge. They are context, as is the area under the learning curve: a "
    "bonus that draws the vehicle away from the near goal costs return at first. It does: over the whole run the area "
    "is smaller with RND, and only the final return larger, so that what is shown is that the vehicle finds its way at "
    "all, not that it is sooner at the near goal. An earlier trial by protocol 1 had one goal, behind a shelf and two "
    "other vehicles: with RND eight of ten seeds reached it within 600,000 steps, with PPO two. There PPO has hardly "
    "begun to learn, so that such a scene is no bench.",
    fidelity=(
        Fidelity("bonus", "squared error of a predictor of a fixed random network's features"),
        Fidelity("reward", "goal's reward plus bonus, one stream", "the same, with a weight and one critic"),
        Fidelity("scale of the bonus", "not known", "one standard deviation of the error is worth a tenth of the goal"),
        Fidelity("training of the predictor", "alternates with that of the policy", "on every rollout, as many epochs"),
        Fidelity("rival", "PPO without the bonus, with the same settings"),
        Fidelity("actions and positions", "continuous"),
        Fidelity(
            "environment",
            "warehouses in Unity, simple and complex, with static and dynamic targets; 2,000 to 4,000 steps",
            "one small warehouse with two possible goals; 80 steps",
        ),
    ),
    full=Trial(
        arms=_ARMS,
        envs=("thespis.papers.rnd_ppo_for_agv.envs:COMPLEX_WAREHOUSE",),
        steps=10_000_000,
        claims=_CLAIMS,
        max_looks=1,
    ),
)
