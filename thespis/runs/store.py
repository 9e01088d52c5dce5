"""The directory of a run: plain CSV and JSON files, readable without Thespis, and the checkpoints.

========================  ===========================================================================
``run.json``              the resolved configuration; written once
``metrics.csv``           one row per (step, seed), no wall clock: equal runs give equal bytes
``progress.csv``          ``step,elapsed,steps_per_second``
``evaluations.jsonl``     one line per evaluation: ``{"step", "greedy", "sampled"}``
``conversations.jsonl``   samples of what is said: ``{"step", "conversations": [{"return", "turns"}]}``
``checkpoints/``          the latest two
``final.json`` ...        whatever :meth:`RunDirectory.write_json` is given
========================  ===========================================================================

An empty cell means that nothing was measured. Steps are environment steps per seed. In JSON a number
that is not finite becomes ``null``. Everything that the disk refuses is a :class:`UserError` of one line.
"""

from __future__ import annotations

import contextlib
import csv
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from jaxtyping import PyTree

from thespis.core import disk
from thespis.core.errors import UserError
from thespis.runs import checkpoint
from thespis.runs.paths import new_run_path as new_run_path
from thespis.runs.paths import no_run
from thespis.runs.text import csv_line, parse_json, plain

COLUMNS = ("step", "seed", "episodes", "episode_return", "episode_length")
"""The columns that every metrics.csv begins with; those of the method follow."""

PROGRESS = ("step", "elapsed", "steps_per_second")
KEPT = 2  # checkpoints


