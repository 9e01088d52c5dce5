"""Agent-R: training language model agents to reflect via iterative self-training."""

from __future__ import annotations

import dataclasses

from thespis.core.records import Citation
from thespis.evidence.benches.self_correction_text import BASELINE, BENCH, RETURN
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.measures import learning_curve_auc
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.learners.language.revisions import TrajectoryRevision
from thespis.papers.agent_r.measures import undone_error_share

_REVISIONS = dataclasses.replace(BASELINE, rollout_transform=TrajectoryRevision())

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
        "thespis.papers.agent_r.envs:DailyMenu",
        "thespis.methods.language.reinforce:REINFORCE",
    ),
    command="thespis train reinforce --env thespis.papers.agent_r.envs:DAILY_MENU --model tiny --steps 15360 "
    "--set rollout_transform=TrajectoryRevision advantage_estimator=TrajectoryReturn baseline=NoBaseline "
    "loss_reduction=TokenMean group_size=8",
    miniature=BENCH.trial(
        arms=(Arm("revisions", _REVISIONS), Arm("good ones alone", BASELINE)),
        headline=Comparison("revisions", "good ones alone", RETURN),
        mechanisms=(Comparison("revisions", "good ones alone", undone_error_share()),),
        context=(
            Comparison("revisions", "good ones alone", learning_curve_auc()),
            NotApplicable("a model judges its own steps, and so finds its first error", "a model that can be asked"),
        ),
    ),
    remarks="Instead of three environments and an 8B model, a decoder of one layer chooses from a daily menu. Some of "
    "the right dishes cannot be known before they are tried, an error is told at once, and an empty response undoes "
    "it, at the cost of a turn; there are turns for one error in each course. In the paper nothing is undone, and a "
    "sentence of reflection is answered by a fixed word. Here a wrong choice cannot be repaired in any other way, so a "
    "good dialogue holds no error that was not undone. The model was pretrained on a demonstrator that undoes nothing. "
    "Each arm had two settings on other seeds (in the tuning of the bench), and both have the same ones. In 40 smaller "
    "iterations the return of revisions first fell to almost nothing, likely because the model has to learn from a "
    "batch when to undo before it makes the next. Eight dialogues from each initial state replace Monte Carlo tree "
    "search. The first error is the response by which a bad dialogue leaves a good one of its group; in the paper the "
    "actor itself is asked whether a step was good, which a model trained from scratch cannot answer. Not tried: "
    "revision at the end of a bad trajectory, general data mixed in, and preferences. Shown: that revisions lead to a "
    "larger return, 0.760 against 0.498 on ten pairs, since the model learns to undo almost every error, which good "
    "dialogues alone never teach. Nobody who undoes nothing can expect more than the share of dialogues in which all "
    "usual dishes are right, the cube of 0.8. An earlier trial by protocol 1, in a maze where wrong steps could be "
    "walked back in as many turns, found revisions behind by the area under the learning curve: there was nothing to "
    "gain from another way to do it.",
    fidelity=(
        Fidelity(
            "dialogues that are compared",
            "leaves of a tree for each task, grown by Monte Carlo tree search",
            "eight sampled dialogues from each initial state; common beginnings are the nodes of the tree",
        ),
        Fidelity(
            "first error",
            "the first step of the bad path that the model itself judges to be bad",
            "the response by which the bad dialogue leaves the good one: a model trained from scratch cannot be asked, "
            "and as a good dialogue has no error left, this is its first one that was not undone",
        ),
        Fidelity(
            "pairs",
            "any two paths of a tree whose values differ by more than beta, with the better one above alpha",
            "each bad dialogue once, with the good one of its group that shares the most turns; alpha is 0.5 and beta "
            "0.2, and returns are 0 or 1",
        ),
        Fidelity(
            "revised dialogue",
            "the bad path up to and with its error, a thought of revision (one of ten sentences) with the action "
            "`wait`, which is answered by `ok`, and the good path from where it leaves the bad one",
            "the same with an empty response in place of thought and action, which undoes the error, and the repeated "
            "message in place of `ok`",
        ),
        Fidelity("what is learned", "the revision and what follows it; not the bad path"),
        Fidelity("good dialogues", "learned as they are, if their value is above alpha"),
        Fidelity(
            "iterations",
            "a few large ones; the threshold alpha rises from one to the next, and general data are mixed in",
            "eight, with 128 dialogues and six epochs each; a constant threshold, and no other data",
        ),
        Fidelity("trained parameters", "all of a model with 8B parameters", "all of a one-layer model"),
    ),
)
