"""Offline reinforcement learning for LLM multi-step reasoning."""

from __future__ import annotations

from thespis.core.records import Citation
from thespis.evidence.claims import Superiority
from thespis.evidence.language_tasks import (
    DEMONSTRATION_OPTIONS,
    DPO_ARM,
    ECHO_ENVS,
    FILTERED_SFT_ARM,
    NUM_UPDATES,
    OFFLINE_MODEL,
)
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.learners.language.response_critics import SoftValueCritic
from thespis.methods.language.kto import KTO
from thespis.papers.oreo.method import OREO

_RETURN = final_return("sampled")

PAPER = Paper(
    id="oreo",
    name="OREO",
    citation=Citation(
        "Offline Reinforcement Learning for LLM Multi-Step Reasoning", "Wang et al.", 2024, "arXiv:2412.16145"
    ),
    family="language",
    summary="Offline RL on logged dialogues: policy and critic are trained to satisfy the soft Bellman equation at "
    "every step. It needs neither preference pairs nor new samples.",
    claim="Learns more from given attempts at multi-step tasks than rejection sampling, DPO and KTO.",
    parts=("thespis.papers.oreo.method:OREO", "thespis.learners.language.response_critics:SoftValueCritic"),
    command="thespis train oreo --data demonstrations:1000 --env text:echo --model tiny",
    miniature=Trial(
        arms=(
            Arm(
                "OREO",
                OREO(**OFFLINE_MODEL, critic=SoftValueCritic(0.2, turn_level=True, learning_rate=1e-3)),
                DEMONSTRATION_OPTIONS,
            ),
            FILTERED_SFT_ARM,
            DPO_ARM,
            Arm("judged", KTO(**OFFLINE_MODEL, desirable_threshold=1.5), DEMONSTRATION_OPTIONS),
        ),
        envs=ECHO_ENVS,
        steps=NUM_UPDATES,
        claims=(
            Superiority("OREO", "best", _RETURN),
            Superiority("OREO", "preferred", _RETURN),
            Superiority("OREO", "judged", _RETURN),
        ),
        num_episodes=200,
    ),
    remarks="The paper's tasks are school mathematics and ALFWorld. Here the task is to repeat three words, learned "
    "from dialogues of a demonstrator that says random words. The arm best is rejection sampling, preferred is DPO, "
    "judged is KTO. Steps are turns, as in the paper's step-level variant, and every turn has its own reward. Beta is "
    "0.2 (0.03 in the paper, for tokens). Iterated training and search guided by the critic are not tested. Sizes were "
    "chosen after looking at one seed.",
)
