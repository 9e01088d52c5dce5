"""PIT: a policy reads a reference response and is rewarded for the quality gap over it."""

from __future__ import annotations

from typing import Any

from thespis.core.records import Citation
from thespis.curricula.annealing import ParameterAnnealing
from thespis.evidence.benches.improvable_responses import (
    BASELINE_ARM,
    BENCH,
    FROM_EASY,
    FROM_EASY_STEPS,
    IMPROVED,
    IMPROVER,
    improver_steps,
    references,
    reward_model,
)
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paper import Arm, Paper
from thespis.papers.pit.measures import answer_quality, final_quality, gain, improved_quality

_PIT, _ORDINARY, _OWN = "PIT", BASELINE_ARM.name, "own references alone"


def _improver(curriculum: ParameterAnnealing) -> dict[str, Any]:
    """Options of an arm that maximizes the gap over references."""
    return {"feedback": reward_model(True), "curriculum": curriculum}


PAPER = Paper(
    id="pit",
    name="PIT",
    citation=Citation(
        "Enable Language Models to Implicitly Learn Self-Improvement From Data",
        "Wang et al.",
        2023,
        "arXiv:2310.00898",
    ),
    family="preference-rlhf",
    summary="A policy reads a reference response and is rewarded for the gap in quality over it, by a reward model of "
    "gaps that is fitted to the same preferences as an ordinary one. References are easy to improve at first, and the "
    "policy's own at last; at inference it is applied to its own responses, also repeatedly.",
    claim="Improves responses of an aligned model significantly more than prompting-based Self-Refine, on two real "
    "datasets and a synthetic one, without rubrics.",
    parts=(
        "thespis.papers.pit.feedback:GapReward",
        "thespis.papers.pit.references:LastResponses",
        "thespis.methods.language.ppo_lm:LanguagePPO",
    ),
    command="thespis train ppo-lm --env thespis.evidence.benches.improvable_responses:TASK --model tiny --steps 2880 "
    "--feedback thespis.papers.pit.feedback:GapReward --randomize reference_share=1..1 own_share=0.5..0.5 --set "
    "num_layers=1 hidden_size=32 num_pretrain_steps=2000 num_pretrain_dialogues=1024 learning_rate=1e-3 "
    "feed.num_envs=32 rollout_transform=thespis.papers.pit.references:LastResponses "
    "feedback.labelling_env=thespis.evidence.benches.improvable_responses:TASK",
    miniature=BENCH.trial(
        arms=(
            Arm(_PIT, IMPROVER, _improver(FROM_EASY), steps=FROM_EASY_STEPS),
            BASELINE_ARM,
            Arm(_OWN, IMPROVER, _improver(references(0.0, 1.0)), steps=improver_steps(30)),
        ),
        headline=Comparison(_PIT, _ORDINARY, IMPROVED),
        mechanisms=(
            Comparison(_PIT, _ORDINARY, final_quality()),
            Comparison(_PIT, _OWN, IMPROVED),
        ),
        context=(
            Comparison(_PIT, _ORDINARY, gain()),
            Comparison(_PIT, _ORDINARY, improved_quality(1)),
            Comparison(_PIT, _ORDINARY, answer_quality()),
            NotApplicable("wins over original responses by GPT-4, reward models and people", "models of PaLM 2's size"),
        ),
    ),
)
