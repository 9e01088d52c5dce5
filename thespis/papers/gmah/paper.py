"""GMAH: subgoal-based hierarchical reinforcement learning for multi-agent collaboration."""

from __future__ import annotations

import dataclasses

from thespis.critics.mixers import MonotonicMixer, SumMixer
from thespis.data.feeds import Replay
from thespis.evidence.claims import Superiority
from thespis.evidence.measures import learning_curve_auc
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.methods.multi_agent.qmix import QMIX
from thespis.papers.gmah.envs import SWITCH_FEATURES
from thespis.papers.gmah.method import GMAH
from thespis.papers.gmah.subgoals import SubgoalSpace

_QMIX = QMIX(
    mixer=MonotonicMixer(8, (16,)),
    hidden_sizes=(64,),
    learning_rate=1e-3,
    discount=0.97,
    target_update_interval=100,
    epsilon_decay_updates=2_500.0,
    feed=Replay(
        buffer_size=30_000, batch_size=16, learning_starts=1_000, update_interval=2, sequence_length=15, num_envs=8
    ),
)
_HIGH_LEVEL_QMIX = dataclasses.replace(
    _QMIX, epsilon_decay_updates=4_000.0
)  # of about 4,900 updates: subgoals are explored until they are reached
_GMAH = GMAH(
    _HIGH_LEVEL_QMIX, dataclasses.replace(_QMIX, mixer=SumMixer()), SubgoalSpace(SWITCH_FEATURES), high_level_interval=8
)

PAPER = Paper(
    id="gmah",
    name="GMAH",
    citation=GMAH.citations[0],
    family="multi-agent",
    summary="Hierarchical multi-agent Q-learning: the subgoals of a team are chosen jointly, by values mixed as in "
    "QMIX, and chosen again when all are reached or after a time limit. In between each agent acts toward its own "
    "subgoal and is rewarded for reaching it.",
    claim="Faster convergence and better performance than mainstream methods in single- and multi-agent environments.",
    parts=(
        "thespis.papers.gmah.method:GMAH",
        "thespis.learners.multi_agent.hierarchical:Hierarchical",
        "thespis.papers.gmah.subgoals:SubgoalSpace",
        "thespis.papers.gmah.subgoals:SubgoalReward",
    ),
    command="thespis train gmah --env thespis.papers.gmah.envs:SMALL_TWO_ROOMS --set obs_indices=-2,-1 --steps 80000",
    miniature=Trial(
        arms=(Arm("GMAH", _GMAH), Arm("QMIX", _QMIX)),
        envs=("thespis.papers.gmah.envs:SMALL_TWO_ROOMS",),
        steps=80_000,
        claims=(Superiority("GMAH", "QMIX", learning_curve_auc()),),
        seeds_per_look=4,
        max_looks=1,
        num_episodes=10,
    ),
    remarks="Two rooms of four cells, with a door that an agent must hold open, replace the paper's grids. The two "
    "switches are the subgoals, as keys, doors and goals are in the paper. Of the paper's baselines (PPO, A2C, MAPPO, "
    "QMIX) only QMIX is tested. Budget and exploration were chosen after a preliminary run with two seeds per arm, "
    "half as long, in which epsilon fell within a thousand updates: no greedy team succeeded, and GMAH's low level "
    "had not learned the way to the far switch, where it had rarely been. Not shown: every seed of GMAH is ahead of "
    "every seed of QMIX (curve areas of 0.07 to 0.11 and of 0.01 to 0.03), but with four seeds per arm the interval "
    "still contains 0.5. Checked again: neither method solves the task. GMAH's training returns rise to between 0.25 "
    "and 0.5 while actions are partly random, and fall as epsilon falls. In greedy play, which returns 0, one agent "
    "stands on the far switch at the end of nearly every episode, and the other, whose subgoal was nearly always the "
    "near switch, does not find the way. The high level has little reason to choose another subgoal: it discounts "
    "periods, not steps, so at 0.97 a period of waiting costs 3%.",
)
