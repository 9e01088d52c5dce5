"""An experiment of several trainings, each of which starts with what the ones before it have learned.

A stage is a run with a directory of its own (``1-pretrain``, ``2-finetune``), and can be evaluated and compared as any
other. Before the first one begins, all are configured and assembled, and the states that one takes from another are
compared by name, shape and dtype. Each stage starts with the last checkpoint of its sources, so that an experiment
that is interrupted, in a stage or between two, comes to the same bits.

``train`` and ``resume`` of runs are passed in by :mod:`thespis.api`.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import gymnasium

from thespis.core.contracts import HostEnvironment
from thespis.core.errors import UserError
from thespis.feedback.frozen import FrozenFeedback, replace_frozen
from thespis.runs.config import upgrade_config
from thespis.runs.events import Callback, Event
from thespis.runs.stages_directory import STAGES_FILE, has_stages, read_stages_file, write_stages_file
from thespis.runs.state_addresses import From, StateTable, table_of_shapes
from thespis.runs.store import RunDirectory, lock_directory
from thespis.runs.toml_files import flatten_table, read_toml
from thespis.runtime import disk
from thespis.training.assembly import AssembledRun, assemble_run
from thespis.training.initial_states import check_fit, learner_shapes, read_initial_states
from thespis.training.run_config import FROZEN_PREFIX, frozen_from_config

PREVIOUS = "previous"
"""The stage before, as the source of a part or of a frozen feedback."""

Configure = Callable[[dict[str, Any]], tuple[dict[str, Any], Any]]
"""From the arguments of :func:`thespis.train` to a run's configuration and its environment."""


@dataclasses.dataclass(frozen=True)
class Stage:
    """One run of an experiment in stages."""

    name: str
    """Its directory, ``1-pretrain``."""
    config: dict[str, Any]
    """Its configuration, as in run.json."""
    start: tuple[From, ...] = ()
    """Parts that it starts with; their runs are names of earlier stages."""
    step: int | None = None
    """The step at which it ended; ``None``: it has not ended."""

    def to_json(self) -> dict[str, Any]:
        """The stage as an entry of stages.json."""
        start = [part.to_config() for part in self.start]
        return {"name": self.name, "step": self.step, "start": start, "config": self.config}

    @classmethod
    def from_json(cls, entry: dict[str, Any]) -> Stage:
        """The stage of an entry of stages.json."""
        start = tuple(From.from_config(part) for part in entry["start"])
        return cls(entry["name"], upgrade_config(entry["config"]), start, entry["step"])


TrainStage = Callable[[Path, dict[str, Any] | None, list[Callback]], Any]
"""Trains one stage in a directory: starts a run of a configuration, or continues the one there (``None``)."""


def read_stages_toml(path: str | Path) -> list[dict[str, Any]]:
    """The stages in a TOML file: a table ``[[stage]]`` for each, after the arguments that all stages share.

    Raises :class:`UserError` for a file that cannot be read, or without stages.
    """
    content = read_toml(path, "stages")
    tables = content.pop("stage", None)
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables) or not tables:
        raise UserError(f"stages file {path} needs at least one [[stage]] (docs/stages.md)")
    stages = [content | table for table in tables]
    return [
        stage | {name: flatten_table(stage[name]) for name in ("settings", "start") if name in stage}
        for stage in stages
    ]


# -- plan -----------------------------------------------------------------------------------------------


def plan_stages(stages: Sequence[dict[str, Any]], configure: Configure) -> tuple[list[Stage], list[Any]]:
    """The stages with their configurations, and the environment of each.

    Raises :class:`UserError` for whatever is wrong in one of them, and for parts that do not fit: nothing has begun.
    """
    if not stages:
        raise UserError("an experiment needs at least one stage")
    planned: list[Stage] = []
    envs, tables = [], []
    for i, arguments in enumerate(stages):
        name = _directory_name(i, arguments)
        try:
            stage, env = _configure_stage(name, arguments, planned, configure)
            tables.append(_check_stage(stage, env, dict(zip([s.name for s in planned], tables, strict=True))))
        except UserError as error:
            raise UserError(f"stage {name}: {error}") from error
        planned.append(stage)
        envs.append(env)
    return planned, envs


