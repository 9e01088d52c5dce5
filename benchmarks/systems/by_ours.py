"""Thespis, by the function that users call: metrics, progress and checkpoints as they come by default."""

import dataclasses
import math
import tempfile
from typing import Any

from shared import TARGET_EVERY, Stopwatch, work

import thespis
from thespis.core.spaces import Box
from thespis.envs import registry


class Flat:
    """A compiled world whose pictures are laid flat, as Rejax lays them before its layers."""

    def __init__(self, world):
        self.world = world
        size = math.prod(world.spec.observation.shape)
        self.spec = dataclasses.replace(world.spec, observation=Box((size,)))

    def reset(self, params, key):
        return self._flat(*self.world.reset(params, key))

    def step(self, state, action, key):
        return self._flat(*self.world.step(state, action, key))

    def _flat(self, state, step):
        return state, dataclasses.replace(step, observation=step.observation.reshape(-1).astype("float32"))


def main() -> None:
    job = work()
    watch = Stopwatch(job.begin, job.steps)

    def hear(event):
        if event.kind == "progress":
            watch.at(event.step)

    settings = [f"hidden={job.hidden},{job.hidden}", f"learning_rate={job.learning_rate}"]
    if job.length:
        settings += [f"length={job.length}", f"epochs={job.epochs}", f"minibatch={job.batch}"]
    elif job.rows:
        settings += [f"batch={job.batch}"]
    else:
        settings += [f"batch={job.batch}", f"warmup={job.batch}", "capacity=100000"]
    env: Any = None if job.rows else job.env
    if job.algorithm == "dqn":
        settings += ["every=1", f"target_every={TARGET_EVERY}", "huber=1000000"]
        env = Flat(registry.compiled(job.env))
    with tempfile.TemporaryDirectory() as folder:
        thespis.train(
            job.algorithm,
            env,
            steps=job.begin + job.steps,
            seeds=job.seeds,
            envs=job.envs,
            settings=settings,
            report_every=job.begin,
            episodes=1,
            data=job.data if job.rows else None,
            out=f"{folder}/run",
            callbacks=[hear],
        )
    watch.answer()


main()
