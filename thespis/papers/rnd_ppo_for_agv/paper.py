"""Random network distillation for the path planning of a guided vehicle."""

from __future__ import annotations

from typing import Any

from thespis.core.records import Citation
from thespis.data.feeds import Rollouts
from thespis.evidence.claims import NonInferiority, Superiority
from thespis.evidence.measures import learning_curve_auc, success_rate
from thespis.evidence.paper import Arm, Paper, Trial
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
_CLAIMS = (
    Superiority("RND", "PPO", learning_curve_auc()),
    Superiority("RND", "PPO", success_rate(1.0)),
    NonInferiority("RND", "counts", learning_curve_auc(), margin=0.05),
)
_ARMS = (Arm("RND", _PPO, _RND_OPTIONS), Arm("PPO", _PPO), Arm("counts", _PPO, _COUNT_OPTIONS))

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
    miniature=Trial(
        arms=_ARMS,
        envs=("thespis.papers.rnd_ppo_for_agv.envs:Warehouse",),
        steps=600_000,
        claims=_CLAIMS,
        num_episodes=50,
    ),
    remarks="Only the paper's abstract and summaries of it were available: scenes, sizes and observations are ours. "
    "One shelf separates two aisles with one other vehicle in each; three of a thousand episodes of random driving end "
    "at the goal. One standard deviation of the prediction error is worth 0.01, the bonus strength of PyramidsRND, an "
    "example of ML-Agents, and one critic values bonus and goal together. The predictor trains on a rollout for as "
    "many epochs as the policy. The count bonus has cells of half a metre and counts positions alone, which are what "
    "matters here; the predictor does not have this knowledge. Layout, budget and scaled rewards in all arms were "
    "chosen after looking at two seeds. With these, both seeds with counts and one with PPO alone reached the goal "
    "within 400,000 steps; with RND none did in 600,000, neither with this weight nor with 1 (and step sizes of the "
    "predictor of 1e-3 or 1e-4). Without scaled rewards RND did no better: not with a weight of 0.1 in 400,000 steps, "
    "nor with 1 in 600,000. In all these runs the predictor made one gradient step per rollout, where the paper's "
    "makes as many as the policy. With four epochs of minibatches, and nothing else changed, eight of ten seeds end at "
    "the goal with RND and two with PPO alone. Not shown: the two claims on the curve area. One seed in ten with RND "
    "starts late and two never do, and counts, which have the knowledge of what matters, are ahead.",
    full=Trial(
        arms=_ARMS,
        envs=("thespis.papers.rnd_ppo_for_agv.envs:COMPLEX_WAREHOUSE",),
        steps=10_000_000,
        claims=_CLAIMS,
        max_looks=1,
    ),
)
