"""RLtools' TD3 on its own quadrotor: training time for the same number of steps and updates as ours.

Run by ``hover.py`` with the interpreter of RLtools' environment. Compilation is not measured.
"""

import json
import sys
import time
from pathlib import Path

from rltools import TD3

STEPS, WARMUP, EVERY = map(int, sys.argv[1:])
"""Total steps, steps before the first update, and steps between critic updates; the actor is updated half as often."""


def main() -> None:
    environment = {"path": str(Path(__file__).parent / "rltools_environment"), "action_dim": 4, "observation_dim": 82}
    td3 = TD3(
        environment,
        enable_evaluation=False,
        interface_name="hover",
        STEP_LIMIT=STEPS + 1,
        N_WARMUP_STEPS=WARMUP,
        ACTOR_BATCH_SIZE=256,
        CRITIC_BATCH_SIZE=256,
        ACTOR_HIDDEN_DIM=64,
        CRITIC_HIDDEN_DIM=64,
        ACTOR_ACTIVATION_FUNCTION="FAST_TANH",
        CRITIC_ACTIVATION_FUNCTION="FAST_TANH",
        CRITIC_TRAINING_INTERVAL=EVERY,
        CRITIC_TARGET_UPDATE_INTERVAL=EVERY,
        ACTOR_TRAINING_INTERVAL=2 * EVERY,
        ACTOR_TARGET_UPDATE_INTERVAL=2 * EVERY,
    )
    state = td3.State(0)
    start = time.perf_counter()
    for _ in range(STEPS):
        state.step()
    print(json.dumps({"seconds": time.perf_counter() - start, "steps": STEPS, "updates": (STEPS - WARMUP) // EVERY}))


main()
