"""DVPO: a value model that is fitted to preferences once, frozen, and used as the critic of policy optimization."""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.evidence.benches.over_optimization import BASELINE_ARM, BENCH, HELPFULNESS, NUM_COMPARISONS, REWARD_MODEL
from thespis.evidence.benches.over_optimization import PENALIZED as PPO
from thespis.evidence.benches.steered_text import MODEL
from thespis.evidence.comparisons import Comparison, NotApplicable, NoWorse
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.learners.language.advantage_estimators import TokenGAE
from thespis.learners.language.policy_losses import ReverseKL
from thespis.papers.dvpo.measures import resident_kibibytes
from thespis.papers.dvpo.method import DVPO, ComparisonDPO
from thespis.papers.rluf.envs import REACTIONS_ENV

_COMPARISONS: dict[str, Any] = {"labelling_env": REACTIONS_ENV, "num_comparisons": NUM_COMPARISONS}
_POLICY: dict[str, Any] = MODEL | {"feed": PPO.feed, "learning_rate": 1e-3, "kl_penalty": ReverseKL(0.1)}
_FROZEN = DVPO(**_POLICY, **_COMPARISONS)
_CONVENTIONAL = dataclasses.replace(PPO, separate_value_model=True)
_LEARNED = dataclasses.replace(_FROZEN, advantage_estimator=TokenGAE(), separate_value_model=True)
_DPO = ComparisonDPO(**MODEL, **_COMPARISONS, feed=PPO.feed, beta=0.1, learning_rate=1e-4, num_preference_steps=50)
_ONE_UPDATE = PPO.feed.num_envs
_SHARED = BASELINE_ARM.name
_MEMORY = resident_kibibytes()
MARGIN = 0.05
"""Helpfulness that the frozen critic may cost."""
_DVPO, _PPO, _PREFERENCES, _JOINT = "DVPO", "PPO with a reward model", "DPO", "PPO on the value model"