def _directory_name(index: int, arguments: dict[str, Any]) -> str:
    method = arguments.get("method")
    name = arguments.get("name") or (method if isinstance(method, str) else type(method).__name__.lower())
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name.rpartition(":")[2]):
        raise UserError(f"stage {index + 1} cannot be called {name!r}: a name has letters, digits, and - _ .")
    return f"{index + 1}-{name.rpartition(':')[2]}"


def _configure_stage(
    name: str, arguments: dict[str, Any], earlier: list[Stage], configure: Configure
) -> tuple[Stage, Any]:
    """The stage and its environment. What it takes from earlier stages is in ``start`` alone."""
    others = {key: value for key, value in arguments.items() if key not in ("name", "start")}
    if unknown := [key for key in ("out", "callbacks") if key in others]:
        raise UserError(f"{unknown[0]} is an argument of all stages together, not of one")
    if others.get("method") is None:
        raise UserError("it has no method")
    others["feedback"] = _with_trained_stages(others.get("feedback"), earlier)
    config, env = configure(others)
    parts = [From.from_config(entry) for entry in config.pop("init_parts", [])]  # a frozen feedback's first
    parts += [_start_part(to, source) for to, source in _start_table(arguments.get("start")).items()]
    named = [(part, _find_stage(str(part.run), earlier)) for part in parts]
    start = tuple(From(stage.name, part.path, part.to) for part, stage in named if stage is not None)
    outside = [part.to_config() for part, stage in named if stage is None]
    return Stage(name, config | ({"init_parts": outside} if outside else {}), start), env


def _start_table(start: Any) -> dict[str, str]:
    table = {} if start is None else start
    if not isinstance(table, dict) or not all(isinstance(source, str) for source in table.values()):
        raise UserError(f'start = {start!r} is no table of addresses and stages, such as {{"method": "{PREVIOUS}"}}')
    return table


def _start_part(to: str, source: str) -> From:
    """The part for ``"method.critic": "previous"``, or ``"previous:method.critic"``, or a run's directory."""
    return From.parse(f"{to}={source}")


def _find_stage(source: str, earlier: list[Stage]) -> Stage | None:
    """The earlier stage that a text names; ``None`` for a run's directory."""
    if source == PREVIOUS:
        if not earlier:
            raise UserError(f"the first stage has no {PREVIOUS} one: name a run's directory")
        return earlier[-1]
    names = {name: stage for stage in earlier for name in (stage.name, stage.name.partition("-")[2])}
    return names.get(source)


def _with_trained_stages(feedback: Any, earlier: list[Stage]) -> Any:
    """The feedback, with the configurations of those that earlier stages train in its frozen parts."""
    if isinstance(feedback, str) and feedback.startswith(FROZEN_PREFIX):
        feedback = FrozenFeedback(feedback.removeprefix(FROZEN_PREFIX))

    def change(frozen: FrozenFeedback) -> FrozenFeedback:
        stage = None if frozen.run is None else _find_stage(frozen.run, earlier)
        if stage is None:
            return frozen
        if frozen.part is not None:
            return dataclasses.replace(frozen, run=stage.name)
        return frozen_from_config(stage.name, stage.config)

    return replace_frozen(feedback, change)


def _check_stage(stage: Stage, env: Any, tables: dict[str, StateTable]) -> StateTable:
    """Assemble a stage and compare what it starts with. Returns the table of its states."""
    options = stage.config["options"] | {"workers": 0, "cluster": None, "devices": 1}  # no cluster for a check
    assembled = assemble_run(stage.config | {"options": options}, env)
    try:
        read_initial_states(stage.config, assembled)
        num_seeds = len(stage.config["seeds"])
        table = table_of_shapes(f"stage {stage.name}", learner_shapes(assembled), num_seeds)
        for part in stage.start:
            check_fit(part, tables[str(part.run)], table)
        return table
    finally:
        _close(assembled, env)


