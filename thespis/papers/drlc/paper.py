"""DRLC: PPO with dense rewards by a critic that marks spans of a response, beside the reward of the whole."""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.core.records import Citation
from thespis.evidence.benches.token_credit import BENCH, PPO, PPO_ARM, REWARD, TEXTS_ENV
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.measures import learning_curve_auc
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.feedback.span_critic import SpanCritic
from thespis.feedback.token_feedback import ScriptedSpans

_REWARDS: dict[str, Any] = {"good_reward": 0.3, "bad_reward": -0.3}
CRITIC = SpanCritic(
    marking_env=TEXTS_ENV,
    num_texts=4_096,
    text_temperature=1.3,
    num_critic_steps=1_000,
    critic_batch_size=64,
    pretrained_critic=False,
    fit_seed=0,
    **_REWARDS,
)
"""A trained critic, the same for all seeds, whose marks are paid token by token."""
_EXACT = ScriptedSpans(marking_env=TEXTS_ENV, **_REWARDS)
_EXACT_SUM = dataclasses.replace(_EXACT, payment="response")
_DRLC, _PPO, _ORACLE, _SUM = "DRLC", PPO_ARM.name, "exact marks", "exact marks paid at the end"

PAPER = Paper(
    id="drlc",
    name="DRLC",
    citation=Citation(
        "DRLC: Reinforcement Learning with Dense Rewards from LLM Critic", "Cao et al.", 2024, "arXiv:2401.07382"
    ),
    family="language",
    summary="A critic marks the spans of a response that are good or bad. Their tokens are rewarded beside the reward "
    "of the whole response, and PPO learns from both.",
    claim="Consistent gains over PPO with the reward of the whole response alone, at equal samples, in sentiment "
    "control, detoxification and summarization.",
    parts=(
        "thespis.feedback.span_critic:SpanCritic",
        "thespis.feedback.token_feedback:ScriptedSpans",
        "thespis.learners.language.advantage_estimators:TokenGAE",
    ),
    command="thespis train ppo-lm --env text:writing --feedback span-critic --model tiny --steps 2560 --set "
    "feedback.marking_env=text:writing feedback.good_reward=0.3 feedback.bad_reward=-0.3 num_layers=1 hidden_size=64",
    miniature=BENCH.trial(
        arms=(
            Arm(_DRLC, PPO, {"feedback": CRITIC}),
            PPO_ARM,
            Arm(_ORACLE, PPO, {"feedback": _EXACT}),
            Arm(_SUM, PPO, {"feedback": _EXACT_SUM}),
        ),
        headline=Comparison(_DRLC, _PPO, REWARD),
        mechanisms=(Comparison(_ORACLE, _SUM, REWARD),),
        context=(
            Comparison(_DRLC, _PPO, learning_curve_auc()),
            Comparison(_ORACLE, _DRLC, REWARD),
            Comparison(_ORACLE, _PPO, REWARD),
            Comparison(_SUM, _PPO, REWARD),
            NotApplicable(
                "the same language model as policy and critic (self-critique)", "a language model that can be prompted"
            ),
        ),
        looks=plan_looks((10,)),
    ),
    remarks="To be written after the trial.",
    fidelity=(
        Fidelity(
            "critic",
            "a large language model that is prompted with three examples (code: by default GPT's or Llama 2's)",
            "a decoder of one layer and 64 units, a classifier of tokens, trained on 4,096 texts of the initial model "
            "whose spans are marked by a rule; frozen",
        ),
        Fidelity(
            "what the critic reads",
            "the task, the text and, by the paper's abstract, the reward of the environment",
            "the first message and the text up to the token that it marks",
        ),
        Fidelity(
            "rewards of marked tokens",
            "code: each token that occurs in a named span; 0.8 and -0.8 for sentiment, 0.1 and -0.5 for "
            "toxicity, 0.1 and -0.1 for summaries",
            "each token of a marked span in its place; 0.3 and -0.3, tuned",
        ),
        Fidelity("sum", "rewards of tokens are added, that of the whole text comes with the last token"),
        Fidelity(
            "which texts are marked",
            "code: those whose reward is at most a threshold, which the scripts set so high that all are",
            "all",
        ),
        Fidelity(
            "reward of the whole text",
            "the logit of a sentiment classifier, 1 minus toxicity, or a learned or overlap score of summaries",
            "the task's true reward",
        ),
        Fidelity(
            "PPO",
            "four epochs, with an adaptive penalty on KL in the reward, 1.41e-5",
            "two epochs, with a penalty of 0.01 in the loss, 1e-3",
        ),
        Fidelity("model", "GPT-2 of medium and large size, and Llama 2 of 7B", "a decoder of one layer and 64 units"),
    ),
)
