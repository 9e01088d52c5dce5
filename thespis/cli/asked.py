"""What may be asked of training on the command line: the options that ``train`` and ``sweep`` share."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

import tyro

from thespis.cli.options import Count, optional, seeds
from thespis.core.errors import UserError


@dataclasses.dataclass(frozen=True)
class Asked:
    """What to train, and how. A command adds where it happens and what is shown of it."""

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
    model: Annotated[str | None, optional("DIR|tiny|blank")] = None
    """For methods whose actor is a language model: a checkpoint's directory, tiny (a small one, taught the world's
    demonstrations first), or blank (random). The same as --set model=."""
    set: Annotated[tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]], tyro.conf.arg(metavar="NAME=VALUE ..")] = ()
    """Settings of the method, such as learning_rate=3e-4 hidden=64,64 (thespis list methods METHOD)."""
    feedback: Literal["environment", "rnd", "counts"] = "environment"
    """Where the learning signal comes from: the environment's reward, or a bonus for novelty added to it, by what a
    predictor has not learnt yet (rnd) or by counting visits (counts)."""
    vary: Annotated[
        tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]], tyro.conf.arg(metavar="NAME=LOW..HIGH ..")
    ] = ()
    """Parameters of the world that are drawn anew for each episode, such as length=0.3..0.8."""
    opponents: Annotated[str | None, optional("WHO")] = None
    """Play one seat of a game against a pool of the learner's past selves (latest, past: all alike, hard: the hard ones
    first, equilibrium: by theirs), in a league with learners that exploit it (league), or against players that do not
    learn (runs/ppo,bot:mcts-100: all alike). Without it the learner plays all seats."""
    data: Annotated[str | None, optional("DIR")] = None
    """A dataset to learn from: a directory (thespis collect), minari:ID, demonstrations:N or branches:NxK of a text
    world, or a file of conversations, FILE.jsonl (docs/language-data.md)."""
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
    threads: Count = 1
    """Threads that step host environments, in each worker. Results do not depend on it."""
    evaluate_every: Count = 0
    """Steps between evaluations on the way; 0 for only one at the end."""
    episodes: Count = 10
    """Episodes per seed in each evaluation, greedy and sampled each."""
    checkpoint_seconds: Annotated[float, tyro.conf.arg(metavar="S")] = 60.0
    """Seconds between checkpoints. Results do not depend on it."""

    def arguments(self) -> dict[str, Any]:
        """The same for :func:`thespis.train`, by the names of its arguments."""
        _not_a_paper(self.method)
        return {
            "method": self.method,
            "env": self.env,
            "steps": self.steps,
            "seeds": seeds(self.seeds),
            "envs": self.envs,
            "settings": [*([f"model={self.model}"] if self.model else []), *flat(self.set)],
            "feedback": self.feedback,
            "curriculum": self._curriculum(),
            "data": self.data,
            "loop": self.loop,
            "lag": self.lag,
            "learners": self.learners,
            "newest": self.newest,
            "jitter": self.jitter,
            "threads": self.threads,
            "evaluate_every": self.evaluate_every,
            "episodes": self.episodes,
            "checkpoint_seconds": self.checkpoint_seconds,
        }

    def _curriculum(self) -> list[str] | str:
        if self.opponents and self.vary:
            raise UserError("--opponents and --vary cannot go together: a world of opponents has no other parameters")
        return self.opponents or flat(self.vary)


def flat(groups: tuple[tuple[str, ...], ...]) -> list[str]:
    """The words of an option that was given once or several times."""
    return [text for group in groups for text in group]


def _not_a_paper(method: str) -> None:
    """Raises :class:`UserError` for a paper that is no method by itself, with the command that trains it."""
    from thespis.methods.registry import NAMES
    from thespis.papers import registry

    if method not in NAMES and method in registry.ids():
        raise UserError(f"{method} is a paper, made of other parts: {registry.load(method).use}")
