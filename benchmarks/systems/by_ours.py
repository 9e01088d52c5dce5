"""Thespis, by ``thespis.train`` as users call it: metrics, progress and checkpoints as by default."""

import dataclasses
import math
import tempfile
from typing import Any

from shared import TARGET_EVERY, Stopwatch, work

import thespis
from thespis.core.spaces import Box
from thespis.envs import registry


class FlattenObservation:
    """A compiled environment with flattened observations, as Rejax flattens them before its layers."""

    def __init__(self, env):
        self.env = env
        size = math.prod(env.spec.observation_space.shape)
        self.spec = dataclasses.replace(env.spec, observation_space=Box((size,)))

    def reset(self, params, key):
        return self._flat(*self.env.reset(params, key))

    def step(self, state, action, key):
        return self._flat(*self.env.step(state, action, key))

    def _flat(self, state, step):
        return state, dataclasses.replace(step, observation=step.observation.reshape(-1).astype("float32"))


def main() -> None:
    job = work()
    watch = Stopwatch(job.begin, job.steps)

    def on_event(event):
        if event.kind == "progress":
            watch.at(event.step)

    settings = [f"hidden_sizes={job.hidden},{job.hidden}", f"learning_rate={job.learning_rate}"]
    if job.length:
        settings += [f"num_steps={job.length}", f"num_epochs={job.epochs}", f"minibatch_size={job.batch}"]
    elif job.rows:
        settings += [f"batch_size={job.batch}"]
    else:
        settings += [f"batch_size={job.batch}", f"learning_starts={job.batch}", "buffer_size=100000"]
    env: Any = None if job.rows else job.env
    if job.algorithm == "dqn":
        settings += ["update_interval=1", f"target_update_interval={TARGET_EVERY}", "huber_delta=1000000"]
        env = FlattenObservation(registry.make_compiled(job.env))
    with tempfile.TemporaryDirectory() as folder:
        thespis.train(
            job.algorithm,
            env,
            steps=job.begin + job.steps,
            seeds=job.seeds,
            envs=job.envs,
            settings=settings,
            report_every=job.begin,
            evaluate_every=0,
            episodes=1,
            data=job.data if job.rows else None,
            out=f"{folder}/run",
            preset="none",
            callbacks=[on_event],
        )
    watch.print_result()


main()
