"""Bench of exploration bonuses: a goal near the start is found by chance, one behind a shelf hardly ever.

A vehicle in a small warehouse without traffic (:mod:`thespis.papers.rnd_ppo_for_agv.envs`) is sent to one of two goals,
and only reaching it is rewarded. Without a bonus the policy learns to drive to the near goal, and nothing in those
rewards says what to do in the other episodes. A seed trains for some seconds.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.data.feeds import Rollouts
from thespis.evidence.bench import Bench, Headroom, Symptom
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import Measure, final_return, learning_curve_auc
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm
from thespis.feedback.count_bonus import CountBonus
from thespis.feedback.rnd import RandomNetworkDistillation
from thespis.learners.optim.normalizers import ReturnNormalizer
from thespis.methods.online.ppo import PPO
from thespis.papers.rnd_ppo_for_agv.envs import Warehouse

TWO_GOALS = Warehouse(
    arena_size=5.0,
    shelves=((0.0, 2.1, 3.5, 2.9),),
    mover_paths=(),
    start_position=(0.8, 0.8),
    goal_position=(0.8, 4.2),
    other_goals=((4.2, 0.8),),
    goal_radius=0.6,
    time_limit=80,
)
TWO_GOALS_ENV = f"{__name__}:TWO_GOALS"
STEPS = 122_880
MINIBATCHES: dict[str, Any] = {"num_epochs": 4, "minibatch_size": 512}
"""Minibatches of the policy, and of what learns a bonus."""

BASELINE = PPO(
    **MINIBATCHES,
    learning_rate=1e-3,
    ent_coef=0.003,
    reward_normalizer=ReturnNormalizer(),
    feed=Rollouts(num_steps=128, num_envs=8),
)
TUNED_RND = RandomNetworkDistillation(
    **MINIBATCHES, bonus_coef=0.1, learning_rate=1e-3, hidden_sizes=(64,), feature_size=32
)
COUNTS = CountBonus(bonus_coef=0.1, cell_size=0.2, obs_indices=(0, 1))
"""Counts positions, in cells of half a metre: what matters here."""
_COPY = dataclasses.replace(BASELINE, learning_rate=1.000001e-3)


def missed_goals() -> Measure:
    """Share of the final greedy episodes that do not reach their goal."""
    return Measure(
        "share of greedy episodes that miss their goal",
        lambda run: 1.0 - final_return().compute(run),
        larger_is_better=False,
        bounds=(0.0, 1.0),
    )


BENCH = Bench(
    name="exploration",
    version=1,
    summary="A warehouse with a near and a hidden goal and no other reward: exploration bonuses.",
    envs=(TWO_GOALS_ENV,),
    steps=STEPS,
    arms=(
        Arm("PPO", BASELINE),
        Arm("PPO again", _COPY),
        Arm("counts", BASELINE, {"feedback": COUNTS}),
        Arm("counts, twice as long", BASELINE, {"feedback": COUNTS}, steps=2 * STEPS),
    ),
    positive=Comparison("counts", "PPO", final_return()),
    negative=Comparison("PPO", "PPO again", learning_curve_auc()),
    headroom=Headroom("PPO", "counts, twice as long", final_return()),
    symptoms=(Symptom("PPO", missed_goals(), 0.3),),
    tuning="Six settings each of RND and PPO, by the final greedy return on seeds 1,100 to 1,119. RND: weights of 0.01 "
    "and 0.03 with 81,920 steps (0.502 and 0.527), of 0.1 and 0.3 with 122,880 (0.673 and 0.076), and with 0.1 "
    "learning rates of the predictor of 3e-4 and 3e-3 (0.197 and 0.609). PPO with 122,880 steps: as it is here "
    "(0.502), and on seeds 1,100 to 1,109 entropy coefficients of 0.01, 0.03 and 0.1 (0.528, 0.516 and 0.496) and "
    "learning rates of 3e-3 and 3e-4 (0.518 and 0.526), which are the shares of episodes with the near goal. Counts: "
    "0.683 with 81,920 steps. The scene was chosen for headroom, on seeds from 1,100 on. With a single goal PPO finds "
    "it in most seeds or in hardly any. The first scene (8 m, two movers; 300,000 steps, 10 seeds): 0.002 with PPO, "
    "0.764 with counts, 0.512 with RND. Shelves of 5 and 4 m there: PPO 0.084 and 0.400, and in 200,000 steps RND "
    "0.198 with 4 m. The first scene without movers (200,000 steps): PPO 0.000, RND 0.308. A square of 5 m with a "
    "shelf of 3 m (81,920 steps): 0.588 with PPO, 0.547 with RND and a weight of 0.001, of which a predictor with a "
    "learning rate of 1e-4 (0.259) or a single epoch (0.275) was worse; on 10 seeds 0.428 with a weight of 0.01 and "
    "0.402 with counts.",
    looks=plan_looks((20, 40)),
)
