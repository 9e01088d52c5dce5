"""RTO: PPO with DPO's log-ratios as the rewards of tokens, beside the reward of a reward model for the whole text."""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.evidence.benches.over_optimization import BENCH, HELPFULNESS, NUM_COMPARISONS, PENALIZED, REWARD_MODEL
from thespis.evidence.benches.steered_text import MODEL
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.measures import learning_curve_auc
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.feedback.dpo_reward import DPOReward
from thespis.papers.dvpo.method import ComparisonDPO
from thespis.papers.rluf.envs import REACTIONS_ENV
from thespis.papers.rto.feedback import RTOReward

_REWARD = RTOReward(
    labelling_env=REACTIONS_ENV,
    num_prompts=NUM_COMPARISONS,
    num_dpo_steps=50,
    dpo_learning_rate=1e-4,
    token_reward_coef=0.05,
    token_reward_clip=0.05,
)
"""A reward model from the bench's comparisons, and DPO from the same ones."""
_AT_THE_END = dataclasses.replace(_REWARD, payment="response")
_PREFERENCES = ComparisonDPO(
    **MODEL,
    labelling_env=REACTIONS_ENV,
    num_comparisons=NUM_COMPARISONS,
    feed=PENALIZED.feed,
    beta=0.1,
    learning_rate=1e-4,
    num_preference_steps=50,
)
_RTO, _PPO, _DELAYED, _DPO = "RTO", "PPO with a reward model", "RTO paid at the end", "DPO"
_ONE_UPDATE = PENALIZED.feed.num_envs
_CURVE = learning_curve_auc()
MARGIN = 0.05
"""Helpfulness that counts as level: less than a quarter of what PPO gains."""
_CURVE_MARGIN = 0.02
_FEEDBACK: dict[str, Any] = {"feedback": _REWARD}

PAPER = Paper(
    id="rto",
    name="RTO",
    citation=DPOReward.citations[0],
    family="preference-rlhf",
    summary="A language model that DPO has trained says of each token how much likelier it is than before. PPO "
    "maximizes these rewards of tokens and, at the end of the text, the reward of a reward model, both learned from "
    "the same comparisons.",
    claim="Policies are better than those of PPO with the reward of whole texts alone and than those of DPO, at equal "
    "samples, as rewards of tokens say more than one reward for the whole.",
    parts=(
        "thespis.papers.rto.feedback:RTOReward",
        "thespis.feedback.dpo_reward:DPOReward",
        "thespis.feedback.fitted_reward:ComparisonReward",
        "thespis.methods.language.ppo_lm:LanguagePPO",
    ),
    command="thespis train ppo-lm --env thespis.papers.rluf.envs:REACTIONS --feedback "
    "thespis.papers.rto.feedback:RTOReward --model tiny --steps 6400 --set num_layers=1 hidden_size=32 "
    "feed.max_steps=1 learning_rate=1e-3 kl_penalty=ReverseKL kl_penalty.coef=0.3 "
    "feedback.labelling_env=thespis.papers.rluf.envs:REACTIONS feedback.num_prompts=64",
    miniature=BENCH.trial(
        arms=(
            Arm(_RTO, PENALIZED, _FEEDBACK),
            Arm(_PPO, PENALIZED, REWARD_MODEL),
            Arm(_DELAYED, PENALIZED, {"feedback": _AT_THE_END}),
            Arm(_DPO, _PREFERENCES, steps=_ONE_UPDATE),
        ),
        headline=Comparison(_RTO, _PPO, HELPFULNESS, margins=(MARGIN,)),
        mechanisms=(
            Comparison(_RTO, _DELAYED, HELPFULNESS, margins=(MARGIN,)),
            Comparison(_RTO, _DPO, HELPFULNESS),
        ),
        context=(
            Comparison(_RTO, _PPO, _CURVE, margins=(_CURVE_MARGIN,)),
            Comparison(_RTO, _DELAYED, _CURVE, margins=(_CURVE_MARGIN,)),
            Comparison(_DELAYED, _PPO, HELPFULNESS, margins=(MARGIN,)),
            Comparison(_PPO, _DPO, HELPFULNESS),
            NotApplicable(
                "win rates on AlpacaEval 2 and Arena-Hard", "models of billions of weights, and a judge of them"
            ),
        ),
        looks=plan_looks((8,)),
    ),
    remarks="On tuning seeds 1,100 to 1,102 no lead was seen: RTO with the authors' weight and clip came to 0.790, PPO "
    "with the reward model alone to 0.790. The trial says whether they are level within 0.05 of helpfulness.",
    fidelity=(
        Fidelity(
            "rewards of tokens",
            "the log-ratio of DPO's model and of the one that it began with, times beta 1, clipped; code: 0.05 "
            "and 0.05",
            "the same, with the same figures",
        ),
        Fidelity(
            "reward of the text",
            "that of a reward model, with the last token; code: standardized by a running mean, and of a smaller model "
            "than that of their PPO",
            "the same reward model in all arms, standardized over the texts that it was fitted to",
        ),
        Fidelity(
            "initial reward model", "a language model", "random parameters, as in the bench; DPO's is the policy's own"
        ),
        Fidelity(
            "comparisons",
            "binarized UltraFeedback, for DPO and the reward model",
            "64 noisy ones of pairs of the initial model's texts, the same for RTO's two models and for PPO's; DPO "
            "as a rival has as many others",
        ),
        Fidelity(
            "penalty on KL",
            "part of the reward of each token, with a constant weight (code: 0.01)",
            "a loss of its own, with a weight of 0.3, tuned",
        ),
        Fidelity(
            "PPO",
            "code: GAE over tokens with lambda 0.95 and a discount of 1, one epoch, a critic of its own",
            "the same GAE, two epochs, a critic on the policy's features",
        ),
        Fidelity("length of texts", "up to 1,024 tokens", "up to 13 tokens"),
        Fidelity(
            "figures",
            "length-controlled wins on AlpacaEval 2: RTO 27.0, PPO 19.5, DPO 17.4, before training 13.2",
            "helpfulness, in the tables",
        ),
        Fidelity("model", "Llama 3 of 8B", "a decoder of one layer and 32 units"),
    ),
)