def _close(assembled: AssembledRun, env: Any) -> None:
    """Close the loop, unless its environments are the user's own object, which training will use."""
    if isinstance(env, str | type) or not isinstance(env, HostEnvironment | gymnasium.vector.VectorEnv):
        assembled.loop.close()


# -- training -------------------------------------------------------------------------------------------


def create_stages(directory: Path, stages: list[Stage]) -> None:
    """Write the plan into a new directory. Raises :class:`UserError` if it is not empty."""
    if has_stages(directory):
        raise UserError(f"{directory} already holds stages: continue with `thespis resume {directory}`")
    if directory.is_dir() and any(directory.iterdir()):
        raise UserError(f"{directory} is not empty: choose another directory for the stages")
    with disk.as_user_error("the stages", directory):
        directory.mkdir(parents=True, exist_ok=True)
    _write(directory, stages)


def _write(directory: Path, stages: list[Stage]) -> None:
    from thespis import __version__

    entries = [stage.to_json() for stage in stages]
    write_stages_file(directory, {"format": 1, "thespis": __version__, "stages": entries})


def open_stages(directory: Path) -> list[Stage]:
    """The stages of a directory. Raises :class:`UserError` if there are none."""
    if not has_stages(directory):
        raise UserError(f"{directory} holds no stages: it has no {STAGES_FILE}")
    return [Stage.from_json(entry) for entry in read_stages_file(directory)["stages"]]


def run_stages(directory: Path, train: TrainStage, callbacks: Iterable[Callback] = ()) -> list[Path]:
    """Train the stages of a directory that have not ended, in order. Returns the runs that have begun.

    A stage that was interrupted before its first checkpoint starts again; one with a checkpoint continues. An
    interrupt ends the experiment after what was trained is saved.

    Raises:
        UserError: for whatever training raises, and if another process trains the stages.
    """
    lock = lock_directory(directory)
    try:
        stages = open_stages(directory)
        for i, stage in enumerate(stages):
            if stage.step is not None:
                continue
            path, reasons = directory / stage.name, list[str]()
            begun = _has_checkpoint(path)
            if not begun and path.exists():
                _remove_unbegun(path)
            config = None if begun else with_sources(directory, stage, stages)
            train(path, config, [*(_in_stage(c, stage.name, directory) for c in callbacks), _keep_reason(reasons)])
            if reasons[-1:] == ["interrupted"]:
                break
            stages[i] = dataclasses.replace(stage, step=RunDirectory.open(path).saved_step)
            _write(directory, stages)
        return [directory / stage.name for stage in stages if (directory / stage.name / "run.json").is_file()]
    finally:
        if lock is not None:
            lock.close()


def with_sources(directory: Path, stage: Stage, stages: list[Stage]) -> dict[str, Any]:
    """The configuration of a stage whose sources have ended, with their runs and steps as ``init_parts``."""
    steps = {other.name: other.step for other in stages}
    parts = [
        part.to_config() | {"run": str(directory / part.run), "step": steps[str(part.run)]} for part in stage.start
    ]
    parts = [*stage.config.get("init_parts", []), *parts]
    return stage.config | ({"init_parts": parts} if parts else {})


def _has_checkpoint(path: Path) -> bool:
    return (path / "run.json").is_file() and RunDirectory.open(path).has_checkpoint


def _remove_unbegun(path: Path) -> None:
    """Delete the directory of a stage that was stopped before its first checkpoint: it starts again."""
    with disk.as_user_error("the stage", path):
        shutil.rmtree(path)


def _keep_reason(reasons: list[str]) -> Callback:
    def keep(event: Event) -> None:
        if event.kind == "done":
            reasons.append(event.data["reason"])

    return keep


def _in_stage(callback: Callback, name: str, directory: Path) -> Callback:
    """A callback that is told with each start which stage it is, and of which directory."""

    def call(event: Event) -> bool | None:
        if event.kind == "start":
            event = dataclasses.replace(event, data=event.data | {"stage": name, "stages": str(directory)})
        return callback(event)

    return call
