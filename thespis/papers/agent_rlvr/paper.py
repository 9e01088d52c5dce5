"""Agent-RLVR: failed attempts are retried with guidance, and guided successes are preferred to failures."""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.core.records import Citation
from thespis.evidence.benches.persistent_failures import BENCH, FIRST_ANSWERS, MODEL, REFINED_ANSWERS, SUCCESS
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paper import Arm, Paper
from thespis.learners.language.preference_losses import RPOLoss
from thespis.papers.agent_rlvr.attempt_pairs import AttemptPreferences
from thespis.papers.critique_grpo.measures import plain_success, wrap_success

_SETTINGS: dict[str, Any] = MODEL | {"loss_type": RPOLoss()}
"""Of all arms: DPO, and likelihood of the preferred attempts."""
_GUIDED = AttemptPreferences(**_SETTINGS, learning_rate=5e-4, feed=REFINED_ANSWERS)
_UNGUIDED = AttemptPreferences(**_SETTINGS, learning_rate=2e-4, feed=FIRST_ANSWERS)
_IN_CONTEXT = dataclasses.replace(_GUIDED, retry_prompt="guidance")
_METHOD, _RLVR = "Agent-RLVR", "RLVR without guidance"
_KEPT, _RANDOM = "guidance kept in the prompt", "random guidance"

PAPER = Paper(
    id="agent-rlvr",
    name="Agent-RLVR",
    citation=Citation(
        "Agent-RLVR: Training Software Engineering Agents via Guidance and Environment Rewards",
        "Da et al.",
        2025,
        "arXiv:2506.11425",
    ),
    family="llm-agent-rl",
    summary="An agent attempts a task, and tests say whether the attempt is right. After a failure it is told what to "
    "do, by a plan or by what went wrong, and tries again. Right attempts, guided ones among them, are preferred to "
    "wrong ones by DPO, and the agent is used without guidance. A reward model of the same attempts chooses at test "
    "time.",
    claim="The share of issues of SWE-Bench Verified that Qwen-2.5-72B-Instruct solves at the first attempt rises from "
    "9.4% to 22.4%, and to 27.8% with a reward model that is trained on the same data.",
    parts=(
        "thespis.papers.agent_rlvr.attempt_pairs:AttemptPreferences",
        "thespis.papers.critique_grpo.envs:WrongWraps",
    ),
    command="thespis train thespis.papers.agent_rlvr.attempt_pairs:AttemptPreferences --env "
    "thespis.evidence.benches.persistent_failures:WRAPS --model tiny --steps 10240 --set num_layers=2 hidden_size=64 "
    "loss_type=RPOLoss learning_rate=5e-4",
    miniature=BENCH.trial(
        arms=(
            Arm(_METHOD, _GUIDED),
            Arm(_RLVR, _UNGUIDED),
            Arm(_KEPT, _IN_CONTEXT),
            Arm(_RANDOM, _GUIDED, env="thespis.papers.agent_rlvr.envs:RANDOM_GUIDANCE"),
        ),
        headline=Comparison(_METHOD, _RLVR, SUCCESS),
        mechanisms=(
            Comparison(_METHOD, _RLVR, wrap_success()),
            Comparison(_METHOD, _KEPT, SUCCESS),
        ),
        context=(
            Comparison(_METHOD, _RANDOM, SUCCESS),
            Comparison(_METHOD, _RLVR, plain_success()),
            Comparison(_RANDOM, _RLVR, SUCCESS),
            NotApplicable("plans and other guidance by a language model", "a model that reads code"),
            NotApplicable("issues of SWE-Bench Verified", "a model of 72B parameters and sandboxes of repositories"),
        ),
    ),
)
