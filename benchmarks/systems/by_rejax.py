"""Rejax: whole training in one JAX program. Its evaluations are switched off."""

import time

import jax
import rejax
from shared import BEGAN, answer, work


def main() -> None:
    job = work()
    rollout = job.length * job.envs
    steps = job.begin + job.steps
    algorithm = rejax.PPO.create(
        env=job.bare, num_envs=job.envs, num_steps=job.length, num_epochs=job.epochs,
        num_minibatches=rollout // job.batch, total_timesteps=steps, eval_freq=steps, max_grad_norm=0.5,
        learning_rate=job.learning_rate, skip_initial_evaluation=True,
        agent_kwargs={"hidden_layer_sizes": (job.hidden, job.hidden), "activation": "tanh"},
    )  # fmt: skip
    algorithm = algorithm.replace(eval_callback=lambda *given: ())
    train = jax.vmap(algorithm.train) if job.seeds > 1 else algorithm.train

    def keys(i):
        return jax.random.split(jax.random.key(i), job.seeds) if job.seeds > 1 else jax.random.key(i)

    program = jax.jit(train).lower(keys(0)).compile()
    jax.block_until_ready(program(keys(0)))
    since = time.perf_counter()
    jax.block_until_ready(program(keys(1)))
    answer(steps, time.perf_counter() - since, since - BEGAN)


main()
