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
    remarks="A decoder of one layer writes up to three sentences about a topic for a reader, whose judgment is the "
    "reward of the whole text and is known exactly. Good spans are nouns of the topic and adjectives that "
    "the reader wants, bad ones other nouns, unwanted adjectives, repeated and misplaced words, and "
    "sentences too many. The critic is a classifier of tokens of the policy's size, trained before PPO on "
    "4,096 texts of the initial model that a rule has marked, and the same for all seeds: on texts of the "
    "policy it marks 99% of the tokens as the rule does, at the beginning and at the end. Found: after "
    "2,560 texts the mean reward is 0.835 with the critic and 0.784 without (shown, 0.051; 0.57 before "
    "training), and the area under the learning curve is larger by 0.044. Bad tokens fall from 30% to 1% "
    "of all, good ones rise from 8% to 22%. Marks of the rule itself lead to 0.847 (no difference from the "
    "critic is decided). What speaks against the paper's reason: it is not density. The same exact marks, "
    "summed and paid at the end of the text, lead to 0.844 (a difference of 0.003, undecided after 10 "
    "pairs), so that what helps is what the critic knows in addition to the reward, not where it is paid. "
    "In texts of at most 19 tokens the value of each token, which PPO learns anyway, may do what dense "
    "rewards do in longer ones; that was not measured. The critic is worth what it knows: with 512 to "
    "1,024 marked texts, 200 to 300 steps and the pretrained model to start from, it found few of the good "
    "tokens (it marked 0% to 5% of the tokens as good, where the rule marks about 8%), and PPO on tuning "
    "seeds 1,100 to 1,102 came to 0.762 (rewards of 0.1 and -0.1), 0.793 (0.3 and -0.3) and 0.731 (0.1 and "
    "-0.5, after other texts), where PPO alone has 0.773. With a learning rate of 2e-3 the first of these "
    "had 0.679 (PPO 0.674); with a lambda of 0.5 both wrote texts without end (0), and exact marks did not "
    "(0.881). The settings of the trial, 0.3 and -0.3 with the better critic, were not tried before it. "
    "Marked texts and the critic's training are not counted as samples of the policy. A random critic was "
    "not tried, nor a critic whose annotators err (mark_noise), nor one that reads the whole text before "
    "it marks. The paper's text could be read in parts only: what is compared is its abstract and the "
    "authors' code.",
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
