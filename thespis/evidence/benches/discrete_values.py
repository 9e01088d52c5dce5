"""Bench of value methods with one discrete action, in which too few Bellman updates slow learning.

The cart-pole and a long game of catch, both with sticky actions (Machado et al. 2018), as in today's evaluations on
Atari games. Target networks stay fixed for 200 updates, as in the small experiments of Vincent et al.'s code, so that
only 14 Bellman updates are made in 12,000 steps: values of the cart-pole grow by at most one reward each.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.data.feeds import Replay
from thespis.envs.compiled.gymnax import Gymnax
from thespis.envs.compiled.sticky_actions import StickyActions
from thespis.evidence.bench import Bench, Headroom, Symptom
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import Measure, final_return, learning_curve_auc, relative_overestimation
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm
from thespis.methods.online.dqn import DQN

STICKY_CART_POLE = StickyActions(Gymnax("CartPole-v1"))
STICKY_CATCH = StickyActions(Gymnax("Catch-bsuite", (("rows", 20), ("columns", 9))))
CART_POLE_ENV, CATCH_ENV = (f"{__name__}:{name}" for name in ("STICKY_CART_POLE", "STICKY_CATCH"))
STEPS = 12_000
TARGET_INTERVAL = 200
SETTINGS: dict[str, Any] = {
    "hidden_sizes": (64, 64),
    "discount": 0.97,
    "max_grad_norm": 1e9,
    "epsilon_decay_updates": 1_000.0,
    "final_epsilon": 0.01,
    "target_update_interval": TARGET_INTERVAL,
    "feed": Replay(batch_size=32, learning_starts=500, update_interval=4),
}
"""Settings of all methods. With this discount rewards 152 steps ahead have a weight below 1%."""

BASELINE = DQN(**SETTINGS, learning_rate=2e-3, double_q=False, huber_delta=1e6)
FREQUENT_TARGETS = dataclasses.replace(BASELINE, target_update_interval=20, learning_rate=1e-3)
_COPY = dataclasses.replace(BASELINE, learning_rate=2.0002e-3)
_FEW_TARGETS = dataclasses.replace(BASELINE, target_update_interval=2_000)


def relative_underestimation() -> Measure:
    """Under-estimation of the critic as a share of the range of realised returns."""
    return Measure(
        "under-estimation of the critic as a share of the range of returns",
        lambda run: -relative_overestimation().compute(run),
        larger_is_better=False,
    )


BENCH = Bench(
    name="discrete-values",
    version=1,
    summary="Cart-pole and catch with sticky actions and target networks that are seldom copied: Q-learning with one "
    "discrete action, where the number of Bellman updates is a bottleneck.",
    envs=(CART_POLE_ENV, CATCH_ENV),
    steps=STEPS,
    arms=(
        Arm("DQN", BASELINE),
        Arm("DQN again", _COPY),
        Arm("DQN with few targets", _FEW_TARGETS),
        Arm("frequent targets for 30,000 steps", FREQUENT_TARGETS, steps=30_000),
    ),
    positive=Comparison("DQN", "DQN with few targets", learning_curve_auc()),
    negative=Comparison("DQN", "DQN again", learning_curve_auc()),
    headroom=Headroom("DQN", "frequent targets for 30,000 steps", final_return()),
    symptoms=(Symptom("DQN", relative_underestimation(), 0.2, envs=(CART_POLE_ENV,)),),
    tuning="Learning rates of DQN and of the chain of five networks of i-DQN: four values each (3e-4, 1e-3, 2e-3, "
    "3e-3), on seeds 1,100 to 1,109 of both environments, by the area under the learning curve in 15,000 "
    "steps; for both, 2e-3 was the best or second best in either environment. That targets stay fixed for 200 "
    "updates is given, not tuned. The reference copies them every 20 updates; of 1e-3 and 2e-3 it has the "
    "learning rate with the larger final return in the cart-pole. Environments and steps were chosen for "
    "headroom and for the effect of fixed targets, on the same seeds and, of the controls, on 1,000 to 1,019: "
    "acrobot (20,000, 30,000 and 40,000 steps) was too slow, four rooms (20,000) had greedy play below random "
    "play, catch with 10 rows and 5 columns (10,000) and with 15 and 7 (20,000) had a ceiling, and catch with "
    "20 rows and 9 columns one with 15,000 steps, in which DQN came 81% of the way to the reference, and 82% "
    "of the way to one of 45,000 steps. 20,000 steps of it and of the cart-pole were tried too. The chain, "
    "with 1e-3, ran there too, except in acrobot with 20,000 and 40,000 steps: it was ahead of DQN in the "
    "cart-pole and in catch, behind it in acrobot (30,000 steps, targets fixed for 150 updates, one every 2 "
    "steps) and in four rooms. The learning rate of the copy differs by a ten-thousandth: with a millionth, 5 "
    "of 40 pairs of runs were the same for 12,000 steps.",
    looks=plan_looks((20, 40)),
)
