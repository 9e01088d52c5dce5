"""MultiCritique: a critic learns from what a judge leaves of several critics' critiques, then from preferences."""

from __future__ import annotations

from typing import Any

from thespis.core.records import Citation
from thespis.data.feeds import Episodes
from thespis.evidence.benches.located_errors import (
    ACCURACY,
    BENCH,
    EXACT_ARM,
    MODEL,
    NUM_ROWS,
    NUM_TURNS,
    ONE_UPDATE,
    with_critic,
)
from thespis.evidence.benches.trained_critics import judgment_accuracy
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.learners.language.preference_losses import SigmoidLoss
from thespis.papers.multicritique.envs import (
    AGGREGATED_ENV,
    FIRST_CRITIC_ENV,
    POOLED_ENV,
    VALIDATED_ENV,
    VOTED_ENV,
)
from thespis.papers.multicritique.method import CritiqueDPO
from thespis.papers.refcritic.measures import named_share

_NUM_LESSONS = 64
_SETTINGS: dict[str, Any] = MODEL | {
    "feed": Episodes(max_steps=NUM_TURNS, group_size=4, num_envs=NUM_ROWS),
    "loss_type": SigmoidLoss(0.5),
    "pairs": "extremes",
    "num_demonstrations": _NUM_LESSONS,
    "num_sft_updates": 100,
    "sft_batch_size": 32,
}


def _taught(name: str, expert_env: str, temperature: float = 0.05, **settings: Any) -> Arm:
    """A critic that is fine-tuned on lessons; its most likely critiques are read, or sampled ones at 1."""
    critic = CritiqueDPO(**_SETTINGS | settings, expert_env=expert_env, learning_rate=0.0, temperature=temperature)
    return Arm(name, with_critic(critic), steps=ONE_UPDATE)


_PREFERRING = CritiqueDPO(**_SETTINGS, expert_env=AGGREGATED_ENV, learning_rate=3e-4)
"""A critic that is trained by DPO on its own critiques after fine-tuning; sampled ones are read."""
_SFT, _RL, _FIRST = "MultiCritique-SFT", "MultiCritique-RL", "critiques of the first critic"
_SAMPLED, _VOTE = "MultiCritique-SFT, sampled critiques", "votes of the critics"
_POOL, _EXACT = "three times as many critiques of any critic", EXACT_ARM.name
_NAMED, _JUDGED = named_share(), judgment_accuracy()

