"""ARPO: end-to-end policy optimization for GUI agents with experience replay."""

from __future__ import annotations

import dataclasses

from thespis.core.records import Citation
from thespis.evidence.benches.sparse_text import BASELINE, BENCH, GROUP_SIZE, RETURN
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.measures import learning_curve_auc, mean_metric
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.evidence.single_turn_tasks import failed_group_share
from thespis.learners.language.rollout_transforms import SuccessReplay

_REPLAY = dataclasses.replace(
    BASELINE, learning_rate=1e-3, rollout_transform=SuccessReplay(num_slots=4096), recompute_log_probs=True
)
_RECORDED = dataclasses.replace(_REPLAY, recompute_log_probs=False)
_SAME_RATE = dataclasses.replace(_REPLAY, learning_rate=BASELINE.learning_rate)

PAPER = Paper(
    id="arpo",
    name="ARPO",
    citation=Citation(
        "ARPO: End-to-End Policy Optimization for GUI Agents with Experience Replay",
        "Lu et al.",
        2025,
        "arXiv:2505.16282",
    ),
    family="llm-agent-rl",
    summary="GRPO for agents with sparse rewards: if all dialogues of a group failed, one is replaced by a stored "
    "success at the same task, so that the group has nonzero advantages.",
    claim="Replay of successes raises the success rate on 128 training tasks from 72.9% with GRPO to 83.9%.",
    parts=("thespis.learners.language.rollout_transforms:SuccessReplay", "thespis.methods.language.grpo:GRPO"),
    command="thespis train grpo --env text:countdown --model tiny --steps 20000 --set rollout_transform=SuccessReplay "
    "recompute_log_probs=true clip_range_high=0.3 kl_penalty=none",
    miniature=BENCH.trial(
        arms=(
            Arm("GRPO", BASELINE),
            Arm("recalled successes", _REPLAY),
            Arm("recalled successes, GRPO's learning rate", _SAME_RATE),
            Arm("recalled successes, recorded ratios", _RECORDED),
        ),
        headline=Comparison("recalled successes", "GRPO", RETURN),
        mechanisms=(
            Comparison("recalled successes", "GRPO", mean_metric("alike", larger_is_better=False)),
            Comparison("recalled successes", "GRPO", failed_group_share(num_responses=GROUP_SIZE)),
        ),
        context=(
            Comparison("recalled successes", "GRPO", learning_curve_auc()),
            Comparison("recalled successes, GRPO's learning rate", "GRPO", RETURN),
            Comparison("recalled successes", "recalled successes, recorded ratios", RETURN),
            NotApplicable("tasks on a desktop that the model was not trained on are done more often", "OSWorld"),
        ),
    ),
    remarks="Instead of a model of 7B that uses a desktop in fifteen steps, a decoder of one layer makes a number from "
    "two others in one response. As in the paper, the tasks are a fixed set, and the success rate is that of the tasks "
    "it was trained on. GRPO and recalled successes had three learning rates each, 5e-4, 1e-3 and 2e-3, on seeds 1,100 "
    "to 1,109: final returns of 0.654, 0.636 and 0.255, and of 0.700, 0.736 and 0.725. Each has its best one, and a "
    "context claim compares them at GRPO's. With ratios to the policy that sampled a stored success, where the authors "
    "compute them anew, it was 0.718. The latest success at each task is stored, where their code keeps eight and "
    "draws one. Not tried: their choice of tasks, which keeps those that the model solves at least once in several "
    "trials before training.",
    fidelity=(
        Fidelity(
            "when",
            "the returns of a group deviate by less than 0.05 and their mean is below 0.2",
            "none of a group's returns is a success, which is the same for returns of 0 and 1",
        ),
        Fidelity("what is replaced", "the first dialogue of the group, by one stored success at the same task"),
        Fidelity("order", "groups are filled from what was stored before, then the batch's own successes are stored"),
        Fidelity(
            "storage",
            "the last eight successes of each task, of which one is drawn",
            "the latest success of each task",
        ),
        Fidelity("what counts as a success", "a result above 0.1", "a return of 0.5 or more; returns are 0 or 1"),
        Fidelity(
            "ratio of replayed tokens",
            "to the current policy: log-probabilities are computed again after the replacement",
            "the same (recompute_log_probs); with recorded ones, tokens that became unlikely get a small gradient",
        ),
        Fidelity("advantage", "reward minus the group's mean, divided by its standard deviation (n - 1)"),
        Fidelity("clip range", "0.2 and 0.3"),
        Fidelity("KL penalty", "none"),
        Fidelity("reward", "success, plus half a reward for the format of responses", "success"),
        Fidelity(
            "batch",
            "16 tasks with eight dialogues each; two gradient steps",
            "eight tasks with four responses each; one gradient step",
        ),
        Fidelity(
            "tasks", "128 (or 32) tasks on a desktop, in 15 epochs", "64 countdown tasks, each in about 25 updates"
        ),
        Fidelity(
            "optimizer",
            "AdamW, learning rate 1e-6, gradient norm at most 1",
            "Adam, tuned on the bench, gradient norm at most 1",
        ),
    ),
)
