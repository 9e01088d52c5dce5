"""DPO against PPO: on pairs of the initial model's responses, with a reward model between pairs and policy or none."""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.core.records import Citation
from thespis.evidence.benches.rated_words import (
    BENCH,
    GAP,
    LABELS_ENV,
    NUM_ROWS,
    NUM_UPDATES,
    ONE_RATER,
    ONLINE_SETTINGS,
    divergence,
    expected_utility,
    no_word_probability,
)
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.learners.language.policy_losses import ReverseKL
from thespis.learners.language.preference_losses import SigmoidLoss
from thespis.methods.language.online_dpo import OnlineDPO
from thespis.methods.language.ppo_lm import LanguagePPO
from thespis.papers.copg.pairs import BehaviorSampledDPO
from thespis.papers.dpo_vs_ppo_study.feedback import OutcomeReward

_KL_COEF, _BETA = 0.3, 1.5
"""Penalties of PPO and of DPO: those that are best for each on tuning seeds."""
_ITERATIVE_BETA = 0.3
_NUM_PAIRS = NUM_UPDATES * NUM_ROWS // 2
"""Labelled pairs: as many for the reward model as DPO draws."""
_REWARD_MODEL: dict[str, Any] = {
    "feedback": OutcomeReward(
        labelling_env=LABELS_ENV, num_prompts=_NUM_PAIRS, text_temperature=1.0, num_reward_steps=NUM_UPDATES
    )
}
_TUNED_PPO = LanguagePPO(**ONLINE_SETTINGS, minibatch_size=NUM_ROWS, kl_penalty=ReverseKL(_KL_COEF))
_WEAK_DPO = BehaviorSampledDPO(**ONLINE_SETTINGS, behavior_temperature=1.0, loss_type=SigmoidLoss(_KL_COEF))
_TUNED_DPO = dataclasses.replace(_WEAK_DPO, loss_type=SigmoidLoss(_BETA), learning_rate=6e-4)
_PPO, _DPO, _ITERATIVE = "PPO", "DPO", "iterative DPO"
_WEAK, _RAW = "DPO with the penalty of PPO", "PPO without advantage normalization"
_UTILITY, _OUTSIDE = expected_utility(), no_word_probability()

