"""RefCritic: a critic trained by GRPO for right verdicts and for answers that are right after its critiques."""

from __future__ import annotations

import dataclasses

from thespis.core.records import Citation
from thespis.evidence.benches.located_errors import (
    ACCURACY,
    AS_PRETRAINED,
    BENCH,
    EXACT_ARM,
    JUDGING_ARM,
    ONE_UPDATE,
    REFINED_ONLY_ENV,
    SUPERVISED_ARM,
    TRAINED,
    with_critic,
)
from thespis.evidence.benches.trained_critics import judgment_accuracy
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.papers.refcritic.measures import filtered_vote_accuracy, located_share

_REFCRITIC, _VERDICTS, _SUPERVISED = "RefCritic", JUDGING_ARM.name, SUPERVISED_ARM.name
_LIKELY, _REFINED = "supervised critic, most likely critiques", "critic trained for refinements"
_EXACT = EXACT_ARM.name
_MOST_LIKELY = dataclasses.replace(AS_PRETRAINED, temperature=0.05)
_LOCATED, _JUDGED, _VOTED = located_share(), judgment_accuracy(), filtered_vote_accuracy()

PAPER = Paper(
    id="refcritic",
    name="RefCritic",
    citation=Citation(
        "RefCritic: Training Long Chain-of-Thought Critic Models with Refinement Feedback",
        "Tang et al.",
        2025,
        "arXiv:2507.15024",
    ),
    family="llm-critic",
    summary="A critic reads a problem and a solution, and writes a critique that ends in a verdict. After supervised "
    "learning it is trained by reinforcement learning on two rewards that rules give: for a right verdict, and for "
    "solutions that are right after the critique.",
    claim="Critics that are trained for verdicts and for refinements help a policy more than supervised critics do; "
    "votes are better among the solutions that they accept.",
    parts=(
        "thespis.envs.text.critique:CritiqueConversation",
        "thespis.papers.refcritic.envs:Successors",
        "thespis.papers.refcritic.measures:judge_answers",
        "thespis.learners.multi_agent.cast:Cast",
        "thespis.learners.language.frozen_model:FrozenModel",
        "thespis.methods.language.grpo:GRPO",
    ),
    command="thespis train grpo --env text:verification --steps 20000 --model tiny --set num_layers=1 hidden_size=32",
    miniature=BENCH.trial(
        arms=(
            Arm(_REFCRITIC, with_critic(TRAINED)),
            JUDGING_ARM,
            Arm(_REFINED, with_critic(TRAINED), env=REFINED_ONLY_ENV),
            SUPERVISED_ARM,
            Arm(_LIKELY, with_critic(_MOST_LIKELY), steps=ONE_UPDATE),
            EXACT_ARM,
        ),
        headline=Comparison(_REFCRITIC, _VERDICTS, ACCURACY),
        mechanisms=(
            Comparison(_REFCRITIC, _VERDICTS, _LOCATED),
            Comparison(_REFCRITIC, _SUPERVISED, _JUDGED),
            Comparison(_REFCRITIC, _SUPERVISED, _VOTED),
        ),
        context=(
            Comparison(_REFCRITIC, _SUPERVISED, ACCURACY),
            Comparison(_REFCRITIC, _LIKELY, ACCURACY),
            Comparison(_REFCRITIC, _REFINED, ACCURACY),
            Comparison(_REFCRITIC, _REFINED, _JUDGED),
            Comparison(_VERDICTS, _SUPERVISED, ACCURACY),
            Comparison(_EXACT, _REFCRITIC, ACCURACY),
            NotApplicable(
                "scores on AIME, ProcessBench and other benchmarks",
                "language models of 14B that reason at length, and mathematical problems",
            ),
        ),
    ),
    remarks="A list of three digits is answered by the successor of each modulo 5; in 59.5% of the first answers "
    "one digit has slipped. A critic says that the answer is right or which step is wrong, and a frozen "
    "solver changes that step and nothing else. Lessons of the supervised critic are superficial: a "
    "quarter are random verdicts, three fifths of the others call everything right, and of the rest that "
    "find a slip three fifths name the first step. What was found: after RefCritic's critiques 88.9% of "
    "the answers are right, after those of a critic that is trained for verdicts alone 60.8%, after the "
    "supervised one's 51.4% and after exact ones 91.2%. Both trained critics have 99% right verdicts; "
    "RefCritic locates 97% of the errors that it finds and the other 40%, fewer than the supervised "
    "critic (49%): reward for verdicts says nothing of the step. What speaks against it: the gap is as "
    "large as the habit in the lessons makes it, which was chosen, and a verdict was made worth nothing "
    "to the solver without a place. The reward for refinements alone does as well: 88.6% (undecided), "
    "with 98% right verdicts against 99% (shown). So the second reward is what counts here, and the first "
    "adds one point of verdicts. Votes among the eight answers that a critic accepts are right for 91% of "
    "the lists, after training for verdicts alone too, and for 44% with the supervised critic; without a "
    "filter 40% (tuning seeds). Slips are visible in the answer alone, since critics of this size did not "
    "learn to compare it with the list. When the solver had never read a misplaced critique, GRPO found "
    "that it then repairs any slip, and came further than exact critiques with 31 to 64% of the errors "
    "located (tuning seeds): refinement rewards train what this solver makes of words, not what they "
    "mean. All seeds and arms are measured on the same lists, and the supervised critic is the same for "
    "all seeds, so that intervals are those of the trainings alone. Learning rates: two trials for each "
    "of both rewards; refinements alone were not tuned. Of the paper only the abstract could be read, and "
    "no code was found.",
    fidelity=(
        Fidelity("critic", "a language model of 14B that reasons at length", "a decoder of one layer and 64 units"),
        Fidelity("critique", "a chain of thought, and a verdict on the solution", "right, or step and a number"),
        Fidelity(
            "before reinforcement learning",
            "supervised learning of critiques",
            "supervised learning of 16,384 critiques that are often lenient or name the first step",
        ),
        Fidelity(
            "reward for verdicts",
            "1 by rule if the verdict on the whole solution is right",
            "the same; nothing for the step that a critique names",
        ),
        Fidelity(
            "reward for refinements",
            "how often the policy's solutions after the critique are right",
            "1 if the one second answer is right, whatever the first was; with the weight of the other",
        ),
        Fidelity("optimizer", "GRPO", "GRPO: groups of eight critiques of one answer, a penalty on KL of 0.04"),
        Fidelity(
            "policy that refines", "a model that can be prompted", "a frozen decoder that changes the step it is told"
        ),
        Fidelity("first solutions", "the policy's", "a demonstrator's, with a slip in three fifths of them"),
        Fidelity(
            "filtered vote",
            "among solutions that the critic accepts",
            "the same, of eight answers; of all if it accepts none",
        ),
    ),
)
