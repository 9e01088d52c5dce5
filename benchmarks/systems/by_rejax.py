"""Rejax: the whole training in one JAX program, without its evaluations."""

import time

import jax
import rejax
from shared import START_TIME, TARGET_EVERY, print_result, work


def algorithm(job):
    """PPO, or DQN with a copied target network instead of Polyak averaging."""
    steps = job.begin + job.steps
    common = {
        "env": job.bare,
        "num_envs": job.envs,
        "total_timesteps": steps,
        "eval_freq": steps,
        "learning_rate": job.learning_rate,
        "skip_initial_evaluation": True,
    }
    if job.length:
        network = {"hidden_layer_sizes": (job.hidden, job.hidden), "activation": "relu" if job.script else "tanh"}
        return rejax.PPO.create(
            num_steps=job.length,
            num_epochs=job.epochs,
            num_minibatches=job.length * job.envs // job.batch,
            max_grad_norm=0.5,
            agent_kwargs=network,
            **common,
        )
    assert job.hidden == 64, "rejax has fixed layers for DQN"
    network = {"activation": "relu"}
    return rejax.DQN.create(
        buffer_size=100_000,
        fill_buffer=job.batch,
        batch_size=job.batch,
        num_epochs=job.updates,
        agent_kwargs=network,
        polyak=0.0,
        target_update_freq=TARGET_EVERY * job.envs,
        **common,
    )


def main() -> None:
    job = work()
    steps = job.begin + job.steps
    method = algorithm(job).replace(eval_callback=lambda *args: ())
    train = jax.vmap(method.train) if job.seeds > 1 else method.train

    def keys(i):
        return jax.random.split(jax.random.key(i), job.seeds) if job.seeds > 1 else jax.random.key(i)

    program = jax.jit(train).lower(keys(0)).compile()
    jax.block_until_ready(program(keys(0)))
    start = time.perf_counter()
    jax.block_until_ready(program(keys(1)))
    print_result(steps, time.perf_counter() - start, start - START_TIME)


if __name__ == "__main__":
    main()
