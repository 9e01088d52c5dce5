"""Bench of users' reactions: texts that help and texts that are loved, and rewards learned from labels of both.

A model of one layer writes random texts at first (:mod:`thespis.papers.rluf.envs`). One reward model learns from
comparisons which texts help, another from sparse binary reactions, some of adversaries, which are loved
(:mod:`thespis.papers.rluf.feedback`). PPO maximizes a weighted sum of both. Measured are the true helpfulness and the
true probability of love.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.envs.text.task import TextEnv
from thespis.evidence.bench import Bench, Headroom, Symptom
from thespis.evidence.benches.steered_text import LEARNING_RATE, NUM_ROWS, NUM_UPDATES, PPO
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import learning_curve_auc
from thespis.evidence.paired_verdict import SHORT_LOOKS
from thespis.evidence.paper import Arm
from thespis.feedback.combined import AddedFeedback
from thespis.feedback.fitted_reward import ComparisonReward
from thespis.papers.rluf.envs import REACTIONS_ENV, ReactedWriting
from thespis.papers.rluf.feedback import LoveReward
from thespis.papers.rluf.measures import love_rate, missed_love, untrained_love_rate

LOVE = TextEnv(ReactedWriting(objective="love"))
"""The same texts, whose reward is the probability of love."""
LOVE_ENV = f"{__name__}:LOVE"
_HELPFULNESS, _LOVE = ComparisonReward(labelling_env=REACTIONS_ENV), LoveReward()


def weighted_rewards(love_weight: float) -> dict[str, Any]:
    """Options of an arm that maximizes helpfulness and, with a weight, P[Love]; the weights sum up to 1."""
    rewards = ((_HELPFULNESS, 1.0 - love_weight), (_LOVE, love_weight))
    parts, weights = zip(*(pair for pair in rewards if pair[1]), strict=True)
    return {"feedback": AddedFeedback(parts, weights)}


RATE = love_rate()
_COPY = dataclasses.replace(PPO, learning_rate=LEARNING_RATE * 1.0001)
BASELINE_ARM = Arm("helpfulness only", PPO, weighted_rewards(0.0))
TRUE_LOVE_ARM = Arm("true love", PPO, env=LOVE_ENV)

BENCH = Bench(
    name="user-reactions",
    version=1,
    summary="Short texts that help or are loved: rewards from comparisons and from users' sparse binary reactions are "
    "mixed, and both true values are known.",
    envs=(REACTIONS_ENV,),
    steps=NUM_UPDATES * NUM_ROWS,
    num_episodes=20,
    arms=(
        BASELINE_ARM,
        Arm("helpfulness only again", _COPY, weighted_rewards(0.0)),
        TRUE_LOVE_ARM,
    ),
    positive=Comparison("true love", "helpfulness only", RATE),
    negative=Comparison("helpfulness only", "helpfulness only again", learning_curve_auc()),
    headroom=Headroom("helpfulness only", "true love", RATE, untrained_love_rate()),
    symptoms=(Symptom("helpfulness only", missed_love(), 0.3),),
    tuning="By the love rate of sampled texts on seeds 1,100 to 1,102; before training 0.19. Helpfulness "
    "only has 0.29, 0.34 and 0.33, and with half of the weight on P[Love] 0.33, 0.39 and 0.37: the "
    "first trial of both on this task. Learning rate, KL penalty and model are those of the bench "
    "steered-text. Other tasks were looked at before and not kept. With three topics no reward "
    "model learned which nouns belong to the topic. With love at most half as frequent (0.27 of the "
    "best texts), and more of it for warm and short ones, P[Love] was too poor: love alone led to "
    "0.12, 0.05 and 0.11, less than helpfulness only (0.14, 0.12, 0.13), which was then a quarter "
    "of the way to what the true probability of love leads to (0.27). A learning rate of 3e-3 of "
    "the reward models was less reliable than 1e-3 (correlation of P[Love] with the true "
    "probability 0.87 and 0.39, and 0.79 and 0.82; 0.93 with love twice as frequent); batches of "
    "128 and four times as many texts changed little.",
    looks=SHORT_LOOKS,
)
