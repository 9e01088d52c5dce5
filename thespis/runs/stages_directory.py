"""The directory of an experiment in stages: a run's directory for each stage, and ``stages.json``.

``stages.json`` is written before the first stage begins, and again whenever one has ended: the configuration of every
stage, the parts that it starts with and from which stages they are, and the last step of every finished stage.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from thespis.core.errors import UserError
from thespis.runs.serialization import read_json, to_jsonable
from thespis.runtime import disk

STAGES_FILE = "stages.json"


def has_stages(path: str | Path) -> bool:
    """Whether ``path`` is the directory of an experiment in stages."""
    return (Path(path) / STAGES_FILE).is_file()


def read_stages_file(directory: Path) -> dict[str, Any]:
    """The content of stages.json. Raises :class:`UserError` if it is damaged or of a newer version."""
    content = read_json(directory / STAGES_FILE)
    if content.get("format") != 1:
        raise UserError(f"{directory} has stages of format {content.get('format')}: install a newer Thespis")
    return content


def write_stages_file(directory: Path, content: dict[str, Any]) -> None:
    """Write stages.json, atomically."""
    text = json.dumps(to_jsonable(content), indent=1, allow_nan=False) + "\n"
    with disk.as_user_error(STAGES_FILE, directory), disk.atomic_write(directory / STAGES_FILE) as file:
        file.write(text.encode())


def last_stage(directory: Path) -> Path:
    """The run of the last stage. Raises :class:`UserError`, naming the stages so far, if it has not begun."""
    names = [stage["name"] for stage in read_stages_file(directory)["stages"]]
    last = directory / names[-1]
    if (last / "run.json").is_file():
        return last
    begun = [str(directory / name) for name in names if (directory / name / "run.json").is_file()]
    others = f", or name a stage that has begun: {', '.join(begun)}" if begun else ""
    raise UserError(f"the last stage of {directory}, {names[-1]}, has not begun: thespis resume {directory}{others}")
