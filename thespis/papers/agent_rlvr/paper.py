"""Agent-RLVR: failed attempts are retried with guidance, and guided successes are preferred to failures."""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.core.records import Citation
from thespis.evidence.benches.persistent_failures import BENCH, FIRST_ANSWERS, MODEL, REFINED_ANSWERS, SUCCESS
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paper import Arm, Fidelity, Paper
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
    remarks="Three tenths of the tasks have two steps that the pretrained model always gets wrong. It is told after a "
    "failed attempt which step is the first wrong one, as a failed test may say, and has learned in pretraining to "
    "go on rightly from there. What was found: at equal attempts 0.73 of the first answers are right after "
    "Agent-RLVR, without any guidance and on average over seeds, and 0.67 after the same preference optimization of "
    "first attempts alone, which ends where GRPO does on this bench (0.68). It leads in nine of ten pairs. Of the "
    "hard tasks 0.43 are answered rightly, and 0.002 by the rival, which hardly ever sees a right attempt at them. "
    "Where the guidance stays in the prompt of what is learned, the lead is gone: retries with guidance get better, "
    "and none of the hard tasks is answered without it. What speaks against it: the other tasks suffer, 0.86 of "
    "their answers are right in place of 0.97, and half of the responses are retries. What the guidance says "
    "matters little here. With random guidance, where a model is also pretrained on random guidance, 0.94 are "
    "right, far more than with the right one. Looks after the trial on seeds 1,000 and 1,001 say that this is the "
    "pretraining: the model that was pretrained on right guidance comes to 0.736 and 0.739 when it is trained with "
    "random guidance and to 0.714 and 0.720 with the right one; the one that was pretrained on random guidance "
    "comes to 0.949 and 0.970 with the right one, and to 0.695 and 0.742 without guidance. So what teaches is that "
    "a retry is another response than the first attempt, which the tests can select, and how much of it can be "
    "learned depends on what the model knows of retries. The task was made for a bench on which the rival cannot "
    "see a right answer. The learning rate had three trials for each of the two, by the success of first answers on "
    "seeds 1,000 and 1,001: Agent-RLVR 0.599 (2e-4), 0.717 (5e-4) and 0.678 (1e-3), the rival 0.673, 0.666 and "
    "0.653. At the rival's best rate Agent-RLVR is behind after as many updates, and still rises. The other two "
    "arms have its rate and were not looked at. DPO without likelihood was not tried. The test-time reward model is "
    "not in the trial: one that learned by Bradley and Terry from the same pairs, with one step for each batch at a "
    "rate of 1e-3, ordered half of the pairs rightly, and the best of eight answers by it was worse than one (0.53 "
    "in place of 0.68, and 0.64 in place of 0.65 without guidance). No other setting of it was tried, so that the "
    "claim about it is open. Of the paper the abstract, the caption of a figure and summaries could be read, and no "
    "code.",
    fidelity=(
        Fidelity("first attempt", "without guidance, judged by unit tests", "without guidance; right if all steps are"),
        Fidelity(
            "guidance",
            "a plan, feedback of the environment or a hint for using it, which a model writes from what is known of "
            "the failure, such as a stack trace",
            "by rule: which step is the first wrong one, a tenth of them at random; never a value",
        ),
        Fidelity("retry", "of failed attempts, with the guidance in the context", "the same, one of each"),
        Fidelity(
            "what is learned",
            "right attempts by instruction tuning, then offline DPO on attempts that were sampled before",
            "DPO and likelihood of the preferred attempts in one loss; fresh attempts for each update",
        ),
        Fidelity(
            "pairs",
            "right against wrong trajectories; which ones could not be read",
            "right against wrong attempts at the same task, right retries and wrong first attempts before others",
        ),
        Fidelity(
            "guidance in what is learned",
            "could not be read",
            "a retry is learned as an answer to the task alone; with the guidance in its prompt in another arm",
        ),
        Fidelity("at test time", "without guidance; one attempt"),
        Fidelity(
            "reward model",
            "trained on the same data, chooses among several attempts at test time",
            "none in the trial",
        ),
        Fidelity(
            "attempts for the rival",
            "could not be read",
            "as many in all: without guidance there are twice as many first ones",
        ),
        Fidelity("model", "Qwen-2.5-72B-Instruct", "two layers of 64 units, pretrained on the task"),
        Fidelity(
            "tasks", "817 environments of software engineering", "sums of two steps modulo 5, of which 0.3 are hard"
        ),
    ),
)
