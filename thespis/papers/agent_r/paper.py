"""Agent-R: training language model agents to reflect via iterative self-training."""

from __future__ import annotations

from typing import Any

from thespis.core.records import Citation
from thespis.evidence.claims import Superiority
from thespis.evidence.language_tasks import TEN_TURN_SETTINGS
from thespis.evidence.measures import final_return, learning_curve_auc
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.learners.language.advantage_estimators import NoBaseline, TrajectoryReturn
from thespis.learners.language.policy_losses import TokenMean
from thespis.learners.language.revisions import RejectionSampling, TrajectoryRevision
from thespis.learners.language.rollout_transforms import RolloutTransform
from thespis.methods.language.reinforce import REINFORCE

_SHARED_SETTINGS: dict[str, Any] = TEN_TURN_SETTINGS | {
    "advantage_estimator": TrajectoryReturn(NoBaseline()),
    "loss_reduction": TokenMean(),
    "minibatch_size": 16,
}


def _reinforce(experience: RolloutTransform) -> REINFORCE:
    return REINFORCE(**_SHARED_SETTINGS, rollout_transform=experience)


PAPER = Paper(
    id="agent-r",
    name="Agent-R",
    citation=Citation(
        "Agent-R: Training Language Model Agents to Reflect via Iterative Self-Training",
        "Yuan et al.",
        2025,
        "arXiv:2501.11425",
    ),
    family="llm-self-improvement",
    summary="A language-model agent is trained by maximum likelihood on its own dialogues: on successful ones, and on "
    "failed ones revised at their first error, where the agent corrects itself and continues as in a dialogue that "
    "succeeded from there.",
    claim="In WebShop, ScienceWorld and TextCraft, Agent-R gets 5.59% more reward than other training methods, "
    "training on good trajectories alone among them.",
    parts=(
        "thespis.learners.language.revisions:TrajectoryRevision",
        "thespis.learners.language.revisions:RejectionSampling",
        "thespis.papers.agent_r.envs:UndoTask",
        "thespis.methods.language.reinforce:REINFORCE",
    ),
    command="thespis train reinforce --env thespis.evidence.language_tasks:MAZE_4X4_UNDO --model tiny --steps 50000 "
    "--set rollout_transform=TrajectoryRevision advantage_estimator=TrajectoryReturn baseline=NoBaseline "
    "loss_reduction=TokenMean group_size=8",
    miniature=Trial(
        arms=(
            Arm("revisions", _reinforce(TrajectoryRevision())),
            Arm("good ones alone", _reinforce(RejectionSampling())),
        ),
        envs=("thespis.evidence.language_tasks:MAZE_4X4_UNDO",),
        steps=40 * 10 * 64,
        claims=(
            Superiority("revisions", "good ones alone", final_return("sampled")),
            Superiority("revisions", "good ones alone", learning_curve_auc()),
        ),
        seeds_per_look=5,
        max_looks=2,
        num_episodes=100,
    ),
    remarks="Instead of three environments and an 8B model, the miniature uses a text maze of sixteen cells, in which "
    "the last step can be undone, and a two-layer decoder pretrained on demonstrations; the demonstrator acts at "
    "random in six of ten cells. Eight dialogues from each initial state replace Monte Carlo tree search. The first "
    "error is the first response after which no dialogue of the group succeeded; in the paper the actor itself is "
    "asked whether a step was good, which a model trained from scratch cannot answer. Every batch is an iteration; the "
    "paper has few and large ones, and raises its threshold for good trajectories from one to the next. "
    "Self-correction is an empty response, on which the environment undoes the last step and repeats its previous "
    "message; in the paper nothing is undone, and a sentence of reflection is answered by a fixed word. A wrong step "
    "can also be walked back in as many turns, so that good dialogues contain corrections of their own. Not tried: "
    "revision at the end of a bad trajectory, general data mixed in, and preferences. Sizes were chosen after looking "
    "at single seeds. Contradicted: that revisions increase the curve area; the final returns are alike (0.87 with "
    "revisions, 0.89 without). Checked again: the code makes the revisions described above. Only failed dialogues are "
    "revised: these are a quarter of all dialogues halfway and fewer later. Likely cause: with revisions the policy "
    "stays more random (an entropy of 0.64 to 0.67 against 0.52 to 0.56 halfway), because it learns in the same states "
    "both to continue and to give an empty response. A wrong step can also be walked back at the cost of one more "
    "turn, as good dialogues show, so there is likely nothing to gain from another way to do it.",
)
