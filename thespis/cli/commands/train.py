"""``thespis train``."""

from __future__ import annotations

import dataclasses
import os
from typing import Annotated, Any, Literal

import tyro

from thespis.cli.options import Count, JsonFlag, optional, seeds
from thespis.cli.output import Output
from thespis.cli.training import follow, meet, show, trackers
from thespis.runs.events import Listener


@dataclasses.dataclass(frozen=True)
class Train:
    """Train a method in an environment, judge it, and write a report.

    thespis train sac --env Pendulum-v1 --steps 20000 --seeds 3
    """

    method: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="METHOD")]
    """What learns: sac, ppo ... (thespis list methods). With --help after it, its settings are listed too."""
    env: Annotated[str | None, optional("NAME")] = None
    """Where it learns: Pendulum-v1, gymnasium:Ant-v5, my_module:MyEnv ... (thespis list envs)."""
    steps: Count = 100_000
    """Environment steps per seed; updates, when learning from a dataset."""
    seeds: Annotated[str, tyro.conf.arg(metavar="K|A,B,..")] = "1"
    """How many training seeds (3), or which (0,3,5). They train side by side."""
    envs: Annotated[Count | None, optional("N")] = None
    """Environments per seed; by default what the method wants."""
    set: Annotated[tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]], tyro.conf.arg(metavar="NAME=VALUE ..")] = ()
    """Settings of the method, such as learning_rate=3e-4 hidden=64,64 (thespis list methods METHOD)."""
    feedback: Literal["environment", "rnd"] = "environment"
    """Where the learning signal comes from: the environment's reward, or a bonus for novelty added to it."""
    vary: Annotated[
        tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]], tyro.conf.arg(metavar="NAME=LOW..HIGH ..")
    ] = ()
    """Parameters of the world that are drawn anew for each episode, such as length=0.3..0.8."""
    data: Annotated[str | None, optional("DIR")] = None
    """A dataset to learn from (thespis collect), or minari:ID."""
    out: Annotated[str | None, optional("DIR")] = None
    """The run's directory; by default a new one under runs/."""
    loop: Annotated[Literal["compiled", "host", "logged"] | None, optional("{compiled,host,logged}")] = None
    """Which loop; by default the one that environment and method call for."""
    lag: Annotated[Count | None, optional("N")] = None
    """Phases of learning by which the acting policy is behind in the host loop; by default the method's."""
    learners: Count = 1
    """Asynchronous learners that share one state (as A3C's), each with its share of the environments. With more than
    one, results depend on timing."""
    newest: bool = False
    """Act by the newest policy that is ready, at most --lag phases old, in place of the one exactly so old. Nobody
    waits, but results depend on timing."""
    jitter: Annotated[float, tyro.conf.arg(metavar="S")] = 0.0
    """Delay acting and learning at random by up to so many seconds, to see what depends on timing."""
    devices: Count = 1
    """Devices that share the seeds, or else each seed's environments (docs/scaling.md)."""
    processes: Count = 1
    """How many processes run this command together, each with devices of its own."""
    process: Count = 0
    """Which of them this is, 0 .. N-1: 0 writes and prints."""
    coordinator: Annotated[str | None, optional("HOST:PORT")] = None
    """Where they meet: the host of process 0, and a free port."""
    workers: Count = 0
    """Processes (of Ray's) that act in host environments, each with its share of them; 0 for none beside this one.
    Results depend on their number, not on their speed."""
    cluster: Annotated[str | None, optional("HOST:PORT")] = None
    """The Ray cluster in which the workers live, or auto for the one of this machine; by default a Ray of the run's
    own on this machine."""
    threads: Count = 1
    """Threads that step host environments, in each worker. Results do not depend on it."""
    cores: Count = 0
    """Threads that XLA computes with on a CPU; 0 for one a core. One is faster for small networks that learn from small
    minibatches."""
    evaluate_every: Count = 0
    """Steps between evaluations on the way; 0 for only one at the end."""
    episodes: Count = 10
    """Episodes per seed in each evaluation, greedy and sampled each."""
    checkpoint_seconds: Annotated[float, tyro.conf.arg(metavar="S")] = 60.0
    """Seconds between checkpoints. Results do not depend on it."""
    tensorboard: Annotated[str | None, optional("DIR")] = None
    """Write TensorBoard files there as well."""
    wandb: Annotated[str | None, optional("PROJECT")] = None
    """Log to this Weights & Biases project as well."""
    json: JsonFlag = False
    quiet: bool = False
    """No progress: only warnings and the result."""

    def run(self, out: Output) -> int:
        """Train."""
        _not_a_paper(self.method)
        if self.cores:
            os.environ["PJRT_NPROC"] = str(self.cores)  # heard when JAX first computes
        speaks = meet(self.coordinator, self.processes, self.process)
        chosen, listeners = seeds(self.seeds), trackers(self.tensorboard, self.wandb) if speaks else []
        from thespis import api

        def go(listening: list[Listener]) -> api.Run:
            return api.train(
                self.method,
                self.env,
                steps=self.steps,
                seeds=chosen,
                envs=self.envs,
                settings=_flat(self.set),
                feedback=self.feedback,
                curriculum=_flat(self.vary),
                out=self.out,
                callbacks=listening,
                **self._options(),
            )

        return show(out, go, quiet=self.quiet, trackers=listeners) if speaks else follow(go)

    def _options(self) -> dict[str, Any]:
        return {
            "evaluate_every": self.evaluate_every,
            "episodes": self.episodes,
            "checkpoint_seconds": self.checkpoint_seconds,
            "lag": self.lag,
            "learners": self.learners,
            "newest": self.newest,
            "jitter": self.jitter,
            "devices": self.devices,
            "workers": self.workers,
            "cluster": self.cluster,
            "threads": self.threads,
            "loop": self.loop,
            "data": self.data,
        }


def _not_a_paper(method: str) -> None:
    """Raises :class:`UserError` for a paper that is no method by itself, with the command that trains it."""
    from thespis.core.errors import UserError
    from thespis.methods.registry import NAMES
    from thespis.papers import registry

    if method not in NAMES and method in registry.ids():
        raise UserError(f"{method} is a paper, made of other parts: {registry.load(method).use}")


def _flat(groups: tuple[tuple[str, ...], ...]) -> list[str]:
    return [text for group in groups for text in group]
