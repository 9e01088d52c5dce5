"""APC score: preferences by the number of satisfied persona constraints, against a coarse grade of the response."""

from __future__ import annotations

from thespis.core.contracts import Mode
from thespis.core.records import Citation
from thespis.evidence.benches.persona_facts import (
    BENCH,
    COARSE_ARM,
    DPO,
    FAITHFULNESS,
    IMITATION_ARM,
    ON_POLICY_ARM,
    active_reward,
    faithfulness,
    mean_grade,
    passive_penalty,
)
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paper import Arm, Fidelity, Paper

_APC, _COARSE, _IMITATION = "APC score", COARSE_ARM.name, IMITATION_ARM.name

PAPER = Paper(
    id="apc-score",
    name="APC score",
    citation=Citation(
        "Quantifying and Optimizing Global Faithfulness in Persona-driven Role-playing",
        "Peng and Shang",
        2024,
        "arXiv:2405.07726",
    ),
    family="role-play",
    summary="Faithfulness to a persona is the expected number of its facts whose constraint a response satisfies: "
    "relevant facts must entail it, others must not contradict it. Small discriminators of relevance and of inference, "
    "distilled from a large model, give the probabilities, and the sum orders pairs of responses for DPO.",
    claim="DPO on the score makes characters more faithful, to relevant facts and to others, and the score is a better "
    "criterion than a coarse grade of the whole response.",
    parts=(
        "thespis.envs.text.persona:Persona",
        "thespis.papers.apc_score.envs:GradedPersona",
        "thespis.methods.language.online_dpo:ReferenceSampledDPO",
    ),
    command="thespis train online-dpo --env text:persona --model tiny --steps 6400 --set num_layers=2 hidden_size=64 "
    "num_pretrain_steps=2500 num_pretrain_dialogues=16384 learning_rate=3e-4 loss_type=SigmoidLoss loss_type.beta=0.3",
    miniature=BENCH.trial(
        arms=(Arm(_APC, DPO), COARSE_ARM, IMITATION_ARM, ON_POLICY_ARM),
        headline=Comparison(_APC, _COARSE, FAITHFULNESS),
        mechanisms=(
            Comparison(_APC, _IMITATION, FAITHFULNESS),
            Comparison(_APC, _IMITATION, active_reward()),
            Comparison(_APC, _IMITATION, passive_penalty()),
            Comparison(_APC, _COARSE, mean_grade()),
        ),
        context=(
            Comparison(_APC, _COARSE, active_reward()),
            Comparison(_APC, _COARSE, passive_penalty()),
            Comparison(_APC, _COARSE, faithfulness(Mode.EXPLOIT)),
            Comparison(_APC, _IMITATION, faithfulness(Mode.EXPLOIT)),
            Comparison(_COARSE, _IMITATION, FAITHFULNESS),
            Comparison(ON_POLICY_ARM.name, _APC, FAITHFULNESS),
            NotApplicable(
                "the score of small discriminators, distilled from a large model, agrees better with people than a "
                "distilled coarse score",
                "people who have learned a character's facts, and texts of which entailment is not exact",
            ),
        ),
    ),
    remarks="A character has nine facts, each a word, and a question makes three of them relevant, so that "
    "relevance and entailment are exact, and so is the score: this is the paper's score with discriminators "
    "that never err. All arms start with one model, which has learned from a demonstrator who often says "
    "what is typical of characters, and DPO learns from 960 pairs of that model's responses. The paper "
    "compares the coarse grade as a measure only, and its DPO with no DPO; here the grade is the rival's "
    "reward. It is the scheme of the paper's human raters as a rule, without the errors that the paper "
    "reports of GPT-4, which grades a response high once something in it is right. What was found: "
    "faithfulness is 0.61 with pairs that the score orders, 0.59 with grades and 0.24 without DPO. Nearly "
    "all of the gain is that of any sensible order of pairs. What the score adds is as the paper says, for "
    "facts that the question is not about: 0.06 of them are contradicted for each relevant fact, with "
    "grades 0.09, and 0.18 without DPO; relevant facts are said as often (0.68 and 0.68; undecided). What "
    "speaks against it: the reward of the score is the measure itself. By the coarse grade, which is the "
    "raters' own, the model that learned from grades is better by 0.006 (contradicted): each is better at "
    "what it was trained on, so that this trial cannot say which of the two people would want. Greedy "
    "responses are as good with grades (0.009 better; undecided), and those of the imitator are already "
    "half-way (0.52). Pairs of the model's own responses matter more than the score: online "
    "DPO comes to 0.81, with five times as many updates. No arm has converged after 30 updates, a budget "
    "that was chosen because grades come too close to the best known with more; on tuning seeds the lead "
    "was 0.07 after 150. All pairs are of one fixed model that is the same for all seeds, so the spread is "
    "that of the pairs drawn and of the 500 questions. Left out: discriminators that are distilled from "
    "labels, of which the paper's stronger claim is made, that a coarse score is harder to distill. "
    "Decoders of one layer that were trained on 3,000 labels recognized relevance always, but only 14% to "
    "23% of the contradictions, and no rival was tried; online DPO on them came to 0.25. "
    "One model plays all characters, and nine facts say nothing about hundreds. The whole paper was read, "
    "with its appendices.",
    fidelity=(
        Fidelity("score", "sum over facts of relevance times entailment plus irrelevance times non-contradiction"),
        Fidelity(
            "discriminators",
            "DeBERTa (300M) for relevance and for inference, fine-tuned on labels of GPT-4, of which about 90% are "
            "reproduced",
            "none: relevance and inference are exact",
        ),
        Fidelity(
            "coarse score",
            "by the scheme of the human raters, from 0 to 10 in steps of 2, by GPT-4 or distilled into DeBERTa; "
            "compared as a measure only (appendix J), not as a reward of DPO",
            "the scheme as a rule that counts facts, without the errors that GPT-4 makes; the reward of the rival",
        ),
        Fidelity(
            "pairs",
            "two samples at a temperature of 1 for each of 100 questions, used for ten epochs; those whose scores "
            "differ by more than 0.2",
            "two samples of the imitator for each of 960 questions, used once; those whose scores differ",
        ),
        Fidelity(
            "loss",
            "equation 9 has a DPO loss for each fact, weighted by relevance; appendix D and the code have one for each "
            "pair, ordered by the sum",
            "that of the code",
        ),
        Fidelity(
            "DPO", "beta 0.1, learning rate 2e-4, adapters of rank 128, 4-bit weights", "beta 0.3, 3e-4, all parameters"
        ),
        Fidelity(
            "characters",
            "one model for each, with 8 to 599 facts; all, the best five or none of them in the prompt",
            "one model for all characters, with nine facts, all of them in the prompt",
        ),
        Fidelity(
            "before DPO",
            "Gemma 1.1 7B as it is, or fine-tuned on dialogues that GPT-4 wrote for one fact each",
            "a decoder of two layers that imitates a demonstrator who often says what is typical",
        ),
        Fidelity(
            "figures",
            "correlation with human raters for characters of 8, 19 and 30 facts: 92, 86 and 81 for the grade of GPT-4 "
            "and 97, 99 and 99 for its APC score; distilled 81, 70 and 55 against 89, 96 and 99",
            "none: there are no raters here",
        ),
    ),
)