PAPER = Paper(
    id="dpo-vs-ppo-study",
    name="DPO vs PPO study",
    citation=Citation(
        "Is DPO Superior to PPO for LLM Alignment? A Comprehensive Study", "Xu et al.", 2024, "arXiv:2404.10719"
    ),
    family="evaluation",
    summary="A comparison of preference optimization without a reward model and of PPO with one, from the same pairs: "
    "what each does to responses that the pairs do not cover, and what makes PPO work for language models.",
    claim="DPO can move probability to responses that the preference data never saw, where PPO is held by its penalty; "
    "with normalized advantages, large batches and a moving reference PPO is better than DPO and iterative DPO.",
    parts=(
        "thespis.papers.copg.pairs:BehaviorSampledDPO",
        "thespis.methods.language.ppo_lm:LanguagePPO",
        "thespis.papers.dpo_vs_ppo_study.feedback:OutcomeReward",
        "thespis.methods.language.online_dpo:OnlineDPO",
    ),
    command="thespis train ppo-lm --env thespis.evidence.benches.rated_words:UTILITIES --feedback "
    "thespis.papers.dpo_vs_ppo_study.feedback:OutcomeReward --model tiny --steps 76800 --set num_layers=1 "
    "hidden_size=32 num_pretrain_steps=300 minibatch_size=64 kl_penalty=ReverseKL kl_penalty.coef=0.3 "
    "feedback.labelling_env=thespis.evidence.benches.rated_words:LABELS",
    miniature=BENCH.trial(
        arms=(
            Arm(_PPO, _TUNED_PPO, _REWARD_MODEL),
            Arm(_DPO, _TUNED_DPO, ONE_RATER),
            Arm(_WEAK, _WEAK_DPO, ONE_RATER),
            Arm(_ITERATIVE, OnlineDPO(**ONLINE_SETTINGS, loss_type=SigmoidLoss(_ITERATIVE_BETA)), _REWARD_MODEL),
            Arm(_RAW, dataclasses.replace(_TUNED_PPO, normalize_advantage=False), _REWARD_MODEL),
        ),
        headline=Comparison(_PPO, _DPO, _UTILITY),
        mechanisms=(
            Comparison(_PPO, _WEAK, _OUTSIDE),
            Comparison(_ITERATIVE, _DPO, _UTILITY),
            Comparison(_PPO, _RAW, _UTILITY),
        ),
        context=(
            Comparison(_PPO, _ITERATIVE, _UTILITY),
            Comparison(_PPO, _DPO, _OUTSIDE),
            Comparison(_PPO, _WEAK, _UTILITY),
            Comparison(_PPO, _DPO, GAP),
            Comparison(_RAW, _DPO, GAP),
            Comparison(_PPO, _RAW, GAP),
            Comparison(_PPO, _DPO, divergence()),
            NotApplicable(
                "wins in dialogues and solved problems of code competitions",
                "language models of 7B to 34B, preference data, and judges",
            ),
        ),
        looks=plan_looks((10,)),
    ),
    remarks="A decoder of one layer says one of 16 words to each of six prompts; the utilities are known, and all "
    "measures are exact. The same number of labelled pairs of the initial model's responses, 38,400, is what "
    "DPO learns from or what the reward model of PPO and of iterative DPO is fitted to; 4.6% of these "
    "responses are no word. Trials on seeds 1,100 to 1,104, two to five of them, by expected utility, with "
    "1,200 updates unless it is said otherwise: DPO with beta and learning rate 0.06 (0.3, 3e-4), 0.15 (0.6, "
    "3e-4), 0.16 (1, 3e-4), 0.22 (1, 3e-4, 400 updates), 0.22 (1, 1e-4), 0.33 (1, 6e-4), 0.40 (1, 1e-3), "
    "0.373 (1.5, 6e-4), 0.365 (1.5, 1e-3), 0.24 (2, 3e-4), 0.30 (2, 1e-3), 0.26 (2, 3e-3) and 0.14 (3, 3e-4). "
    "With a beta of 1 and learning rates of 3e-4 and 6e-4 three of eight trainings put 18% to 35% of the "
    "probability on responses that are no word, and the others come to 0.39 to 0.53; so 1.5 was chosen, which "
    "is steady. PPO with a penalty of 0.1 1.20, of 0.3 1.18, of 1 0.83; without advantage normalization 1.12 "
    "(0.3), 1.07 (0.3, learning rate 1e-3) and 0.55 (1). Iterative DPO was tried with one setting, and the "
    "moving reference not at all. Before training the utility is -0.12, and the policy gradient that reads "
    "the utilities comes to 1.36 with a penalty of 0.1. What was found: PPO ends at a utility of 1.20 and DPO "
    "at 0.35, on each of ten seeds. With PPO's penalty of 0.3 DPO puts 21% of the probability on responses "
    "that are no word, which the pairs hardly cover, and PPO 0.1%, from the same number of pairs: most likely "
    "as the reward model has learned from the few pairs that cover them how bad they are, and PPO tries them. "
    "Advantage normalization adds 0.14 of utility. What speaks against it: the lead is not one of PPO over "
    "the loss of DPO. Iterative DPO with the same reward model comes to 1.22, which ten pairs do not tell "
    "from PPO (p = 0.56), with two seeds below 0.5, where PPO has one below 1. The paper has PPO above it. So "
    "the lead is one of own responses and a reward model, of which PPO has 76,800 without labels in addition. "
    "Most of it is KL as well: PPO goes 2.8 nats from the model before training and DPO 0.17. By the utility "
    "less 0.3 times KL, the objective of that penalty, PPO with normalized advantages is not better than "
    "tuned DPO (a gap of 0.55 and 0.62, undecided); without normalization, which the penalty as a loss does "
    "not know of, it is (0.29), with a utility of 1.02 at 1.35 nats. By that measure normalization is a loss "
    "of 0.30, and its gain in utility looks like that of a smaller penalty. And coverage decides: in a first "
    "design, with 2,048 logged pairs of a demonstrator who never says what is no word, PPO exploited the "
    "reward model there as DPO exploits its log-ratios (seeds 1,100 to 1,102: up to 83% of the probability on "
    "such responses with a penalty of 0.1, 48% with 0.3), so that a reward model protects from them only "
    "where the pairs say something of them. That design was not kept, as DPO came to no more than 11% of the "
    "way there. Of the paper the abstract and the authors' code could be read, not the tables.",
    fidelity=(
        Fidelity(
            "pairs",
            "of people's preferences, or of a bandit in which few responses are covered",
            "of two responses of the initial model, each labelled once by the model of Bradley and Terry; DPO draws "
            "38,400 new ones, and the reward model 38,400 others",
        ),
        Fidelity(
            "reward model", "fitted to the pairs by the model of Bradley and Terry", "the same, then standardized"
        ),
        Fidelity(
            "PPO",
            "a critic of tokens, a penalty on KL in the reward, advantages normalized, large batches",
            "the same, with the penalty as a loss, a critic on the actor's features, and one size of batches",
        ),
        Fidelity("reference of PPO", "a moving average of the actor", "the initial model; a moving one was not tried"),
        Fidelity(
            "iterative DPO",
            "rounds of pairs of the own responses, labelled by the reward model",
            "the same, with a round for each update",
        ),
        Fidelity("measure", "wins by reward models, people and judges; tests of code", "the exact expected utility"),
        Fidelity(
            "tuning",
            "not read",
            "of DPO its beta, updates and learning rate in 13 trials, of PPO its penalty, rate and normalization in 6",
        ),
        Fidelity("model", "7B to 34B", "a decoder of one layer, 16 words and six prompts"),
    ),
)