PAPER = Paper(
    id="dvpo",
    name="DVPO",
    citation=DVPO.citations[0],
    family="preference-rlhf",
    summary="A value model learns from preferences how good every beginning of a text is, once, before the policy is "
    "trained. It is frozen then, and gives the advantages of PPO: there is no reward model, and no critic that learns "
    "with the policy.",
    claim="Policies are as good as those of PPO with a reward model and a critic that learns with the policy, for 40% "
    "less memory and 35% less time, and better than those of DPO.",
    parts=(
        "thespis.papers.dvpo.method:DVPO",
        "thespis.papers.dvpo.method:ComparisonDPO",
        "thespis.methods.language.ppo_lm:LanguagePPO",
    ),
    command="thespis train thespis.papers.dvpo.method:DVPO --env thespis.papers.rluf.envs:REACTIONS --model tiny "
    "--steps 6400 --set labelling_env=thespis.papers.rluf.envs:REACTIONS num_comparisons=64 feed.max_steps=1 "
    "num_layers=1 hidden_size=32 learning_rate=1e-3 kl_penalty=ReverseKL kl_penalty.coef=0.1",
    miniature=BENCH.trial(
        arms=(
            Arm(_DVPO, _FROZEN),
            Arm(_PPO, _CONVENTIONAL, REWARD_MODEL),
            Arm(_PREFERENCES, _DPO, steps=_ONE_UPDATE),
            Arm(_JOINT, _LEARNED),
            BASELINE_ARM,
        ),
        headline=NoWorse(_DVPO, _PPO, HELPFULNESS, margin=MARGIN),
        mechanisms=(
            Comparison(_DVPO, _PREFERENCES, HELPFULNESS),
            Comparison(_DVPO, _PPO, _MEMORY),
        ),
        context=(
            Comparison(_DVPO, _PPO, HELPFULNESS),
            Comparison(_DVPO, _JOINT, HELPFULNESS),
            Comparison(_JOINT, _PPO, HELPFULNESS),
            Comparison(_DVPO, _SHARED, HELPFULNESS),
            Comparison(_DVPO, _SHARED, _MEMORY),
            NotApplicable(
                "35% less training time", "machines with nothing else to do, and models of billions of weights"
            ),
            NotApplicable("MT-Bench, Alpaca-Eval and Arena-Hard", "models of billions of weights, and a judge of them"),
        ),
    ),
    remarks="All arms begin with the same model and have 64 noisy comparisons of pairs of its texts; those of "
    "DVPO and DPO are of the same kind as the reward model's, not the same ones. A margin of 0.05 of "
    "helpfulness is less than a quarter of what PPO gains. What was found: DVPO comes to 0.813, PPO with "
    "a reward model and a critic of its own to 0.796, DPO to 0.693, from 0.58 before training. The mean "
    "difference of DVPO and PPO is +0.026 (-0.028 to +0.079) over 20 pairs: shown. DVPO's lead over DPO "
    "is 0.099 (shown, 15 pairs). Parameters and optimizer states of DVPO take 287 KiB and those of PPO "
    "460 KiB, 38% less, as a critic that does not learn needs no optimizer state and no reward model is "
    "kept. What speaks against it: a critic that is a head on the policy's features (287 KiB) saves as "
    "much, and PPO with it is ahead of DVPO by 0.026 over the ten seeds that both have (undecided). That "
    "the frozen values are what helps is not shown: PPO whose reward is the frozen value of the whole "
    "text and whose critic learns comes to 0.730, but was not tuned and has DVPO's weak penalty on KL. On "
    "tuning seeds 1,100 to 1,102 DVPO had 0.792, 0.855 and 0.794 with penalties of 0.3, 0.1 and 0.03, PPO "
    "0.814, 0.789 and 0.791 with 0.3, 0.2 and 0.1; the best of each was chosen, and 0.855 was luck in "
    "part. DPO had six trials (beta, learning rate, steps): 0.688 (0.1, 1e-4, 50), 0.655 (0.5, 1e-4, 30), "
    "0.612 (0.1, 1e-4, 100), 0.603 (0.5, 1e-4, 100), 0.403 (0.1, 3e-4, 100) and 0.283 (1, 3e-4, 100): "
    "with so few comparisons it is best when it does little. Time is not compared: models of one layer "
    "spend theirs elsewhere. Of the paper abstract, introduction and the authors' code could be read. In "
    "their code values count as 0 after the last token; here that place has the value of the whole text.",
    fidelity=(
        Fidelity(
            "labels of the value model",
            "1 for the preferred response and -1 for the other one (code: or the reward of a reward model)",
            "1 and -1",
        ),
        Fidelity("targets of the value model", "values plus GAE over tokens, with lambda 0.95 and a discount of 1"),
        Fidelity(
            "initial value model",
            "a language model, with a head of zeros",
            "random parameters, as those of the rival's reward model, and a head of zeros",
        ),
        Fidelity(
            "data", "the preferences that a reward model would learn from", "as many comparisons of the same kind"
        ),
        Fidelity("advantages", "GAE over tokens, with lambda 0.95 and a discount of 1, standardized"),
        Fidelity(
            "after the last token",
            "code: a value of 0",
            "the frozen value of the whole text, without which nothing says that a text is to end well",
        ),
        Fidelity("values", "code: standardized within the batch", "as the model gives them"),
        Fidelity(
            "penalty on KL",
            "part of the reward, with an adaptive weight that begins at 0.2",
            "a loss of its own with a constant weight, tuned for DVPO and PPO: 0.1 and 0.3",
        ),
        Fidelity("policy loss", "clipped surrogate, four epochs on each batch", "clipped surrogate, two epochs"),
        Fidelity("optimizer", "Adafactor, 2e-6, with adapters (LoRA) of rank 16", "Adam, 1e-3, all parameters"),
        Fidelity("critic of PPO", "a language model of its own", "the same; with shared features in the bench's arm"),
    ),
)
