"""Bench of on-policy actor-critics: how much is learned from few rollouts without leaving the old policy's data behind.

The cart-pole swing-up, with one continuous action. 16 rollouts of 1,024 steps train in a few seconds per seed; a policy
that hardly changes in each of them learns little.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.data.feeds import Rollouts
from thespis.evidence.bench import Bench, Headroom, Symptom
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import Measure, final_return, mean_metric
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm
from thespis.learners.optim.normalizers import ReturnNormalizer, RunningMeanStd
from thespis.methods.online.ppo import PPO

SWING_UP_ENV = "thespis.envs.compiled.swing_up:SwingUp"
STEPS = 16_384
SETTINGS: dict[str, Any] = {
    "discount": 0.97,
    "obs_normalizer": RunningMeanStd(),
    "reward_normalizer": ReturnNormalizer(),
    "minibatch_size": 256,
    "feed": Rollouts(num_steps=128, num_envs=8),
}
"""Settings of all methods. With this discount rewards 152 steps ahead have a weight below 1%."""

BASELINE = PPO(**SETTINGS, learning_rate=3e-3)
REFERENCE = dataclasses.replace(BASELINE, learning_rate=1e-3)
"""For four times as many steps a smaller learning rate is better."""
_COPY = dataclasses.replace(BASELINE, learning_rate=3.000003e-3)
_SINGLE_EPOCH = dataclasses.replace(BASELINE, num_epochs=1)


def clipped_share() -> Measure:
    """Share of actions whose probability has changed by more than the clip range, mean over training."""
    return dataclasses.replace(mean_metric("clipped"), name="share of ratios beyond the clip range")


BENCH = Bench(
    name="on-policy",
    version=1,
    summary="Swing-up from 16 rollouts: on-policy actor-critics, and limits on their updates.",
    envs=(SWING_UP_ENV,),
    steps=STEPS,
    arms=(
        Arm("PPO", BASELINE),
        Arm("PPO again", _COPY),
        Arm("PPO, one pass", _SINGLE_EPOCH),
        Arm("PPO, four times as long", REFERENCE, steps=4 * STEPS),
    ),
    positive=Comparison("PPO", "PPO, one pass", final_return()),
    negative=Comparison("PPO", "PPO again", final_return()),
    headroom=Headroom("PPO", "PPO, four times as long", final_return()),
    symptoms=(Symptom("PPO", clipped_share(), 0.05),),
    tuning="PPO on seeds 1,100 to 1,109 by the final greedy return after 20,480 steps, learning rates of 3e-4, 1e-3, "
    "3e-3 and 1e-2: 44, 83, 120 and 114; with 3e-3 and a clip range of 0.4 it had 112. With four times as many steps "
    "1e-3 has 154 and 3e-3 has 141. After 25,600 steps 1e-3 and 3e-3 have 107 and 141, and one pass over each rollout "
    "with 3e-3 has 35. Mirror descent (MDPO) was tuned with the same four learning rates and 20,480 steps: 36, 63, 83 "
    "and 65, and 67 with 3e-3 and an initial step size of 4. It has no trial here. The cart-pole with sticky actions "
    "was to be a second environment. There PPO had 343, 335, 376 and 368 with the four learning rates, and 443 and 436 "
    "with 1e-3 and 3e-3 after four times as many steps; MDPO had 286, 253, 296 and 223. The budget was therefore "
    "shortened to 16,384 steps, but on the seeds of the controls PPO had still come 82% of the way to four times as "
    "many steps, and the cart-pole was left out. Without sticky actions it had 455 and 476 of 500 after 25,600 steps.",
    looks=plan_looks((20, 40)),
)