PAPER = Paper(
    id="multicritique",
    name="MultiCritique",
    citation=Citation(
        "Training Language Models to Critique With Multi-agent Feedback", "Lan et al.", 2024, "arXiv:2410.15287"
    ),
    family="llm-critic",
    summary="Several models criticize an answer; a judge examines each flaw that they name and drops the wrong ones, "
    "and the rest becomes one critique. A critic is fine-tuned on these, and then trained by reinforcement learning on "
    "preferences between critiques, which the revisions of several models decide.",
    claim="A critic that is fine-tuned on aggregated critiques of several models is better than one that is fine-tuned "
    "on a single model's; preferences that several revisers validate improve it further.",
    parts=(
        "thespis.papers.multicritique.envs:CriticPanel",
        "thespis.papers.multicritique.envs:ValidatedConversation",
        "thespis.papers.multicritique.method:CritiqueDPO",
        "thespis.learners.multi_agent.cast:Cast",
        "thespis.learners.language.frozen_model:FrozenModel",
    ),
    command="thespis train online-dpo --env text:verification --steps 20000 --model tiny --set num_layers=1 "
    "hidden_size=32 feed.group_size=4 pairs=extremes",
    miniature=BENCH.trial(
        arms=(
            _taught(_SFT, AGGREGATED_ENV),
            _taught(_FIRST, FIRST_CRITIC_ENV),
            _taught(_POOL, POOLED_ENV, num_demonstrations=3 * _NUM_LESSONS),
            _taught(_VOTE, VOTED_ENV),
            _taught(_SAMPLED, AGGREGATED_ENV, temperature=1.0),
            Arm(_RL, with_critic(_PREFERRING), env=VALIDATED_ENV),
            EXACT_ARM,
        ),
        headline=Comparison(_SFT, _FIRST, ACCURACY),
        mechanisms=(Comparison(_SFT, _FIRST, _NAMED), Comparison(_RL, _SAMPLED, ACCURACY)),
        context=(
            Comparison(_SFT, _FIRST, _JUDGED),
            Comparison(_SFT, _POOL, ACCURACY),
            Comparison(_SFT, _VOTE, ACCURACY),
            Comparison(_RL, _SFT, ACCURACY),
            Comparison(_EXACT, _RL, ACCURACY),
            NotApplicable(
                "scores on CriticEval and CriticBench",
                "language models of 7B and more that criticize answers to 123 kinds of tasks, and GPT-4 as judge",
            ),
        ),
        looks=plan_looks((10, 20)),
    ),
    fidelity=(
        Fidelity(
            "critics",
            "several language models, which are told the task, criteria and a reference answer",
            "three by rule: of slips in certain steps each overlooks four fifths, and 15% of its verdicts are random",
        ),
        Fidelity(
            "critique",
            "text about several flaws, which can be examined one by one",
            "right, or step and a number: at most one flaw",
        ),
        Fidelity(
            "meta-critique",
            "each flaw that was named is examined and classified",
            "a judge says of each whether it is one, and errs in a fifth of the cases, independently",
        ),
        Fidelity(
            "aggregation",
            "one critique of the flaws that remain",
            "of the steps that remain the one that was named most often; right if none remains",
        ),
        Fidelity(
            "supervised data",
            "32,100 critiques of answers of eleven models to 10,700 queries, of 123 kinds of tasks",
            "critiques of 64 answers, others for each seed",
        ),
        Fidelity(
            "critic", "a model of 7B", "a decoder of one layer and 64 units that has learned superficial critiques"
        ),
        Fidelity(
            "preferences",
            "19,700 pairs of critiques; which is better is validated by the revisions that several models make after "
            "each of them, which are graded",
            "the best and the worst of four own critiques of an answer, by how many revisions of three scripted "
            "revisers are right, one for each digit that is random in a fifth, two and three fifths of the cases",
        ),
        Fidelity("reinforcement learning", "with a reward model of the pairs", "online DPO, with a beta of 0.5"),
        Fidelity(
            "single critics",
            "data sets of critiques by one model, which are larger",
            "the same number of critiques by one of the three critics",
        ),
    ),
    remarks="A list of three digits is answered by the successor of each modulo 5; in 59.5% of the first "
    "answers one digit has slipped, and a frozen solver changes the step that a critique names. A "
    "critic that has learned superficial critiques is fine-tuned on critiques of 64 answers, others for "
    "each seed. They come from three critics, who overlook four fifths of the slips in the first, the "
    "second, or the last two of the three steps; 15% of their verdicts are random. What was found, in "
    "means over seeds: fine-tuned on what a judge leaves of all three, a critic leads to 87.0% right "
    "answers, and on the critiques of the first critic, the best of the three, to 74.2%, where exact "
    "critiques have 91.2% and no critique 40.5%; it names 93% of the errors against 65%. What speaks "
    "against it: first, aggregation may not be needed. As many critiques as are aggregated, 192, each "
    "by a critic drawn at random and of an answer of its own, lead to 82.4% when they are learned as "
    "they are (whether less: undecided), and to 84.9% or more in seven seeds of ten; one seed ends at "
    "52.5%. Of slips in the second step fewer of these critiques name the step (44%) than say that "
    "nothing is wrong (48%); that most seeds find it nevertheless is likely learned from the other "
    "steps, as a slip looks the same in each. Second, votes without a judge lead to 76.9%: two of the "
    "three critics overlook the second step, so that the construction needs the judge, which errs in a "
    "fifth of the cases and knows the truth in the others. Of its lessons 89% are right, of votes 82%, "
    "of the first critic 76% and of a random one 71% (8,000 of each). Third, preferences do not help "
    "here: online DPO on the own critiques, ordered by three revisers, leads from 80.9% to 79.8% "
    "(undecided after 20 pairs; in interquartile means, which the table has, from 81.0% to 83.5%), and "
    "the most likely critiques before it to 87.0%. The trained critic names 97% of the errors (before "
    "it 82%) but calls right answers wrong: its judgments are right in 88% of the cases (before 90%), "
    "in two seeds of 20 in 58% and 59%. Of its pairs of two different critiques 84% and 86% are about "
    "wrong answers (two tuning seeds, before the first update), as four critiques of a right one are "
    "mostly all alike; what its pairs seldom show is unlearned, as on the page of Critic-V. GRPO on the "
    "second answer (RefCritic) leads to 89% on the same lists. The arms of fine-tuning are read by "
    "their most likely critiques, at a temperature of 0.05, which suited the method and its rival "
    "better than 1; the critic that learns from preferences samples at 1, and is compared with sampled "
    "critiques. Tuning on seeds 1,100 and 1,101, by an estimate of the accuracy: 256 critiques and 200 "
    "updates, aggregated 0.892 (at a temperature of 1 0.820) and of the first critic 0.754 (0.713); 64 "
    "and 100, 0.862 (0.823) and 0.740 (0.730), and of the second critic 0.699 (0.650). The smaller "
    "number leaves room for preferences. Preferences had one trial, with a learning rate of 3e-4 (0.861 "
    "on both seeds), so that a better setting may exist. Shares of oversights, of random verdicts and "
    "of the judge's errors were the first that were tried. All seeds and arms are measured on the same "
    "lists. Of the paper the abstract, summaries, reviews and the page of its data could be read, not "
    "the text; the authors' repository holds no code.",
)
