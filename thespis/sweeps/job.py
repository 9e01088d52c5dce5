"""What happens in the process of a job: an ordinary run, at home or, where home is not to be seen, for a parcel."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import traceback
from pathlib import Path
from typing import NamedTuple

from thespis.core.errors import UserError
from thespis.runs.events import Event
from thespis.runs.text import parse_json
from thespis.sweeps.parcel import Parcel, pack
from thespis.sweeps.plan import SUMMARY, Job


class Home(NamedTuple):
    """Where the runs of a sweep are wanted: an absolute path, and the mark that tells this directory from others of
    its name on other machines. ``cwd`` is where the user is."""

    path: str
    mark: str
    cwd: str


class Ended(NamedTuple):
    """How a job ended: ``finished``, ``interrupted``, ``diverged``, ``failed`` by something the user can mend, ``lost``
    with its process again and again, or ``broken`` by what nobody foresaw. ``parcel`` is empty for a run at home."""

    reason: str
    message: str = ""
    warnings: tuple[str, ...] = ()
    parcel: Parcel = {}  # noqa: RUF012 (never written to)


def work(job: Job, home: Home) -> Ended:
    """Train the run of ``job``, which is written, or go on with it where it was stopped.

    Nothing is raised but an interruption.
    """
    with contextlib.suppress(OSError):  # relative paths, where the disk is shared
        os.chdir(home.cwd)
    here = is_home(home)
    root = Path(home.path) if here else Path(tempfile.gettempdir()) / f"thespis-{home.mark}"
    ended = _trained(job, root / job.name)
    if here or ended.reason == "interrupted":  # a later job on this machine may go on with it
        return ended
    parcel = pack(root / job.name) if ended.reason == "finished" else {}
    shutil.rmtree(root / job.name, ignore_errors=True)
    with contextlib.suppress(OSError):
        root.rmdir()
    return ended._replace(parcel=parcel)


def is_home(home: Home) -> bool:
    """Whether the sweep's own directory is to be seen from here: this is its machine, or the disk is shared."""
    summary = Path(home.path) / SUMMARY
    try:
        return summary.is_file() and parse_json(summary).get("id") == home.mark
    except UserError:
        return False


def _trained(job: Job, path: Path) -> Ended:
    from thespis import api
    from thespis.loops.driver import Diverged

    warnings: list[str] = []
    reasons: list[str] = []

    def hear(event: Event) -> None:
        if event.kind == "warning":
            warnings.append(event.data["message"])
        elif event.kind == "done":
            reasons.append(event.data["reason"])

    try:
        asked = job.read().asked
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (path / "run.json").is_file():
            api.resume(path, asked["env"], callbacks=[hear])
        else:
            shutil.rmtree(path, ignore_errors=True)  # begun to be made by a process that was killed
            api.train(**asked, out=path, callbacks=[hear])
    except Diverged as error:
        return Ended("diverged", str(error), tuple(warnings))
    except UserError as error:
        return Ended("failed", str(error), tuple(warnings))
    except Exception:
        return Ended("broken", traceback.format_exc(), tuple(warnings))
    return Ended(reasons[-1], "", tuple(warnings))
