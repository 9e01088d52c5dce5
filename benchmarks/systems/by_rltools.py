"""RLtools (C++, compiled for each case, with MKL), through its Python interface."""

import gymnasium
from gymnasium.wrappers import RescaleAction
from rltools import SAC
from shared import Stopwatch, work


def main() -> None:
    job = work()
    watch = Stopwatch(job.begin, job.steps)

    def make_env():
        return RescaleAction(gymnasium.make(job.bare), -1, 1)

    method = SAC(
        make_env,
        enable_evaluation=False,
        ACTOR_BATCH_SIZE=job.batch,
        CRITIC_BATCH_SIZE=job.batch,
        ACTOR_HIDDEN_DIM=job.hidden,
        CRITIC_HIDDEN_DIM=job.hidden,
        STEP_LIMIT=job.begin + job.steps + 1,
        OPTIMIZER_ALPHA=job.learning_rate,
        interface_name=f"bench_{job.hidden}_{job.batch}",
    )
    state, num_steps = method.State(0), 0
    while not watch.at(num_steps):
        state.step()
        num_steps += 1
    watch.print_result()


main()
