"""RLUF: a model of users' binary reactions as one of several rewards, and what its weight does."""

from __future__ import annotations

from thespis.evidence.benches.user_reactions import (
    BASELINE_ARM,
    BENCH,
    PPO,
    RATE,
    weighted_rewards,
)
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.papers.rluf.feedback import LoveReward
from thespis.papers.rluf.measures import helpfulness, overestimated_love, predicted_love_rate

LOVE_WEIGHT, SMALL_WEIGHT = 0.5, 0.25
"""Weights of P[Love]; the weight of helpfulness is what is missing to 1."""
_RLUF, _SMALL, _LOVE = "RLUF", "RLUF with a small weight", "love only"
_HELP = BASELINE_ARM.name

PAPER = Paper(
    id="rluf",
    name="RLUF",
    citation=LoveReward.citations[0],
    family="preference-rlhf",
    summary="A reward model of users' binary reactions, P[Love], is one of several rewards of policy optimization, "
    "beside helpfulness and safety; its weight decides how far users' reactions are pursued.",
    claim="28% more love reactions in live tests than the policy that is trained without them; with larger weights "
    "reward hacking, at the cost of helpfulness.",
    parts=(
        "thespis.papers.rluf.feedback:LoveReward",
        "thespis.feedback.fitted_reward:ComparisonReward",
        "thespis.papers.rluf.envs:ReactedWriting",
        "thespis.feedback.combined:AddedFeedback",
    ),
    command="thespis train ppo-lm --env thespis.papers.rluf.envs:REACTIONS --feedback "
    "thespis.papers.rluf.feedback:LoveReward --model tiny --steps 6400 --set num_layers=1 hidden_size=32 "
    "num_pretrain_steps=1500 learning_rate=1e-3 feed.max_steps=1",
    miniature=BENCH.trial(
        arms=(
            Arm(_RLUF, PPO, weighted_rewards(LOVE_WEIGHT)),
            BASELINE_ARM,
            Arm(_LOVE, PPO, weighted_rewards(1.0)),
            Arm(_SMALL, PPO, weighted_rewards(SMALL_WEIGHT)),
        ),
        headline=Comparison(_RLUF, _HELP, RATE),
        mechanisms=(
            Comparison(_LOVE, _RLUF, predicted_love_rate()),
            Comparison(_RLUF, _LOVE, helpfulness()),
            Comparison(_RLUF, _LOVE, overestimated_love()),
        ),
        context=(
            Comparison(_RLUF, _LOVE, RATE),
            Comparison(_SMALL, _HELP, RATE),
            Comparison(_RLUF, _SMALL, RATE),
            Comparison(_SMALL, _RLUF, helpfulness()),
            Comparison(_HELP, _RLUF, helpfulness()),
            NotApplicable("28% more love reactions in live tests", "users in production"),
        ),
        looks=plan_looks((10,)),
    ),
    remarks="A decoder of one layer writes up to two sentences about the sea, which help the more the "
    "longer they are, and are loved if they are warm and short; both want the topic and variety. "
    "P[Love] is learned from 8,192 texts, each of which one user loves or not: about a fifth of them are "
    "loved. What was found, as means over ten seeds: with half of the weight on P[Love] texts are "
    "loved in 0.390 of the cases and with helpfulness only in 0.310, a quarter more (the authors: "
    "28%), on every seed. A weight of 0.25 has nearly all of that, 0.378, for a helpfulness of 0.91 "
    "where helpfulness only has 0.92. More weight costs helpfulness: 0.79 with a weight of 0.5, "
    "where three seeds of ten write short texts (0.50 to 0.59) and the others do not (0.87 to "
    "0.93), and 0.51 with P[Love] alone. The true reactions do not rise with it: 0.391 with P[Love] "
    "alone. Seven of its seeds are loved more than RLUF (0.42 to 0.51), but one has 0.36, and two "
    "trainings (seeds 5 and 9) end at faulty texts with 0.18 and 0.19 true love, for which P[Love] "
    "predicts 0.42 and 0.55. That is reward hacking, of a reward model that knows few faulty texts. "
    "What speaks against the claims: as means, the proxy and its excess over the truth do not grow "
    "with the weight for certain (0.45 and 0.47 predicted; 0.06 and 0.08 too much): both are "
    "undecided after ten pairs, so hacking is seen in two seeds of ten and is not shown. The fall "
    "in helpfulness is shown, but it is mostly wanted by users here, who love short texts, and no "
    "error of P[Love]. The lead is what is to be expected of a reward for the measure itself; that "
    "sparse, partly adversarial reactions are enough is what it shows, with love rates of a fifth, "
    "not of a thousandth. With rarer reactions P[Love] was too poor (see the bench). Ten pairs were "
    "the only look. Neither RLUF nor its rival was tuned on this task; learning rate and penalty "
    "are those of the bench steered-text.",
    fidelity=(
        Fidelity(
            "signal",
            "love reactions of users in production to a deployed model: binary, sparse, at times adversarial",
            "drawn with a known probability, at most 0.54; one user in ten reacts to what is not liked",
        ),
        Fidelity(
            "reward model of reactions",
            "a language model that predicts the probability of a love reaction, P[Love]",
            "a decoder of the policy's size, from random parameters, by cross-entropy on 8,192 texts",
        ),
        Fidelity(
            "other rewards",
            "helpfulness and safety, from experts' preferences",
            "helpfulness, from 4,096 comparisons of a scripted judge; nothing is unsafe",
        ),
        Fidelity(
            "combination",
            "a weighted sum in multi-objective policy optimization; a moderate and an aggressive weight of P[Love]",
            "a weighted sum of standardized rewards, each with weights of 0.5, or 0.25 for P[Love]; and P[Love] alone",
        ),
        Fidelity("evaluation", "live A/B tests with users, judges of helpfulness", "the exact probability and value"),
        Fidelity("optimizer", "of large language models, with judges that constrain", "PPO with a KL penalty of 0.2"),
        Fidelity("model", "a large language model in production", "a decoder of one layer and 32 units"),
    ),
)
