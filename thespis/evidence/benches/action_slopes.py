"""Bench of actors that follow a critic's slope: bodies that turn, so that the same action does another thing each time.

Two turning bodies are pushed in their own frames (:mod:`thespis.papers.hypernetwork_q_policy.envs`). The slope of a
value with respect to the action is a product of position and heading, which the critic must have learned before the
actor can learn from it. Training takes a few seconds per seed.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.critics.hypernetwork import ConcatCritic, HypernetworkCritic
from thespis.data.feeds import Replay
from thespis.evidence.bench import Bench, Headroom, Symptom
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import Measure, final_return, learning_curve_auc
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm
from thespis.learners.off_policy.temperature import TunedTemperature
from thespis.methods.online.sac import SAC
from thespis.papers.hypernetwork_q_policy.envs import TurningBodies
from thespis.papers.hypernetwork_q_policy.measures import action_gradient_cosine

TWO_BODIES = TurningBodies(num_bodies=2, step_size=0.2, turn=0.5, time_limit=15)
ENV = f"{__name__}:TWO_BODIES"
STEPS = 1_500
SETTINGS: dict[str, Any] = {
    "hidden_sizes": (32, 32),
    "discount": 0.8,
    "tau": 0.02,
    "learning_rate": 3e-3,
    "temperature": TunedTemperature(learning_rate=3e-3),
    "feed": Replay(batch_size=32, learning_starts=200),
}
"""Settings of all methods. After 15 steps rewards have a weight of 3.5%."""
CONCAT_CRITIC = ConcatCritic((48, 48))
BASELINE = SAC(**SETTINGS, critic_learning_rate=3e-3, critic=CONCAT_CRITIC)
WITH_HYPERNETWORK = dataclasses.replace(BASELINE, critic=HypernetworkCritic((16,), 16, init_scale=8.0))
"""The best that is known after as many steps, with a critic of about as many weights: 3,170, of the baseline 3,025."""
_COPY = dataclasses.replace(BASELINE, learning_rate=3.0003e-3)
_SLOW = dataclasses.replace(BASELINE, critic_learning_rate=1e-5)
SLOPE = action_gradient_cosine(num_states=100, horizon=15)
"""Agreement of the critic's slope with that of returns, over the length of an episode."""


def slope_error() -> Measure:
    """One minus the mean cosine similarity of the critic's action gradient and that of returns, in [0, 2]."""
    return Measure(
        "disagreement of the critic's slope with that of returns",
        lambda run: 1.0 - SLOPE.compute(run),
        False,
        bounds=(0.0, 2.0),
    )


BENCH = Bench(
    name="action-slopes",
    version=1,
    summary="Two bodies that turn and are pushed in their own frames: actors that learn from a critic's slope.",
    envs=(ENV,),
    steps=STEPS,
    num_episodes=50,
    arms=(
        Arm("SAC", BASELINE),
        Arm("SAC again", _COPY),
        Arm("SAC, critic with a small learning rate", _SLOW),
        Arm("SAC, hypernetwork critic", WITH_HYPERNETWORK),
    ),
    positive=Comparison("SAC", "SAC, critic with a small learning rate", final_return()),
    negative=Comparison("SAC", "SAC again", learning_curve_auc()),
    headroom=Headroom("SAC", "SAC, hypernetwork critic", final_return()),
    symptoms=(Symptom("SAC", slope_error(), 0.3),),
    tuning="Four trials per arm, on seeds 1,100 to 1,103, by the mean final greedy return. Plain critics with learning "
    "rates of 1e-3, 3e-3, 5e-3 and 1e-2: -11.4, -9.0, -9.4 and -9.2. Hypernetwork critics with 3e-3 and 1e-2: -6.0 and "
    "-8.2 with the published bounds of initial weights, -4.0 and -5.4 with bounds 8 times as large. Random play has "
    "-13.1. The actor's learning rate was 3e-3 in all trials. Before, with 3,000 steps, plain critics had come to -3.3 "
    "and -3.5 with 3e-3 and 1e-2, near the best known, so that a longer run had no headroom; a hypernetwork critic "
    "with the published bounds and a learning rate of 1e-3 had come to -4.7.",
    looks=plan_looks((10,)),
)
