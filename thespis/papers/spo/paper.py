"""SPO: self-play preference optimization with win rates as rewards, a minimaximalist approach."""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.evidence.benches.preference_games import (
    BENCH,
    EXPLOITABILITY,
    REWARD,
    REWARD_ARM,
    SELF_PLAY_ARM,
    TASK,
    WIN_RATES,
    dominated_share,
)
from thespis.evidence.comparisons import Comparison, NotApplicable, NoWorse
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.feedback.win_rate import ChoiceJudge, WinRate

_DRAWN: dict[str, Any] = {"feedback": WinRate(ChoiceJudge(TASK), 8, samples_labels=True)}
_UNREGULARIZED = dataclasses.replace(REWARD, kl_penalty=None)

PAPER = Paper(
    id="spo",
    name="SPO",
    citation=WinRate.citations[0],
    family="preference-rlhf",
    summary="Reinforcement learning without a reward model: the reward of an episode is how often it is preferred to "
    "other episodes of the same policy.",
    claim="Learns more efficiently than with a reward model, and is robust where preferences are cyclic or noisy.",
    parts=("thespis.feedback.win_rate:WinRate", "thespis.methods.language.rloo:RLOO"),
    command="thespis train rloo --env text:choice --feedback win-rate --steps 20000 --model tiny "
    "--set feedback.judge=ChoiceJudge feedback.group_size=4 feed.group_size=4",
    miniature=BENCH.trial(
        arms=(
            Arm("SPO", REWARD, WIN_RATES),
            REWARD_ARM,
            Arm("SPO with drawn labels", REWARD, _DRAWN),
            Arm("SPO without a penalty", _UNREGULARIZED, WIN_RATES),
            SELF_PLAY_ARM,
        ),
        headline=Comparison("SPO", "reward", EXPLOITABILITY),
        mechanisms=(NoWorse("SPO with drawn labels", "SPO", EXPLOITABILITY, margin=0.03),),
        context=(
            Comparison("SPO", "SPO without a penalty", EXPLOITABILITY),
            Comparison("SPO", "iterated DPO", EXPLOITABILITY),
            Comparison("SPO", "reward", dominated_share()),
            NotApplicable("robots learn from trajectories", "win rates in control: the judges here read texts"),
        ),
    ),
    remarks="A decoder of one layer says one of ten words, in two games that are known exactly: episodes have one "
    "turn, in place of robots and trajectories. Both arms are the same learner with the same penalty on KL; they "
    "differ in the reward alone. Trials on seeds from 1,100 on, with the penalty: 0.039 (0.05), and 0.175 for 600 "
    "updates (0.02). The rival's are listed with the bench. The mechanism is robustness to noise: labels are drawn, "
    "one for each pair. The lead over iterated DPO in the context is not at equal comparisons: a group of eight has "
    "28, four pairs have four.",
    fidelity=(
        Fidelity(
            "reward of an episode",
            "share of a queue of the policy's own episodes to which it is preferred",
            "the same within a group of eight, all of the policy as it is",
        ),
        Fidelity("learner", "SAC or PPO, by task", "REINFORCE with a leave-one-out baseline"),
        Fidelity("penalty on KL to the initial policy", "none: policies begin untrained", "0.05, as its rival's"),
        Fidelity(
            "rival",
            "the same learner with a reward model, trained on comparisons as it goes",
            "the same learner with how often a word is preferred to one of the initial model",
        ),
        Fidelity("tasks", "robots of MuJoCo with synthetic preferences, cyclic in one", "two games of ten words"),
    ),
)
