"""Bench of over-optimization: a reward model from few comparisons, whose reward rises while the true one falls.

A model of one layer writes short texts, random ones at first (:mod:`thespis.papers.rluf.envs`). A reward model is
fitted to noisy comparisons of these texts, of which there are few, and PPO maximizes its reward. Without a penalty on
KL the true reward rises at first and falls then, while the learned one goes on rising (Gao et al. 2023); with the best
penalty some of what can be had is missed. Measured is the true helpfulness of sampled texts.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.evidence.bench import Bench, Headroom, Symptom
from thespis.evidence.benches.steered_text import LEARNING_RATE, NUM_ROWS, PPO
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import fall_from_peak, learning_curve_auc
from thespis.evidence.paired_verdict import SHORT_LOOKS
from thespis.evidence.paper import Arm
from thespis.evidence.text_aspects import mean_aspect, untrained_aspect
from thespis.feedback.fitted_reward import ComparisonReward
from thespis.learners.language.policy_losses import ReverseKL
from thespis.papers.rluf.envs import REACTIONS_ENV

NUM_UPDATES = 100
NUM_COMPARISONS = 64
REWARD_MODEL: dict[str, Any] = {"feedback": ComparisonReward(labelling_env=REACTIONS_ENV, num_prompts=NUM_COMPARISONS)}
"""Options of an arm that maximizes the learned reward."""
PENALIZED = dataclasses.replace(PPO, kl_penalty=ReverseKL(0.3))
"""PPO of the baseline, with the best penalty on KL."""
UNPENALIZED = dataclasses.replace(PPO, kl_penalty=None)
HELPFULNESS = mean_aspect("helpfulness", "helpfulness")
_COPY = dataclasses.replace(PENALIZED, learning_rate=LEARNING_RATE * 1.0001)
BASELINE_ARM = Arm("reward model", PENALIZED, REWARD_MODEL)
UNPENALIZED_ARM = Arm("reward model without a penalty", UNPENALIZED, REWARD_MODEL)
TRUE_REWARD_ARM = Arm("true reward", PENALIZED)

BENCH = Bench(
    name="over-optimization",
    version=1,
    summary="Short texts, and a reward model from 64 noisy comparisons: without a penalty on KL the learned reward "
    "rises while the true one falls.",
    envs=(REACTIONS_ENV,),
    steps=NUM_UPDATES * NUM_ROWS,
    num_episodes=20,
    arms=(BASELINE_ARM, Arm("reward model again", _COPY, REWARD_MODEL), UNPENALIZED_ARM, TRUE_REWARD_ARM),
    positive=Comparison("true reward", "reward model", HELPFULNESS),
    negative=Comparison("reward model", "reward model again", learning_curve_auc()),
    headroom=Headroom(
        "reward model", "true reward", HELPFULNESS, untrained_aspect("helpfulness", "helpfulness before training")
    ),
    symptoms=(Symptom("reward model without a penalty", fall_from_peak(), 0.2),),
    tuning="By the training return, which is the true helpfulness, in eighths of 150 updates on seeds 1,100 to 1,102. "
    "With 256 comparisons and no penalty it goes from 0.67 to 0.78 and to 0.32 at the end on one seed, from 0.67 "
    "to 0.49 on another, with a penalty on KL of 0.1 it ends at 0.86 and 0.91, with 0.3 at 0.93 (one seed), and "
    "with the true reward at 0.94 (a penalty of 0.1), so that little was missed. With 64 comparisons: without a "
    "penalty from 0.57 to 0.22 (one seed), with 0.1 at 0.69 and 0.84 (on the way 0.74 and 0.82, and dips to 0.63 "
    "and 0.70), with 0.3 at 0.81 and 0.80, with 1 at 0.68 (one seed, 100 updates). Learning rate and model are "
    "those of the bench steered-text.",
    looks=SHORT_LOOKS,
)
