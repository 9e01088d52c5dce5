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
    remarks="A decoder of one layer writes texts of at most 13 tokens about a topic, and how much a text helps is "
    "known. All arms begin with the same model and have 64 noisy comparisons of pairs of its texts. RTO's "
    "reward model and its DPO learn from the same ones, and this reward model is the one that PPO has, "
    "seed by seed; DPO as a rival has as many others. A difference within 0.05 of helpfulness was declared "
    "to be level: it is less than a quarter of what PPO gains. Trials on seeds 1,100 to 1,102, by "
    "helpfulness. RTO with weight, clip and penalty on KL: 0.790 (0.05, 0.05, 0.3), 0.615 (0.05, 0.05, "
    "0.1), 0.782 (0.3, 0.05, 0.3), 0.595 (0.3, 0.3, 0.3) and 0.722 (0.3, 0.3, 1). PPO, whose penalty was "
    "tuned with the bench (0.1 to 1), has 0.790 with 0.3 and 0.766 with 0.5. Learning rates other than the "
    "bench's were not tried for either. So no lead was expected, and the trial says how near they are. "
    "DPO's settings as rewards (50 steps at 1e-4) are those that are best for DPO as a policy, of six. "
    "What was found: RTO comes to 0.802, PPO to 0.794 and DPO to 0.696, from 0.58 before training; with "
    "the true reward PPO has 0.94. RTO and PPO are level: the mean difference is 0.015 (-0.006 to 0.035) "
    "over eight pairs. RTO's lead over DPO is 0.112 (shown), and PPO's 0.097. RTO learns a little faster: "
    "the area under the learning curve is larger by 0.009 (shown, p = 0.047, one of several comparisons "
    "and not the headline); two arms of the bench that differ in nothing but their random numbers have "
    "areas up to 0.025 apart. Rewards of tokens are not what counts: the same rewards, summed and paid at "
    "the end of the text, are level with them (0.008, -0.019 to 0.029), by helpfulness and by learning "
    "curve. What speaks against it: texts are short, and PPO has a value for each token, which may do here "
    "what rewards of tokens do in texts of hundreds. DPO's model does know more than the reward model: on "
    "fresh pairs of texts of four tuning seeds it prefers the more helpful one in 77% of the cases, the "
    "reward model in 71% and a sum of both, each standardized, in 80%, as DPO begins with the pretrained "
    "model and the reward model of the bench with random parameters. At the authors' weight too little of "
    "this reaches the policy, and larger weights harm. With 0.3 and no tighter clip the return rises "
    "faster at first, to 0.71 in the first eighth, and ends at 0.595; paid at the end the same rewards "
    "lead to 0.782 (three tuning seeds, no verdict). So where DPO is the better judge, more pairs, a "
    "reward model that begins with the pretrained model, and longer texts are what is left to try. The "
    "paper's eighth of the samples was not measured, as no arm left PPO behind. The method rto of the "
    "library, which compares its own responses by the environment's rewards, is not what was tried. Of the "
    "paper the abstract, short accounts by others and the authors' code could be read.",
    fidelity=(
        Fidelity(
            "rewards of tokens",
            "the log-ratio of DPO's model and of the one that it began with, times beta 1, clipped; code: 0.05 "
            "and 0.05",
            "the same, with the same figures",
        ),
        Fidelity(
            "reward of the text",
            "that of a reward model, with the last token; code: standardized, and of a smaller model than "
            "that of their PPO",
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
