"""Bench of action values with several modes: a policy with one mode settles in some of them.

Foraging among four patches of food that regrow. Every patch is a local maximum of the action's value, and the best one
is another at every step. A squashed normal that is trained by the gradient of a critic comes to alternate between two
patches and neglects the others. Training takes a few seconds per seed.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.data.feeds import Replay
from thespis.envs.compiled.foraging import ForagingEnv
from thespis.evidence.bench import Bench, Headroom, Symptom
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import final_return, learning_curve_auc
from thespis.evidence.multi_goal import num_neglected_patches
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm
from thespis.learners.off_policy.temperature import FixedTemperature
from thespis.methods.online.sac import SAC

FORAGING, AIMED_FORAGING = (ForagingEnv(patch_radius=0.17, is_aimed=is_aimed) for is_aimed in (False, True))
"""Foraging, and the same with actions relative to the best patch: nothing has to be chosen."""
FORAGING_ENV, AIMED_FORAGING_ENV = (f"{__name__}:{name}" for name in ("FORAGING", "AIMED_FORAGING"))
STEPS = 8_000
SETTINGS: dict[str, Any] = {
    "hidden_sizes": (32, 32),
    "discount": 0.8,
    "feed": Replay(batch_size=64, learning_starts=1_000, update_interval=2),
}
"""Settings of all methods. A patch has its full growth again after five steps, so a short horizon is enough."""
BASELINE = SAC(**SETTINGS, learning_rate=3e-3, temperature=FixedTemperature(0.03))
_COPY = dataclasses.replace(BASELINE, learning_rate=3.0003e-3)

BENCH = Bench(
    name="multi-goal",
    version=1,
    summary="Foraging among four patches that regrow: policies with several modes, and actors that do not stay in a "
    "local maximum of the critic.",
    envs=(FORAGING_ENV,),
    steps=STEPS,
    num_episodes=20,
    arms=(
        Arm("SAC", BASELINE),
        Arm("SAC again", _COPY),
        Arm("SAC, aimed at the best patch", BASELINE, env=AIMED_FORAGING_ENV),
    ),
    positive=Comparison("SAC, aimed at the best patch", "SAC", final_return()),
    negative=Comparison("SAC", "SAC again", learning_curve_auc()),
    headroom=Headroom("SAC", "SAC, aimed at the best patch", final_return()),
    symptoms=(Symptom("SAC", num_neglected_patches(), 1.0),),
    tuning="SAC in four trials, by the return of greedy play, on seeds 1,100 to 1,109: learning rates 1e-3 and 3e-3 at "
    "a temperature of 0.03, and at 3e-3 a temperature of 0.01 and a tuned one. Radius of the patches, for headroom and "
    "symptom, with networks of 32 or 64 units: 0.15, 0.17, 0.2, 0.22, 0.24 and 0.3; with 0.22 and 0.24 SAC with 32 "
    "units has come less than 30% of the way from random play, with 0.3 SAC with 64 units visits all patches.",
    looks=plan_looks((20, 40)),
)
