"""Bench of steered text: preferences under random principles, and reinforcement learning under some chosen later.

A model of one layer writes random texts at first (:mod:`thespis.papers.salmon.envs`). A judge compares pairs of them,
each pair under principles of its own, and a reward model learns from these comparisons
(:mod:`thespis.papers.salmon.feedback`). Then the model is trained by PPO on that reward under one set of principles: a
text has to be calm and plain. Measured is the true reward under these principles.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.data.feeds import Episodes
from thespis.envs.text.task import TextEnv
from thespis.evidence.bench import Bench, Headroom, Symptom
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import learning_curve_auc
from thespis.evidence.paired_verdict import SHORT_LOOKS
from thespis.evidence.paper import Arm
from thespis.learners.language.policy_losses import ReverseKL
from thespis.methods.language.ppo_lm import LanguagePPO
from thespis.papers.salmon.envs import PrincipledWriting
from thespis.papers.salmon.feedback import PrincipleReward
from thespis.papers.salmon.measures import true_reward, unmet_principles, untrained_reward

STEERED = TextEnv(PrincipledWriting(pace="calm", manner="plain"), use_privileged=True)
"""The principles that are chosen: those of the true reward, and of what a reward model reads."""
STEERED_ENV = f"{__name__}:STEERED"
NUM_ROWS = 64
NUM_UPDATES = 100
LEARNING_RATE = 1e-3
MODEL: dict[str, Any] = {"model": "tiny", "num_layers": 1, "hidden_size": 32, "num_pretrain_steps": 1_500}
PPO = LanguagePPO(
    **MODEL,
    feed=Episodes(max_steps=1, num_envs=NUM_ROWS),
    learning_rate=LEARNING_RATE,
    kl_penalty=ReverseKL(0.2),
)
"""PPO, for all arms."""
UNCONDITIONED = PrincipleReward(reads_principles=False)
"""A reward model that has the same comparisons and does not read under which principles they were made."""
REWARD = true_reward()
_COPY = dataclasses.replace(PPO, learning_rate=LEARNING_RATE * 1.0001)
BASELINE_ARM = Arm("one reward for all principles", PPO, {"feedback": UNCONDITIONED})
TRUE_REWARD_ARM = Arm("true reward", PPO)

BENCH = Bench(
    name="steered-text",
    version=1,
    summary="Short texts that are judged by principles in words: preferences are given under random principles, and "
    "the principles that count are chosen when reinforcement learning begins.",
    envs=(STEERED_ENV,),
    steps=NUM_UPDATES * NUM_ROWS,
    num_episodes=20,
    arms=(
        BASELINE_ARM,
        Arm("one reward for all principles again", _COPY, {"feedback": UNCONDITIONED}),
        TRUE_REWARD_ARM,
    ),
    positive=Comparison("true reward", "one reward for all principles", REWARD),
    negative=Comparison("one reward for all principles", "one reward for all principles again", learning_curve_auc()),
    headroom=Headroom("one reward for all principles", "true reward", REWARD, untrained_reward()),
    symptoms=(Symptom("one reward for all principles", unmet_principles(), 0.3),),
    tuning="By the true reward of sampled texts on seeds 1,100 to 1,104; before training 0.43. With a KL penalty of "
    "0.1 one reward for all principles came to 0.51, 0.02, 0.49, 0.87 and 0.83, and a reward model that reads "
    "the principles to 0.96, 0.80, 0.67, 0.86 and 0.98; with 0.2 to 0.59, 0.68, 0.64, 0.78 and 0.70, and "
    "0.94, 0.90, 0.69, 0.89 and 0.97. The penalty is that of all arms. Other tasks were looked at before, on "
    "seeds 1,100 to 1,109, and not kept: warm or cold adjectives were not learned by any reward model in "
    "1,200 steps, and of long or short texts PPO wrote short ones whatever the reward, so that one reward for "
    "all was as good for short texts. There, with a penalty of 0.01, PPO ended at empty texts in eight of ten "
    "seeds. A reward model that starts from the pretrained model learns the principles much later than one "
    "that starts from random parameters (accuracy after 600 steps 0.60 and 0.76).",
    looks=SHORT_LOOKS,
)
