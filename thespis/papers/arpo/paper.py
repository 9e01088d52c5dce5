"""ARPO: end-to-end policy optimization for GUI agents with experience replay."""

from __future__ import annotations

from typing import Any

from thespis.core.records import Citation
from thespis.data.feeds import Episodes
from thespis.evidence.claims import Superiority
from thespis.evidence.language_tasks import SINGLE_TURN_SETTINGS
from thespis.evidence.measures import final_return, mean_metric
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.learners.language.policy_losses import ClippedSurrogate
from thespis.learners.language.rollout_transforms import SuccessReplay
from thespis.methods.language.grpo import GRPO

_SHARED_SETTINGS: dict[str, Any] = SINGLE_TURN_SETTINGS | {
    "feed": Episodes(max_steps=1, group_size=4, num_envs=128),
    "objective": ClippedSurrogate(0.2, 0.3),
    "kl_penalty": None,
    "minibatch_size": 64,
}
_ZERO_ADVANTAGE_SHARE = mean_metric("alike", larger_is_better=False)

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
    "clip_range_high=0.3 kl_penalty=none",
    miniature=Trial(
        arms=(
            Arm("GRPO", GRPO(**_SHARED_SETTINGS)),
            Arm("recalled successes", GRPO(**_SHARED_SETTINGS, rollout_transform=SuccessReplay(num_slots=2048))),
        ),
        envs=("thespis.evidence.language_tasks:COUNTDOWN",),
        steps=300 * 128,
        claims=(
            Superiority("recalled successes", "GRPO", _ZERO_ADVANTAGE_SHARE),
            Superiority("recalled successes", "GRPO", final_return("sampled")),
        ),
        seeds_per_look=5,
        max_looks=2,
        num_episodes=100,
    ),
    remarks="Instead of a 7B model that uses a desktop in fifteen steps with groups of eight, the miniature trains a "
    "two-layer decoder to make a number from two others in one response, with groups of four; at first, half of the "
    "groups contain only failures. The clip range and the absence of a KL penalty are the authors'. The latest success "
    "at each task is stored, where their code keeps eight and samples one. Not tried: their filter of tasks, which "
    "keeps those that the model solves at least once in some trials before training; all tasks here are of one kind. "
    "Sizes were chosen after looking at one seed.",
)