class RunDirectory:
    """One run on disk. Make one with :meth:`create` or :meth:`open`."""

    def __init__(self, path: Path, config: dict[str, Any], columns: tuple[str, ...]):
        self.path = path
        self.config = config
        self.columns = columns
        self._lock: BinaryIO | None = None

    @classmethod
    def create(cls, path: str | Path, config: dict[str, Any], columns: Sequence[str]) -> RunDirectory:
        """Start a run in ``path``, which must not exist or be empty.

        ``config`` is the content of run.json; ``columns`` names the metrics beyond :data:`COLUMNS`.
        """
        path = Path(path)
        columns = COLUMNS + tuple(name for name in columns if name not in COLUMNS)
        with disk.one_line("the run", path):
            if (path / "run.json").exists():
                raise UserError(
                    f"{path} already holds a run: continue with `thespis resume {path}` or take another path"
                )
            if path.is_dir() and any(path.iterdir()):
                raise UserError(f"{path} is not empty: choose another directory for the run")
            (path / "checkpoints").mkdir(parents=True, exist_ok=True)
            headers = {"metrics.csv": columns, "progress.csv": PROGRESS, "evaluations.jsonl": ()}
            for name, header in headers.items():
                with disk.replacing(path / name) as file:
                    file.write(csv_line(header) if header else b"")
        run = cls(path, config, columns)
        run.write_json("run.json", config)  # last: a directory with a run.json is whole
        return run

    @classmethod
    def open(cls, path: str | Path) -> RunDirectory:
        """The run in ``path``. Raises :class:`UserError` if there is none."""
        path = Path(path)
        if not (path / "run.json").is_file():
            raise UserError(no_run(path))
        config = parse_json(path / "run.json")
        if config.get("format", 1) != 1:
            raise UserError(f"{path} has run format {config['format']}: install a newer Thespis")
        with disk.one_line("metrics.csv", path), open(path / "metrics.csv", newline="") as file:
            columns = tuple(next(csv.reader(file), ()))
        return cls(path, config, columns)

    @property
    def checkpoints(self) -> Path:
        """Where the checkpoints lie."""
        return self.path / "checkpoints"

    def lock(self) -> None:
        """Claim the run for this process until it ends or :meth:`unlock`: two would mix their rows."""
        try:
            import fcntl
        except ImportError:  # no such lock outside POSIX: the user has to watch
            return
        with disk.one_line("the lock", self.path):
            file = open(self.path / ".lock", "ab")  # noqa: SIM115 (held open: the lock lives with it)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise UserError(f"{self.path} is being trained by another process: wait or stop that") from None
        self._lock = file

    def unlock(self) -> None:
        """Give the run free."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # -- what happened

    def append_metrics(self, rows: Sequence[dict[str, Any]]) -> None:
        """Add rows keyed by column; what is missing or ``None`` stays empty."""
        for row in rows:
            if unknown := [name for name in row if name not in self.columns]:
                raise ValueError(f"no column {unknown[0]!r} in metrics.csv: {', '.join(self.columns)}")
        self._append("metrics.csv", b"".join(csv_line([row.get(c) for c in self.columns]) for row in rows))

    def metrics(self) -> dict[str, np.ndarray]:
        """The columns of metrics.csv, float64, ``NaN`` where a cell is empty, in the order of the rows."""
        return self._table("metrics.csv", self.columns)

    def append_progress(self, step: int, elapsed: float, steps_per_second: float) -> None:
        """Add a line of wall-clock time: seconds since the start, and steps per second of all seeds."""
        self._append("progress.csv", csv_line([step, elapsed, steps_per_second]))

    def progress(self) -> dict[str, np.ndarray]:
        """The columns of progress.csv, float64."""
        return self._table("progress.csv", PROGRESS)

    def append_evaluation(
        self, step: int, greedy: Sequence[Sequence[float]], sampled: Sequence[Sequence[float]] | None
    ) -> None:
        """Add one evaluation: episode returns per seed."""
        line = {"step": step, "greedy": greedy, "sampled": sampled}
        self._append("evaluations.jsonl", (json.dumps(plain(line), allow_nan=False) + "\n").encode())

    def evaluations(self) -> list[dict[str, Any]]:
        """All evaluations, in order."""
        return [json.loads(line) for line in self._lines("evaluations.jsonl")]

    def append_conversations(self, step: int, conversations: Sequence[dict[str, Any]]) -> None:
        """Add samples of what was said at a time."""
        line = {"step": step, "conversations": conversations}
        text = json.dumps(plain(line), allow_nan=False, ensure_ascii=False) + "\n"
        self._append("conversations.jsonl", text.encode())

    def conversations(self) -> list[dict[str, Any]]:
        """All samples of what was said, in order; none for actors that do not speak."""
        name = "conversations.jsonl"
        return [json.loads(line) for line in self._lines(name)] if (self.path / name).exists() else []

    def rewind(self, step: int) -> None:
        """Forget every row later than ``step`` and a torn last line; ``-1`` forgets all.

        To be called on resuming from a checkpoint at ``step``, so that the files continue from there.
        Later checkpoints, which must have been damaged, are set aside under the ending ``.damaged``.
        """
        self._keep("metrics.csv", lambda line: float(line.split(b",", 1)[0]) <= step)
        self._keep("progress.csv", lambda line: float(line.split(b",", 1)[0]) <= step)
        self._keep("evaluations.jsonl", lambda line: json.loads(line)["step"] <= step)
        if (self.path / "conversations.jsonl").exists():
            self._keep("conversations.jsonl", lambda line: json.loads(line)["step"] <= step)
        with disk.one_line("the checkpoints", self.path):
            for path in checkpoint.listing(self.checkpoints):
                if path.name > checkpoint.file_name(max(step, 0)) or step < 0:
                    path.rename(path.with_suffix(".damaged"))

    def write_json(self, name: str, data: Any) -> None:
        """Write ``data`` to the file ``name``, atomically."""
        text = json.dumps(plain(data), indent=1, allow_nan=False) + "\n"
        with disk.one_line(name, self.path), disk.replacing(self.path / name) as file:
            file.write(text.encode())

    def read_json(self, name: str) -> Any:
        """The content of the file ``name``; ``None`` if there is no such file."""
        return parse_json(self.path / name) if (self.path / name).exists() else None

    # -- checkpoints

    def save_checkpoint(self, step: int, tree: PyTree, meta: dict[str, Any]) -> Path:
        """Save the state at ``step`` and delete all checkpoints but the latest two. Returns its path.

        What was appended to the run's files before is on the disk before the checkpoint is.
        """
        with disk.one_line("the run", self.path):
            self.checkpoints.mkdir(exist_ok=True)
            disk.remove_parts(self.checkpoints)
            for name in ("metrics.csv", "progress.csv", "evaluations.jsonl"):
                disk.sync_file(self.path / name)
        path = self.checkpoints / checkpoint.file_name(step)
        checkpoint.save(path, tree, meta)
        for old in checkpoint.listing(self.checkpoints)[:-KEPT]:
            with contextlib.suppress(OSError):
                old.unlink()
        return path

    def load_checkpoint(self, like: PyTree, under: str = "") -> checkpoint.Latest | None:
        """The newest undamaged checkpoint, or its part ``under`` a path; ``None`` if none was ever saved.

        Raises :class:`thespis.runs.checkpoint.CheckpointError` if all are damaged or of another state.
        """
        if not checkpoint.listing(self.checkpoints):
            return None
        return checkpoint.latest(self.checkpoints, like, under)

    # -- files

    def _append(self, name: str, text: bytes) -> None:
        path = self.path / name
        with disk.one_line(name, self.path), open(path, "ab", buffering=0) as file:
            size = file.tell()
            try:
                written = file.write(text)
                while written < len(text):  # a full disk takes a part, then refuses
                    written += file.write(text[written:])
            except OSError:
                file.truncate(size)
                raise

    def _lines(self, name: str) -> list[bytes]:
        """Whole lines; the last one may be torn by a kill."""
        with disk.one_line(name, self.path):
            content = (self.path / name).read_bytes()
        return content.split(b"\n")[:-1]

    def _table(self, name: str, columns: tuple[str, ...]) -> dict[str, np.ndarray]:
        rows = list(csv.reader(line.decode() for line in self._lines(name)[1:]))
        cells = [[float(cell) if cell else math.nan for cell in row] for row in rows]
        table = np.array(cells, np.float64).reshape(len(cells), len(columns))
        return {column: table[:, i] for i, column in enumerate(columns)}

    def _keep(self, name: str, wanted: Callable[[bytes], bool]) -> None:
        lines = self._lines(name)
        header = lines[: 1 if name.endswith(".csv") else 0]
        kept = header + [line for line in lines[len(header) :] if wanted(line)]
        with disk.one_line(name, self.path), disk.replacing(self.path / name) as file:
            file.write(b"".join(line + b"\n" for line in kept))
