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
from thespis.papers.multicritique.measures import named_share
from thespis.papers.multicritique.method import CritiqueDPO

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
            "critic", "InternLM2-7B-Chat", "a decoder of one layer and 64 units that has learned superficial critiques"
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
    remarks="",
)
