"""Frames of the user's own files in the traceback of an error: where in an environment or callback it was raised."""

from __future__ import annotations

import contextlib
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path

_PACKAGE = str(Path(__file__).parents[1])
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})

_NOTE = "in the user's code:\n"  # begins the note that carries a frame


def last_user_frame(error: BaseException) -> traceback.FrameSummary | None:
    """The deepest frame of a user's file that was called from this package; ``None`` if there is none.

    The error's own traceback comes first, then those of the errors that caused it.
    """
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        frames = traceback.extract_tb(current.__traceback__)
        ours = [i for i, frame in enumerate(frames) if _is_within(frame.filename, _PACKAGE)]
        called = frames[ours[0] :] if ours else [] if current is error else frames
        users = [frame for frame in called if not _is_library(frame.filename)]
        if users:
            return users[-1]
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return None


def user_frame_text(error: BaseException) -> str:
    """The last user frame of an error as text; that of another process if it was noted there; empty without one."""
    noted = [note for note in vars(error).get("__notes__", ()) if note.startswith(_NOTE)]
    if noted:
        return noted[0].removeprefix(_NOTE)
    frame = last_user_frame(error)
    return "" if frame is None else format_frame(frame)


@contextlib.contextmanager
def noting_user_frames() -> Iterator[None]:
    """Context that notes the user's frame in an error: its traceback does not leave the process, its notes do."""
    try:
        yield
    except Exception as error:
        if text := user_frame_text(error):
            error.add_note(_NOTE + text)
        raise


def with_frame_of(error: BaseException, source: BaseException) -> BaseException:
    """``error`` with the user's frame that was noted in ``source``."""
    if text := user_frame_text(source):
        error.add_note(_NOTE + text)
    return error


def describe_error(error: BaseException) -> str:
    """An error with its type in one line, without the notes that libraries add."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def format_frame(frame: traceback.FrameSummary) -> str:
    """A frame as in a traceback: file, line and function, then the source line."""
    text = f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}'
    return f"{text}\n    {frame.line}" if frame.line else text


def _is_library(filename: str) -> bool:
    return filename.startswith("<") or any(_is_within(filename, path) for path in (_PACKAGE, *_LIBRARIES))


def _is_within(filename: str, folder: str) -> bool:
    return filename.startswith(folder.rstrip("/\\") + ("\\" if "\\" in folder else "/"))
