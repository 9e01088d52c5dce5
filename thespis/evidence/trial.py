"""Runs a trial: batches of seeds of every arm, a look at the claims after each, until all are decided.

Each piece of work is an ordinary run in a directory of its own, named after its arm's declaration, so that what was
finished is never done twice, what was interrupted goes on, and what was declared otherwise is not used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from jaxtyping import Float

from thespis import api
from thespis.evidence.claims import NOT_SHOWN, Finding
from thespis.evidence.measures import Measure
from thespis.evidence.paper import Arm, Trial, digest
from thespis.runs.config import to_config
from thespis.runs.events import Listener
from thespis.trained import Run


class Interrupted(Exception):
    """Somebody stopped a run; it is saved."""


@dataclasses.dataclass(frozen=True)
class Piece:
    """One run of a trial: ``number`` of ``of`` in this batch."""

    arm: Arm
    env: str
    seeds: tuple[int, ...]
    number: int
    of: int


@dataclasses.dataclass
class TrialRuns:
    """The finished runs of a trial, by arm and environment, in the order of their seeds."""

    trial: Trial
    runs: dict[tuple[str, str], list[Run]] = dataclasses.field(default_factory=dict)

    def add(self, piece: Piece, run: Run) -> None:
        """Take in a finished run."""
        self.runs.setdefault((piece.arm.name, piece.env), []).append(run)

    def seeds(self) -> list[int]:
        """The seeds that every arm has by now."""
        first = self.runs[self.trial.arms[0].name, self.trial.envs[0]]
        return [seed for run in first for seed in run.config["seeds"]]

    def scores(self, arm: str, measure: Measure) -> Float[np.ndarray, "seed env *rest"]:
        """What ``measure`` says of every seed of an arm on every environment."""
        envs = [np.concatenate([measure.of(run) for run in self.runs[arm, env]]) for env in self.trial.envs]
        return np.stack(envs, axis=1)

    def findings(self) -> list[Finding]:
        """What the seeds so far say of each claim."""
        return [claim.judge(self, self.trial.level) for claim in self.trial.claims]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The end of a trial."""

    runs: TrialRuns
    findings: list[Finding]
    looks: int
    seconds: float
    """Of training and evaluation, what was found finished included."""


def run_trial(trial: Trial, directory: Path, watch: Callable[[Piece], list[Listener]]) -> Outcome:
    """Train until every claim is decided or the looks are spent. ``watch`` gives the listeners of each run.

    Raises :class:`Interrupted` when a run was stopped; the same call goes on from there.
    """
    done, findings, look = TrialRuns(trial), [], 0
    while look < trial.looks and (not findings or any(found.verdict == NOT_SHOWN for found in findings)):
        for piece in _pieces(trial, look):
            done.add(piece, _finished(trial, piece, directory, watch(piece)))
        findings, look = done.findings(), look + 1
    seconds = sum(run.directory.read_json("timing.json")["total"] for runs in done.runs.values() for run in runs)
    return Outcome(done, findings, look, seconds)


def _pieces(trial: Trial, look: int) -> Iterator[Piece]:
    seeds = tuple(range(look * trial.batch, (look + 1) * trial.batch))
    groups = [(seed,) for seed in seeds] if trial.apart else [seeds]
    wanted = [(group, arm, env) for group in groups for arm in trial.arms for env in trial.envs]
    for number, (group, arm, env) in enumerate(wanted, 1):
        yield Piece(arm, env, group, number, len(wanted))


def _finished(trial: Trial, piece: Piece, directory: Path, listeners: list[Listener]) -> Run:
    """The run of a piece: found, resumed or made."""
    path = directory / _name(trial, piece)
    if (path / "run.json").exists():
        run = api.load(path)
        if run.final is None:
            run = api.resume(path, callbacks=listeners)
    else:
        run = api.train(
            piece.arm.method,
            piece.arm.world(piece.env),
            steps=piece.arm.steps or trial.steps,
            seeds=list(piece.seeds),
            episodes=trial.episodes,
            out=path,
            callbacks=listeners,
            **piece.arm.options,
        )
    if run.final is None:  # only an interruption leaves a run without its last evaluation
        raise Interrupted(str(path))
    return run


def _name(trial: Trial, piece: Piece) -> str:
    """A directory's name that changes with whatever changes results."""
    arm, steps = piece.arm, piece.arm.steps or trial.steps
    declared = [to_config(arm.method), to_config(dict(arm.options)), steps, trial.episodes]
    env = piece.arm.world(piece.env).replace(":", "-").replace("/", "-")
    return f"{piece.arm.name}-{env}-{digest(declared)}-seeds-{piece.seeds[0]}-{piece.seeds[-1]}".replace(" ", "-")
