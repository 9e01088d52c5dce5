"""Bench of learning from few demonstrations like those of people, who hesitate and tremble, with a sparse reward.

A point in a square goes to a goal, and only the last step is rewarded. Twenty demonstrations are in the replay: their
actions tremble, and now and then the demonstrator stands still for some steps. All of them reach their goals, and a
critic of single actions that learns from them still misses more than a third. A seed trains for some seconds.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.envs.compiled.point_goal import PointGoal
from thespis.evidence.bench import Bench, Headroom, Symptom
from thespis.evidence.benches.exploration import missed_goals
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import final_return, learning_curve_auc
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm
from thespis.papers.action_sequence_critic_rl.demonstrations import DemonstratedReplay, Demonstrator
from thespis.papers.action_sequence_critic_rl.method import CQN

POINT_GOAL = PointGoal(goal_radius=0.1, terminates=True, time_limit=60)
POINT_GOAL_ENV = f"{__name__}:POINT_GOAL"
STEPS = 6_000
HESITANT = Demonstrator(hesitation_rate=0.1, mean_hesitation=8.0, tremor_std=0.3)
"""Stands still in a large part of the steps."""
STEADY = dataclasses.replace(HESITANT, hesitation_rate=0.0)
"""Never stands still."""
FEED = DemonstratedReplay(
    env=POINT_GOAL,
    demonstrator=HESITANT,
    num_demonstrations=20,
    batch_size=32,
    learning_starts=500,
    num_envs=4,
)
SETTINGS: dict[str, Any] = {
    "discount": 0.97,
    "num_levels": 2,
    "hidden_sizes": (32, 32),
    "n_step": 1,
    "exploration_noise": 0.05,
    "bc_coef": 3.0,
}
"""Settings of all critics of bins. With two levels of five bins, an action is exact to a twenty-fifth of its range."""

BASELINE = CQN(**SETTINGS, learning_rate=3e-3, feed=FEED)
_COPY = dataclasses.replace(BASELINE, learning_rate=3.0003e-3)
_STEADY = dataclasses.replace(BASELINE, feed=dataclasses.replace(FEED, demonstrator=STEADY))

BENCH = Bench(
    name="demonstrations",
    version=1,
    summary="A point goal with a reward at its end and demonstrators who hesitate and tremble: learning from people.",
    envs=(POINT_GOAL_ENV,),
    steps=STEPS,
    num_episodes=50,
    arms=(
        Arm("CQN", BASELINE),
        Arm("CQN again", _COPY),
        Arm("CQN, steady demonstrators", _STEADY),
    ),
    positive=Comparison("CQN, steady demonstrators", "CQN", final_return()),
    negative=Comparison("CQN", "CQN again", learning_curve_auc()),
    headroom=Headroom("CQN", "CQN, steady demonstrators", final_return()),
    symptoms=(Symptom("CQN", missed_goals(), 0.3),),
    tuning="CQN and CQN with sequences of four actions, three trials each on seeds 1,100 to 1,109, by the final greedy "
    "return: learning rate 3e-3 with a weight of the margin loss of 10 (0.422 and 0.556), 1e-3 with 10 (0.420 and "
    "0.570), and 3e-3 with 3 (0.438 and 0.552). The last is kept for both, as the best of CQN. Demonstrators were "
    "chosen on the same seeds, for headroom and for a difference between the two (learning rate 3e-3, weight 10): "
    "hesitations that begin with a probability of 0.05 instead of 0.1 (0.628 and 0.686), and those with another "
    "hesitation at the start of every episode (0.170 and 0.348); with this start CQN also with shorter "
    "hesitations (4 steps, 0.204) and with a weight of 1 (0.220). CQN with steady demonstrators: 0.762, with a "
    "hundred of their demonstrations 0.692, and without tremor 0.620. Two layers of 64 units and batches of 64 "
    "were looked at first (a learning rate of 1e-3, a weight of 10, 0.05 and a hesitation at the start; seeds "
    "1,100 to 1,104: 0.200 and 0.492) and take longer.",
    looks=plan_looks((20, 40)),
)
