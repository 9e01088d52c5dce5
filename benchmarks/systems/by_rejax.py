"""Rejax: whole training in one JAX program. Its evaluations are switched off."""

import time

import jax
import rejax
from shared import BEGAN, TARGET_EVERY, answer, work


def algorithm(job):
    """PPO, or DQN with a target that is copied and not averaged."""
    steps = job.begin + job.steps
    common = {
        "env": job.bare, "num_envs": job.envs, "total_timesteps": steps, "eval_freq": steps,
        "learning_rate": job.learning_rate, "skip_initial_evaluation": True,
    }  # fmt: skip
    if job.length:
        nets = {"hidden_layer_sizes": (job.hidden, job.hidden), "activation": "tanh"}
        return rejax.PPO.create(
            num_steps=job.length, num_epochs=job.epochs, num_minibatches=job.length * job.envs // job.batch,
            max_grad_norm=0.5, agent_kwargs=nets, **common,
        )  # fmt: skip
    assert job.hidden == 64, "DQN's layers are fixed there"
    nets = {"activation": "relu"}
    return rejax.DQN.create(
        buffer_size=100_000, fill_buffer=job.batch, batch_size=job.batch, num_epochs=job.updates, agent_kwargs=nets,
        polyak=0.0, target_update_freq=TARGET_EVERY * job.envs, **common,
    )  # fmt: skip


def main() -> None:
    job = work()
    steps = job.begin + job.steps
    quiet = algorithm(job).replace(eval_callback=lambda *given: ())
    train = jax.vmap(quiet.train) if job.seeds > 1 else quiet.train

    def keys(i):
        return jax.random.split(jax.random.key(i), job.seeds) if job.seeds > 1 else jax.random.key(i)

    program = jax.jit(train).lower(keys(0)).compile()
    jax.block_until_ready(program(keys(0)))
    since = time.perf_counter()
    jax.block_until_ready(program(keys(1)))
    answer(steps, time.perf_counter() - since, since - BEGAN)


main()
