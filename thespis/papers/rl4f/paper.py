"""RL4F: a small critic trained by PPO to maximize the score of a frozen model that revises its answers."""

from __future__ import annotations

import dataclasses

from thespis.core.records import Citation
from thespis.evidence.benches.trained_critics import (
    ACCURACY,
    AS_PRETRAINED,
    BENCH,
    EXACT_ARM,
    ONE_UPDATE,
    SUPERVISED_ARM,
    TRAINED,
    judgment_accuracy,
    repaired_share,
    with_critic,
)
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paper import Arm, Fidelity, Paper

_RL4F, _SUPERVISED, _EXACT = "RL4F", SUPERVISED_ARM.name, EXACT_ARM.name
_LIKELY = "supervised critic, most likely critiques"
_MOST_LIKELY = dataclasses.replace(AS_PRETRAINED, temperature=0.05)

PAPER = Paper(
    id="rl4f",
    name="RL4F",
    citation=Citation(
        "RL4F: Generating Natural Language Feedback with Reinforcement Learning for Repairing Model Outputs",
        "Akyürek et al.",
        2023,
        "arXiv:2305.08844",
    ),
    family="llm-critic",
    summary="A large model is frozen. A small critic reads its answer and writes a critique, with which the large "
    "model answers again; after supervised learning the critic is trained by PPO on how much better that answer is.",
    claim="Critics that are trained on the score of the revised answer help a frozen model more than supervised "
    "critics do.",
    parts=(
        "thespis.envs.text.critique:CritiqueConversation",
        "thespis.papers.rl4f.envs:LenientDerivation",
        "thespis.learners.multi_agent.cast:Cast",
        "thespis.learners.language.frozen_model:FrozenModel",
        "thespis.methods.language.ppo_lm:LanguagePPO",
    ),
    command="thespis train ppo-lm --env text:verification --steps 20000 --model tiny --set num_layers=1 hidden_size=32",
    miniature=BENCH.trial(
        arms=(
            Arm(_RL4F, with_critic(TRAINED)),
            SUPERVISED_ARM,
            Arm(_LIKELY, with_critic(_MOST_LIKELY), steps=ONE_UPDATE),
            EXACT_ARM,
        ),
        headline=Comparison(_RL4F, _SUPERVISED, ACCURACY),
        mechanisms=(
            Comparison(_RL4F, _SUPERVISED, repaired_share()),
            Comparison(_RL4F, _SUPERVISED, judgment_accuracy()),
        ),
        context=(
            Comparison(_RL4F, _LIKELY, ACCURACY),
            Comparison(_EXACT, _RL4F, ACCURACY),
            Comparison(_SUPERVISED, _LIKELY, ACCURACY),
            NotApplicable(
                "scores in planning, summarization and alphabetization of words",
                "a frozen model of GPT-3's size that can be prompted, and human critiques",
            ),
        ),
    ),
    remarks="A demonstrator's answer to a sum of one step modulo 2 is right in 59% of the cases; a critic reads it "
    "and says that it is right or that the step is wrong, and a frozen solver answers again. Lessons of the "
    "supervised critic are lenient: three fifths of them call the answer right, whatever it is. What was "
    "found: after its critiques 69.7% of the answers are right, after those of RL4F, with 3,840 conversations"
    " more, 87.1%, and after exact ones 87.4%. RL4F repairs 68% of the wrong answers, the supervised critic "
    "26%. What speaks against it: the lead is as large as the leniency makes it, which was chosen for "
    "headroom. The lessons alone do not tell of this bias: at a low temperature the supervised critic calls "
    "everything right (59.1%). Where lessons err at random instead, the most likely critique is the exact "
    "one, and a supervised critic lacks no more than a lower temperature; that case was not tried. The "
    "authors decode critiques by beam search, here they are sampled. PPO is not safe: with a learning rate of"
    " 1e-3 two seeds of tuning ended at 0.764 and 0.795, and only 27% of their critiques were right "
    "judgments, though they spoiled 1% of the right answers: so most of them are likely neither of the two "
    "sentences, which was not counted. With the chosen rate the mean accuracy of judgments in the trial is "
    "0.92 (0.96 without the extremes), so that some seeds may do this too. Nothing here is particular to PPO:"
    " GRPO trains such critics too (docs, page of casts). A critique is one of two sentences, so that there "
    "is no wording to find, the critic is no smaller than the solver, and a right answer has no degrees, "
    "where the authors reward edit distance. All seeds and arms are measured on the same thousand "
    "conversations, and the supervised critic is the same model for all seeds, so that it has no spread at "
    "all: the interval and the 20 standard deviations are those of the trainings alone, and of 2,000 other "
    "conversations the supervised critic had 71.7%. Of the paper the abstract, the introduction and the "
    "authors' code could be read, not the tables.",
    fidelity=(
        Fidelity(
            "solver", "frozen (GPT-3, Codex)", "frozen: a decoder of two layers and 64 units that obeys critiques"
        ),
        Fidelity("critic", "T5 large, a 200th of the solver's size", "a decoder of the solver's size"),
        Fidelity(
            "first answers", "the frozen solver's, generated once", "the demonstrator's, of which two fifths are wrong"
        ),
        Fidelity(
            "before PPO",
            "supervised learning of critiques: by people, or made for alphabetization",
            "supervised learning of 16,384 critiques, three fifths of which say right whatever the answer is",
        ),
        Fidelity(
            "reward",
            "how much nearer the revised answer is to the right one, by edit distance; where it is no further away, 1 "
            "if it is right (alphabetization, the authors' code)",
            "reward of the revised answer minus that of the first: 1, 0 or -1. A right answer that stays right earns "
            "0 here and 1 there",
        ),
        Fidelity("optimizer", "PPO of RL4LMs, 1e-6, five epochs, minibatches of 24", "PPO, 3e-4, two epochs"),
        Fidelity("KL penalty", "0.001", "0.01"),
        Fidelity("entropy bonus", "0.001", "none"),
        Fidelity("critiques", "sentences of up to 20 tokens", "right, or step 1"),
        Fidelity("sampling of the solver", "greedy", "at temperature 1"),
        Fidelity(
            "critiques in evaluation", "by beam search (the code)", "sampled; the most likely ones are tabled too"
        ),
    ),
)
