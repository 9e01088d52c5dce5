"""Bench of emphasized ideas: three dimensions in conflict, and a word in the prompt that says which one counts most.

A model writes texts of two sentences, three tenths of which it has learned to write as the control word asks
(:mod:`thespis.papers.controllable_idea_proposer.envs`). A reward model of each dimension is fitted to comparisons of
its texts, and PPO maximizes a weighted sum. Measured is the true value of texts under the emphasis that was asked for.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.data.feeds import Episodes
from thespis.evidence.bench import Bench, Headroom, Symptom
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import learning_curve_auc
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm
from thespis.evidence.text_aspects import mean_aspect
from thespis.feedback.combined import AddedFeedback
from thespis.learners.language.policy_losses import ReverseKL
from thespis.methods.language.ppo_lm import LanguagePPO
from thespis.papers.controllable_idea_proposer.envs import IDEAS_ENV
from thespis.papers.controllable_idea_proposer.feedback import DIMENSION_REWARDS
from thespis.papers.controllable_idea_proposer.measures import random_value

NUM_ROWS = 64
NUM_UPDATES = 100
LEARNING_RATE = 1e-3
MODEL: dict[str, Any] = {"model": "tiny", "num_layers": 1, "hidden_size": 32, "num_pretrain_steps": 1_500}
PPO = LanguagePPO(
    **MODEL, feed=Episodes(max_steps=1, num_envs=NUM_ROWS), learning_rate=LEARNING_RATE, kl_penalty=ReverseKL(0.2)
)
"""PPO, for all arms."""
EQUAL_WEIGHTS: dict[str, Any] = {"feedback": AddedFeedback(DIMENSION_REWARDS, (1 / 3, 1 / 3, 1 / 3))}
VALUE = mean_aspect("emphasized", "value under the emphasis")
MISSED = mean_aspect(
    "asked", "what is missing to 1 in the emphasized dimension", larger_is_better=False, change=lambda x: 1.0 - x
)
_COPY = dataclasses.replace(PPO, learning_rate=LEARNING_RATE * 1.0001)
BASELINE_ARM = Arm("fixed weights", PPO, EQUAL_WEIGHTS)
TRUE_VALUE_ARM = Arm("true value", PPO)

BENCH = Bench(
    name="emphasized-ideas",
    version=1,
    summary="Short texts whose novelty, feasibility and effectiveness are in conflict: a word in the prompt says which "
    "of them counts most, and the true value under it is known.",
    envs=(IDEAS_ENV,),
    steps=NUM_UPDATES * NUM_ROWS,
    num_episodes=20,
    arms=(BASELINE_ARM, Arm("fixed weights again", _COPY, EQUAL_WEIGHTS), TRUE_VALUE_ARM),
    positive=Comparison("true value", "fixed weights", VALUE),
    negative=Comparison("fixed weights", "fixed weights again", learning_curve_auc()),
    headroom=Headroom("fixed weights", "true value", VALUE, random_value()),
    symptoms=(Symptom("fixed weights", MISSED, 0.2),),
    tuning="By the value under the emphasis on tuning seeds 1,100 to 1,102, with equally many settings for both; "
    "before training 0.55, 0.55 and 0.57, and 0.450 for random texts. A penalty on KL of 0.2: 0.64, 0.65 and "
    "0.55 with fixed weights, 0.80, 0.76 and 0.77 with weights by the control word, 0.84, 0.83 and 0.82 with "
    "the true value. A penalty of 0.05: 0.71, 0.64 and 0.50 with fixed weights, whose third training has a "
    "grammar of 0.72, and 0.74, 0.75 and 0.76 with weights by the control word. 0.2 is that of all arms. "
    "Other learning rates and other sizes of the reward models were not looked at.",
    looks=plan_looks((10,)),
)
