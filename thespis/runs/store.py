"""The run directory: plain CSV and JSON files, readable without Thespis, and the checkpoints.

========================  ===========================================================================
``run.json``              the resolved configuration; rewritten only by :meth:`RunDirectory.extend`
``metrics.csv``           one row per (step, seed), no wall clock: equal runs give equal bytes
``progress.csv``          ``step,elapsed,steps_per_second``
``evaluations.jsonl``     one line per evaluation: ``{"step", "greedy", "sampled"}``
``held_out.jsonl``        one line per evaluation on held-out data: ``{"step", "metrics": {name: [per seed]}}``
``conversations.jsonl``   sample conversations: ``{"step", "conversations": [{"return", "turns"}]}``
``checkpoints/``          the latest two, and ``best.ckpt``: the best one by evaluation (the method's state alone)
``untrained.json``        sampled play before training, where actions are texts
``final.json`` ...        files written by :meth:`RunDirectory.write_json`
========================  ===========================================================================

An empty cell means that nothing was measured. Steps are environment steps per seed. In JSON a number
that is not finite becomes ``null``. Disk errors are raised as a :class:`UserError` of one line.
"""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from jaxtyping import PyTree

from thespis.core.errors import UserError
from thespis.runs import checkpoint
from thespis.runs.config import upgrade_config
from thespis.runs.serialization import csv_line, read_json, to_jsonable
from thespis.runs.stages_directory import has_stages, last_stage
from thespis.runs.trust import EVERYTHING, Trust, trust_in
from thespis.runtime import disk


def new_run_path(method: str, env: str, root: str | Path = "runs") -> Path:
    """An unused path: ``runs/<method>-<env>-<date and time>``, with a numeric suffix if needed."""
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in f"{method}-{env}")
    first = Path(root) / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    others = (first.with_name(f"{first.name}-{i}") for i in itertools.count(2))
    return next(path for path in itertools.chain([first], others) if not path.exists())


def missing_run_message(path: Path) -> str:
    """What is wrong with ``path``, and what to do."""
    if not path.exists():
        nearby_runs = sorted(path.parent.glob("*/run.json")) if path.parent.is_dir() else []
        hint = f"the latest run there is {nearby_runs[-1].parent}" if nearby_runs else "start one with `thespis train`"
        return f"{path} does not exist: {hint}"
    inner_runs = sorted(path.glob("*/run.json")) if path.is_dir() else []
    outer_runs = [parent for parent in path.resolve().parents if (parent / "run.json").is_file()]
    if inner_runs:
        return f"{path} is not a run but holds {len(inner_runs)}: name one, for instance {inner_runs[-1].parent}"
    if outer_runs:
        return f"{path} is not a run but lies in one: name {outer_runs[0]}"
    return f"{path} is not a run (it has no run.json): start one with `thespis train`"


BASE_COLUMNS = ("step", "seed", "episodes", "episode_return", "episode_length")
"""The first columns of every metrics.csv; those of the method follow."""

PROGRESS_COLUMNS = ("step", "elapsed", "steps_per_second")
NUM_KEPT_CHECKPOINTS = 2
HELD_OUT_FILE = "held_out.jsonl"
BEST_CHECKPOINT = f"best{checkpoint.SUFFIX}"


def budgets(config: dict[str, Any]) -> list[dict[str, int]]:
    """All total numbers of steps that a run has had, oldest first, each with the step ``from`` which it holds."""
    return config.get("budgets") or [{"steps": config["steps"], "from": 0}]


def lock_directory(path: Path) -> BinaryIO | None:
    """Lock a directory for this process until the file is closed; ``None`` where there is no such lock.

    Raises :class:`UserError` if another process has it.
    """
    try:
        import fcntl
    except ImportError:  # no such lock outside POSIX
        return None
    with disk.as_user_error("the lock", path):
        file = open(path / ".lock", "ab")  # noqa: SIM115 (stays open: closing it releases the lock)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise UserError(f"{path} is being trained by another process: wait or stop that") from None
    return file


_OLD_TURN = {"heard": "observation", "said": "response"}  # keys of a turn in earlier versions


