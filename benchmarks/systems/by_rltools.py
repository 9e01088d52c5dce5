"""RLtools (C++, compiled for the work, with MKL) by way of its Python interface."""

import gymnasium
from gymnasium.wrappers import RescaleAction
from rltools import SAC
from shared import Stopwatch, work


def main() -> None:
    job = work()
    watch = Stopwatch(job.begin, job.steps)

    def make():
        return RescaleAction(gymnasium.make(job.bare), -1, 1)

    method = SAC(
        make, enable_evaluation=False, ACTOR_BATCH_SIZE=job.batch, CRITIC_BATCH_SIZE=job.batch,
        ACTOR_HIDDEN_DIM=job.hidden, CRITIC_HIDDEN_DIM=job.hidden, STEP_LIMIT=job.begin + job.steps + 1,
        OPTIMIZER_ALPHA=job.learning_rate, interface_name=f"bench_{job.hidden}_{job.batch}",
    )  # fmt: skip
    state, made = method.State(0), 0
    while not watch.at(made):
        state.step()
        made += 1
    watch.answer()


main()
