"""Random network distillation for the path planning of a guided vehicle."""

from __future__ import annotations

from typing import Any

from thespis.core.feeds import Rollouts
from thespis.core.records import Citation
from thespis.evidence.claims import Better, NoWorse
from thespis.evidence.measures import learning_area, success_rate
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.feedback.counts import Counts
from thespis.feedback.rnd import RandomNetworkDistillation
from thespis.learners.normalisers import ReturnScale
from thespis.methods.online.ppo import PPO

_PPO = PPO(
    learning_rate=1e-3, entropy_weight=0.003, rewards=ReturnScale(), epochs=4, minibatch=512,
    feed=Rollouts(length=128, envs=16),
)  # fmt: skip
_RND: dict[str, Any] = {"feedback": RandomNetworkDistillation(weight=0.01, learning_rate=1e-3, epochs=4, minibatch=512)}
_COUNTS: dict[str, Any] = {"feedback": Counts(weight=0.1, width=0.125, numbers=(0, 1))}
_CLAIMS = (
    Better("RND", "PPO", learning_area()),
    Better("RND", "PPO", success_rate(1.0)),
    NoWorse("RND", "counts", learning_area(), margin=0.05),
)
_ARMS = (Arm("RND", _PPO, _RND), Arm("PPO", _PPO), Arm("counts", _PPO, _COUNTS))

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
    does="PPO drives a vehicle through a warehouse with continuous actions and places, where only the goal is paid; "
    "a predictor's error at what it has not seen yet is added to the reward.",
    claim="With the bonus the vehicle finds its way sooner than PPO does alone.",
    parts=(
        "thespis.feedback.rnd:RandomNetworkDistillation",
        "thespis.feedback.counts:Counts",
        "thespis.envs.compiled.warehouse:Warehouse",
    ),
    use="thespis train ppo --env thespis.envs.compiled.warehouse:Warehouse --feedback rnd --steps 600000",
    miniature=Trial(
        arms=_ARMS, envs=("thespis.envs.compiled.warehouse:Warehouse",), steps=600_000, claims=_CLAIMS, episodes=50
    ),
    remarks="Only the paper's abstract and summaries of it were had: scenes, sizes and what the vehicle sees are "
    "ours. One shelf parts two aisles with one other vehicle in each; of a thousand episodes of random "
    "driving three end at the goal. A standard deviation of the predictor's error is worth 0.01, the strength"
    " of the bonus in PyramidsRND, an example of ML-Agents, and one critic values it together with the goal; "
    "the predictor sees a rollout as often as the policy. Counts are of cells of half a metre and know that "
    "places are what matters, which the predictor is not told. Looks at two seeds decided layout, budget and "
    "that rewards are scaled in all arms. With these, both seeds reached the goal within 400,000 steps with "
    "counts, and one with PPO alone; with RND none did in 600,000, neither with this weight nor with 1 (and "
    "steps of the predictor of 1e-3 or 1e-4). Without the scaling RND did no better: not with a weight of 0.1"
    " in 400,000 steps, nor with 1 in 600,000. In all these looks the predictor made one gradient step a "
    "rollout, where the paper's makes as many as the policy; with four epochs of minibatches, and nothing "
    "else changed, eight of ten seeds end at the goal with RND and two with PPO alone. What is not shown is "
    "the curve: one seed in ten begins late and two never do, and counts, which are told what matters, are "
    "ahead.",
    full=Trial(
        arms=_ARMS, envs=("thespis.envs.compiled.warehouse:COMPLEX",), steps=10_000_000, claims=_CLAIMS, looks=1
    ),
)