class RunDirectory:
    """A run on disk. Use :meth:`create` or :meth:`open`."""

    def __init__(self, path: Path, config: dict[str, Any], columns: tuple[str, ...], trust: Trust = EVERYTHING):
        self.path = path
        self.trust = trust
        """Modules that the configuration may name; everything in a run that this process has created."""
        self.config = config
        self.columns = columns
        self._lock: BinaryIO | None = None

    @classmethod
    def create(cls, path: str | Path, config: dict[str, Any], columns: Sequence[str]) -> RunDirectory:
        """Start a run in ``path``, which must not exist or be empty.

        ``config`` is the content of run.json; ``columns`` names the metrics after :data:`BASE_COLUMNS`.
        """
        path = Path(path)
        columns = BASE_COLUMNS + tuple(name for name in columns if name not in BASE_COLUMNS)
        with disk.as_user_error("the run", path):
            if (path / "run.json").exists():
                raise UserError(
                    f"{path} already holds a run: continue with `thespis resume {path}` or take another path"
                )
            if path.is_dir() and any(path.iterdir()):
                raise UserError(f"{path} is not empty: choose another directory for the run")
            (path / "checkpoints").mkdir(parents=True, exist_ok=True)
            headers = {"metrics.csv": columns, "progress.csv": PROGRESS_COLUMNS, "evaluations.jsonl": ()}
            for name, header in headers.items():
                with disk.atomic_write(path / name) as file:
                    file.write(csv_line(header) if header else b"")
        run = cls(path, config, columns)
        run.write_json("run.json", config)  # last: a directory with a run.json is complete
        return run

    @classmethod
    def open(cls, path: str | Path, trust: Iterable[str] | None = ()) -> RunDirectory:
        """Open the run in ``path``, which may name classes of the modules in ``trust`` (``None``: any).

        Of an experiment in stages, it is the last stage. Raises :class:`UserError` if there is none.
        """
        path = Path(path)
        if has_stages(path):
            path = last_stage(path)
        if not (path / "run.json").is_file():
            raise UserError(missing_run_message(path))
        config = upgrade_config(read_json(path / "run.json"))
        if config.get("format", 1) != 1:
            raise UserError(f"{path} has run format {config['format']}: install a newer Thespis")
        with disk.as_user_error("metrics.csv", path), open(path / "metrics.csv", newline="") as file:
            columns = tuple(next(csv.reader(file), ()))
        return cls(path, config, columns, trust_in(trust))

    @property
    def checkpoint_dir(self) -> Path:
        """Directory of the checkpoints."""
        return self.path / "checkpoints"

    def lock(self) -> None:
        """Lock the run for this process until it ends or :meth:`unlock`: two processes would mix their rows."""
        self._lock = lock_directory(self.path)

    def unlock(self) -> None:
        """Release the lock on the run's directory."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # -- metrics, evaluations and conversations

    def append_metrics(self, rows: Sequence[dict[str, Any]]) -> None:
        """Append rows keyed by column; missing or ``None`` values leave cells empty."""
        for row in rows:
            if unknown := [name for name in row if name not in self.columns]:
                raise ValueError(f"no column {unknown[0]!r} in metrics.csv: {', '.join(self.columns)}")
        self._append("metrics.csv", b"".join(csv_line([row.get(c) for c in self.columns]) for row in rows))

    def metrics(self) -> dict[str, np.ndarray]:
        """The columns of metrics.csv in row order: float64, ``NaN`` for empty cells."""
        return self._read_table("metrics.csv", self.columns)

    def append_progress(self, step: int, elapsed: float, steps_per_second: float) -> None:
        """Append a line of wall-clock progress: seconds since the start, and steps per second of all seeds."""
        self._append("progress.csv", csv_line([step, elapsed, steps_per_second]))

    def progress(self) -> dict[str, np.ndarray]:
        """The columns of progress.csv, float64."""
        return self._read_table("progress.csv", PROGRESS_COLUMNS)

    def append_evaluation(
        self, step: int, greedy: Sequence[Sequence[float]], sampled: Sequence[Sequence[float]] | None
    ) -> None:
        """Append one evaluation: episode returns per seed."""
        line = {"step": step, "greedy": greedy, "sampled": sampled}
        self._append("evaluations.jsonl", (json.dumps(to_jsonable(line), allow_nan=False) + "\n").encode())

    def evaluations(self) -> list[dict[str, Any]]:
        """All evaluations, in order."""
        return [json.loads(line) for line in self._read_lines("evaluations.jsonl")]

    def append_held_out(self, step: int, metrics: Mapping[str, Sequence[float]]) -> None:
        """Append the metrics of one evaluation on held-out data: a value per seed by name."""
        line = {"step": step, "metrics": metrics}
        self._append(HELD_OUT_FILE, (json.dumps(to_jsonable(line), allow_nan=False) + "\n").encode())

    def held_out(self) -> list[dict[str, Any]]:
        """All evaluations on held-out data, in order: ``step``, and ``metrics`` with a value per seed by name."""
        return [json.loads(line) for line in self._read_lines(HELD_OUT_FILE)] if self._has(HELD_OUT_FILE) else []

    def append_conversations(self, step: int, conversations: Sequence[dict[str, Any]]) -> None:
        """Append sample conversations at a step."""
        line = {"step": step, "conversations": conversations}
        text = json.dumps(to_jsonable(line), allow_nan=False, ensure_ascii=False) + "\n"
        self._append("conversations.jsonl", text.encode())

    def conversations(self) -> list[dict[str, Any]]:
        """All sample conversations, in order; none for actors without text actions."""
        name = "conversations.jsonl"
        samples = [json.loads(line) for line in self._read_lines(name)] if self._has(name) else []
        for dialogue in (dialogue for sample in samples for dialogue in sample["conversations"]):
            dialogue["turns"] = [{_OLD_TURN.get(key, key): x for key, x in turn.items()} for turn in dialogue["turns"]]
        return samples

    def rewind(self, step: int) -> None:
        """Delete every row later than ``step`` and an incomplete last line; ``-1`` deletes all rows.

        Called when resuming from a checkpoint at ``step``, so that the files continue from there.
        Later checkpoints, which must have been damaged, are renamed to ``.damaged``.
        """
        self._filter_lines("metrics.csv", lambda line: float(line.split(b",", 1)[0]) <= step)
        self._filter_lines("progress.csv", lambda line: float(line.split(b",", 1)[0]) <= step)
        self._filter_lines("evaluations.jsonl", lambda line: json.loads(line)["step"] <= step)
        for name in ("conversations.jsonl", HELD_OUT_FILE):
            if self._has(name):
                self._filter_lines(name, lambda line: json.loads(line)["step"] <= step)
        with disk.as_user_error("the checkpoints", self.path):
            for path in checkpoint.list_checkpoints(self.checkpoint_dir):
                if path.name > checkpoint.checkpoint_name(max(step, 0)) or step < 0:
                    path.rename(path.with_suffix(".damaged"))

    def write_json(self, name: str, data: Any) -> None:
        """Write ``data`` to the file ``name``, atomically."""
        text = json.dumps(to_jsonable(data), indent=1, allow_nan=False) + "\n"
        with disk.as_user_error(name, self.path), disk.atomic_write(self.path / name) as file:
            file.write(text.encode())

    def read_json(self, name: str) -> Any:
        """The content of the file ``name``; ``None`` if it does not exist."""
        return read_json(self.path / name) if (self.path / name).exists() else None

    # -- checkpoints

    def save_checkpoint(self, step: int, tree: PyTree, meta: dict[str, Any]) -> Path:
        """Save the state at ``step`` and delete all checkpoints but the latest two. Returns its path.

        Rows appended earlier are on disk before the checkpoint is.
        """
        with disk.as_user_error("the run", self.path):
            self.checkpoint_dir.mkdir(exist_ok=True)
            disk.remove_partial_files(self.checkpoint_dir)
            for name in ("metrics.csv", "progress.csv", "evaluations.jsonl"):
                disk.fsync_file(self.path / name)
        path = self.checkpoint_dir / checkpoint.checkpoint_name(step)
        checkpoint.save(path, tree, meta)
        for old in checkpoint.list_checkpoints(self.checkpoint_dir)[:-NUM_KEPT_CHECKPOINTS]:
            with contextlib.suppress(OSError):
                old.unlink()
        return path

    def keep_part(self, prefix: str) -> None:
        """Reduce the newest undamaged checkpoint to the leaves below ``prefix``, and delete all others but the best.

        The run can be evaluated as before, but not be continued.
        """
        paths = checkpoint.list_checkpoints(self.checkpoint_dir)
        while paths:
            with contextlib.suppress(checkpoint.CorruptCheckpointError):
                if checkpoint.read_meta(paths[-1]).get("part") != prefix:
                    checkpoint.keep_part(paths[-1], prefix)
                break
            paths.pop()
        for path in paths[:-1]:
            path.unlink()

    def load_checkpoint(
        self, like: PyTree, prefix: str = "", padded: str = "", ignored: str = ""
    ) -> checkpoint.LoadedCheckpoint | None:
        """The newest undamaged checkpoint, or its part below ``prefix``; ``None`` if none was ever saved.

        ``padded``, ``ignored``: see :func:`thespis.runs.checkpoint.load`. Raises
        :class:`thespis.runs.checkpoint.CheckpointError` if all are damaged or of another state.
        """
        if not checkpoint.list_checkpoints(self.checkpoint_dir):
            return None
        return checkpoint.load_latest(self.checkpoint_dir, like, prefix, padded, ignored)

    def save_best(self, step: int, score: float, tree: PyTree) -> None:
        """Save ``tree`` as the best checkpoint if its ``score`` is higher than that of the one before."""
        best = self.best
        if best is None or score > best["score"]:
            checkpoint.save(self.checkpoint_dir / BEST_CHECKPOINT, tree, {"step": step, "score": score})

    @property
    def best(self) -> dict[str, Any] | None:
        """``step`` and ``score`` of the best checkpoint: mean greedy return over seeds and evaluation episodes.

        ``None`` if there is none, or only a damaged one.
        """
        try:
            return checkpoint.read_meta(self.checkpoint_dir / BEST_CHECKPOINT)
        except checkpoint.CorruptCheckpointError:
            return None

    def find_checkpoint(self, name: str | int) -> Path | None:
        """The file of the checkpoint ``best``, or of that at a step; ``None`` for the ``latest``.

        A run that was evaluated only at its end has no other best one than the latest. Raises :class:`UserError` if
        there is no such checkpoint.
        """
        best = self.checkpoint_dir / BEST_CHECKPOINT
        steps = [checkpoint.checkpoint_step(path) for path in checkpoint.list_checkpoints(self.checkpoint_dir)]
        if name == "latest":
            return None
        if name == "best":
            if best.exists():
                return best
            if (self.path / "final.json").exists():
                return None
            raise UserError(f"{self.path} was not evaluated yet and has no best checkpoint: use the latest")
        if str(name).isdecimal() and int(name) in steps:
            return self.checkpoint_dir / checkpoint.checkpoint_name(int(name))
        have = ", ".join(["latest", *(["best"] if best.exists() else []), *map(str, steps)])
        raise UserError(f"{self.path} has no checkpoint {name}: it has {have}")

    # -- number of steps

    @property
    def saved_step(self) -> int:
        """The step of the newest checkpoint; 0 if there is none."""
        saved = checkpoint.list_checkpoints(self.checkpoint_dir)
        return checkpoint.checkpoint_step(saved[-1]) if saved else 0

    @property
    def is_reduced(self) -> bool:
        """Whether the newest checkpoint was reduced to a part of it: see :meth:`keep_part`."""
        saved = checkpoint.list_checkpoints(self.checkpoint_dir)
        try:
            return bool(saved) and "part" in checkpoint.read_meta(saved[-1])
        except checkpoint.CorruptCheckpointError:
            return False

    @property
    def has_checkpoint(self) -> bool:
        """Whether a checkpoint was saved, also before the first step."""
        return bool(checkpoint.list_checkpoints(self.checkpoint_dir))

    def extend(self, steps: int, first: int) -> None:
        """Give the run another total number of steps from step ``first`` on, and record it in run.json.

        ``budgets`` there lists all totals so far, each with the step from which it holds. The final evaluation of the
        earlier total becomes a line of evaluations.jsonl: ``final.json`` always belongs to the last step of a run.
        """
        final = self.read_json("final.json")
        if final is not None and not any(line["step"] == final["step"] for line in self.evaluations()):
            self.append_evaluation(final["step"], *(final[mode]["scores"] for mode in ("greedy", "sampled")))
        with disk.as_user_error("the run", self.path):
            for name in ("final.json", "report.html"):
                (self.path / name).unlink(missing_ok=True)
        change = {"steps": steps, "budgets": [*budgets(self.config), {"steps": steps, "from": first}]}
        self.write_json("run.json", read_json(self.path / "run.json") | change)
        self.config = self.config | change

    # -- files

    def _has(self, name: str) -> bool:
        return (self.path / name).exists()

    def _append(self, name: str, text: bytes) -> None:
        path = self.path / name
        with disk.as_user_error(name, self.path), open(path, "ab", buffering=0) as file:
            size = file.tell()
            try:
                written = file.write(text)
                while written < len(text):  # a full disk takes a part, then refuses
                    written += file.write(text[written:])
            except OSError:
                file.truncate(size)
                raise

    def _read_lines(self, name: str) -> list[bytes]:
        """All complete lines; the last one may be incomplete after a kill."""
        with disk.as_user_error(name, self.path):
            content = (self.path / name).read_bytes()
        return content.split(b"\n")[:-1]

    def _read_table(self, name: str, columns: tuple[str, ...]) -> dict[str, np.ndarray]:
        rows = list(csv.reader(line.decode() for line in self._read_lines(name)[1:]))
        cells = [[float(cell) if cell else math.nan for cell in row] for row in rows]
        table = np.array(cells, np.float64).reshape(len(cells), len(columns))
        return {column: table[:, i] for i, column in enumerate(columns)}

    def _filter_lines(self, name: str, wanted: Callable[[bytes], bool]) -> None:
        lines = self._read_lines(name)
        header = lines[: 1 if name.endswith(".csv") else 0]
        remaining = header + [line for line in lines[len(header) :] if wanted(line)]
        with disk.as_user_error(name, self.path), disk.atomic_write(self.path / name) as file:
            file.write(b"".join(line + b"\n" for line in remaining))
