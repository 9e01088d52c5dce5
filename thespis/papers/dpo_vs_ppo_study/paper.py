"""DPO against PPO: on the same logged pairs, with a reward model between pairs and policy or without one."""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.core.records import Citation
from thespis.evidence.benches.rated_words import (
    BENCH,
    GAP,
    LABELS_ENV,
    LOGGED_LABELS,
    LOGGED_SETTINGS,
    NUM_LOGGED,
    NUM_ROWS,
    NUM_UPDATES,
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
from thespis.methods.language.dpo import DPO
from thespis.methods.language.online_dpo import OnlineDPO
from thespis.methods.language.ppo_lm import LanguagePPO
from thespis.papers.dpo_vs_ppo_study.feedback import LoggedReward

_KL_COEF, _BETA, _ITERATIVE_BETA = 0.1, 1.0, 0.3
_LOGGED_REWARD: dict[str, Any] = {"feedback": LoggedReward(logging_env=LABELS_ENV, num_dialogues=NUM_LOGGED)}
_TUNED_PPO = LanguagePPO(
    **ONLINE_SETTINGS,
    minibatch_size=NUM_ROWS,
    num_epochs=2,
    kl_penalty=ReverseKL(_KL_COEF),
)
_PPO, _DPO, _ITERATIVE = "PPO", "DPO", "iterative DPO"
_RAW, _SMALL, _FREE = "PPO without advantage normalization", "PPO with small batches", "PPO without a penalty on KL"
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
        "thespis.methods.language.dpo:DPO",
        "thespis.methods.language.ppo_lm:LanguagePPO",
        "thespis.papers.dpo_vs_ppo_study.feedback:LoggedReward",
        "thespis.methods.language.online_dpo:OnlineDPO",
    ),
    command="thespis train ppo-lm --env thespis.evidence.benches.rated_words:UTILITIES --feedback "
    "thespis.papers.dpo_vs_ppo_study.feedback:LoggedReward --model tiny --steps 76800 --set num_layers=1 "
    "hidden_size=32 num_pretrain_steps=300 minibatch_size=64 feedback.logging_env=thespis.evidence.benches.rated_words:"
    "LABELS",
    miniature=BENCH.trial(
        arms=(
            Arm(_PPO, _TUNED_PPO, _LOGGED_REWARD),
            Arm(_DPO, DPO(**LOGGED_SETTINGS, loss_type=SigmoidLoss(_BETA)), LOGGED_LABELS, steps=NUM_UPDATES),
            Arm(_ITERATIVE, OnlineDPO(**ONLINE_SETTINGS, loss_type=SigmoidLoss(_ITERATIVE_BETA)), _LOGGED_REWARD),
            Arm(_RAW, dataclasses.replace(_TUNED_PPO, normalize_advantage=False), _LOGGED_REWARD),
            Arm(
                _SMALL,
                dataclasses.replace(
                    _TUNED_PPO,
                    feed=dataclasses.replace(_TUNED_PPO.feed, num_envs=NUM_ROWS // 8),
                    minibatch_size=NUM_ROWS // 8,
                ),
                _LOGGED_REWARD,
                steps=NUM_UPDATES * NUM_ROWS // 8,
            ),
            Arm(_FREE, dataclasses.replace(_TUNED_PPO, kl_penalty=None), _LOGGED_REWARD),
        ),
        headline=Comparison(_PPO, _DPO, _UTILITY),
        mechanisms=(
            Comparison(_PPO, _DPO, _OUTSIDE),
            Comparison(_ITERATIVE, _DPO, _UTILITY),
            Comparison(_PPO, _RAW, _UTILITY),
        ),
        context=(
            Comparison(_PPO, _ITERATIVE, _UTILITY),
            Comparison(_PPO, _SMALL, _UTILITY),
            Comparison(_PPO, _FREE, _UTILITY),
            Comparison(_PPO, _FREE, _OUTSIDE),
            Comparison(_PPO, _DPO, GAP),
            Comparison(_PPO, _DPO, divergence()),
            NotApplicable(
                "wins in dialogues and solved problems of code competitions",
                "language models of 7B to 34B, preference data, and judges",
            ),
        ),
        looks=plan_looks((10, 20)),
    ),
    fidelity=(
        Fidelity(
            "pairs",
            "of people's preferences, or of a bandit in which few responses are covered",
            "of 2,048 logged words by a demonstrator who never says what is no word, each labelled once",
        ),
        Fidelity("reward model", "fitted to the same pairs by the model of Bradley and Terry"),
        Fidelity(
            "PPO",
            "a critic of tokens, a penalty on KL in the reward, advantages normalized, large batches",
            "the same, with the penalty as a loss and a critic on the actor's features",
        ),
        Fidelity("reference of PPO", "a moving average of the actor", "the initial model; left out"),
        Fidelity(
            "iterative DPO",
            "rounds of pairs of the own responses, labelled by the reward model",
            "the same, with a round for each update",
        ),
        Fidelity("measure", "wins by reward models, people and judges; tests of code", "the exact expected utility"),
        Fidelity("model", "7B to 34B", "a decoder of one layer, 16 words and six prompts"),
    ),
)
