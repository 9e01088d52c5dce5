"""Where runs lie: a free path for a new one, and what to say when a path holds none."""

from __future__ import annotations

import itertools
import time
from pathlib import Path


def new_run_path(method: str, env: str, root: str | Path = "runs") -> Path:
    """A path that is not taken: ``runs/<method>-<env>-<date and time>``, with a suffix if need be."""
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in f"{method}-{env}")
    first = Path(root) / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    others = (first.with_name(f"{first.name}-{i}") for i in itertools.count(2))
    return next(path for path in itertools.chain([first], others) if not path.exists())


def no_run(path: Path) -> str:
    """What is wrong with ``path``, and the nearest thing to do."""
    if not path.exists():
        near = sorted(path.parent.glob("*/run.json")) if path.parent.is_dir() else []
        hint = f"the latest run there is {near[-1].parent}" if near else "start one with `thespis train`"
        return f"{path} does not exist: {hint}"
    inside = sorted(path.glob("*/run.json")) if path.is_dir() else []
    above = [parent for parent in path.resolve().parents if (parent / "run.json").is_file()]
    if inside:
        return f"{path} is not a run but holds {len(inside)}: name one, for instance {inside[-1].parent}"
    if above:
        return f"{path} is not a run but lies in one: name {above[0]}"
    return f"{path} is not a run (it has no run.json): start one with `thespis train`"
