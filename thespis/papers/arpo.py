"""ARPO: end-to-end policy optimization for GUI agents with experience replay."""

from __future__ import annotations

from typing import Any

from thespis.core.feeds import Episodes
from thespis.core.records import Citation
from thespis.evidence.claims import Better
from thespis.evidence.measures import final_return, mean_metric
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.evidence.speaking import ANSWERS
from thespis.learners.experience import Successes
from thespis.learners.utterances import Clipped, Unheld
from thespis.methods.language.grpo import GRPO

_COMMON: dict[str, Any] = ANSWERS | {
    "feed": Episodes(turns=1, group=4, envs=128),
    "objective": Clipped(0.2, 0.3),
    "reference": Unheld(),
    "minibatch": 64,
}
_SILENT = mean_metric("alike", larger_is_better=False)

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
    does="GRPO for agents whose rewards are rare: a group of conversations that all failed gets a success at the same "
    "task from a memory, so that it has something to be compared with.",
    claim="Replay of successes takes the success rate on 128 training tasks from 72.9% with GRPO to 83.9%.",
    parts=("thespis.learners.experience:Successes", "thespis.methods.language.grpo:GRPO"),
    use="thespis train grpo --env text:countdown --model tiny --steps 20000 --set experience=Successes "
    "objective.high=0.3 reference=Unheld",
    miniature=Trial(
        arms=(
            Arm("GRPO", GRPO(**_COMMON)),
            Arm("recalled successes", GRPO(**_COMMON, experience=Successes(slots=2048))),
        ),
        envs=("thespis.evidence.speaking:SUMS",),
        steps=300 * 128,
        claims=(
            Better("recalled successes", "GRPO", _SILENT),
            Better("recalled successes", "GRPO", final_return("sampled")),
        ),
        batch=5,
        looks=2,
        episodes=100,
    ),
    remarks="A decoder of two layers that makes a number of two others in one utterance, in groups of four of which "
    "half fail whole at first, stands for a 7B model at a desktop in fifteen steps and groups of eight. Clipping and "
    "no penalty on KL are theirs. Of each task the latest success is remembered, where their code keeps eight and "
    "draws one. Their filter of tasks, which keeps those that the model solves at least once in some trials before "
    "training, is not tried: all tasks here are alike in kind. The sizes were set by a look at one "
    "seed.",
)
