"""The film of a trained policy in a report: one greedy episode as an animated image of bounded size.

A run has at most one film: ``film.webp`` and ``film.json`` in its directory, which say what is shown; or ``film.json``
alone, which says why there is none. Animated WebP is shown by all browsers, is a fraction of a GIF, and needs no extra
library.
"""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from thespis.evaluation.video import Frames
from thespis.runs.serialization import read_json
from thespis.runtime import disk

FILM_FILE, INFO_FILE = "film.webp", "film.json"
MAX_BYTES = 1_000_000
"""Bytes of a film, at most: base64 in the page adds a third."""
MAX_FRAMES, MAX_WIDTH, MIN_FPS, MAX_FPS = 250, 480, 10.0, 30.0
_LEAST_FRAMES, _LEAST_WIDTH = 20, 32  # of a film that does not fit otherwise: some kilobytes


@dataclasses.dataclass(frozen=True)
class Film:
    """A film, or the ``reason`` why there is none. ``speed``: how many times faster than the environment it plays."""

    step: int
    content: bytes = b""
    seed: int = 0
    episode_return: float = 0.0
    length: int = 0
    renderer: str = ""
    speed: float = 1.0
    reason: str = ""

    @property
    def caption(self) -> str:
        """What the film shows, in one line; the reason where there is none."""
        if not self.content:
            return f"No film: {self.reason}."
        speed = f", {self.speed:.3g} times as fast" if self.speed > 1.05 else ""
        return (
            f"Greedy play of seed {self.seed} after {self.step:,} steps: return {self.episode_return:.6g} in "
            f"{self.length:,} steps ({self.renderer}{speed})."
        )


def make_film(frames: Frames, fps: float, **about: Any) -> Film:
    """Encode ``frames`` of ``fps`` frames per second; ``about``: the other fields of :class:`Film`.

    Frames are left out, and then made smaller, until the film fits into :data:`MAX_BYTES`.
    """
    shown, width = MAX_FRAMES, min(MAX_WIDTH, frames[0].shape[1])
    while True:
        stride = max(-(-len(frames) // shown), round(fps / MAX_FPS), 1)
        chosen = frames[::stride] if (len(frames) - 1) % stride == 0 else [*frames[::stride], frames[-1]]
        shown_fps = max(fps / stride, MIN_FPS)
        content = _encode(chosen, shown_fps, width)
        if len(content) <= MAX_BYTES or (shown, width) == (_LEAST_FRAMES, _LEAST_WIDTH):
            return Film(content=content, speed=shown_fps * stride / fps, **about)
        shown, width = max(shown * 3 // 4, _LEAST_FRAMES), max(width * 3 // 4, _LEAST_WIDTH)


def _encode(frames: Frames, fps: float, width: int) -> bytes:
    from PIL import Image

    images = [Image.fromarray(np.ascontiguousarray(frame)) for frame in frames]
    if images[0].width > width:
        size = width, max(round(images[0].height * width / images[0].width), 1)
        images = [image.resize(size, Image.Resampling.LANCZOS) for image in images]
    pauses = [round(1000 / fps)] * (len(images) - 1) + [1000]  # the last frame stays for a second
    out = io.BytesIO()
    images[0].save(out, "WEBP", save_all=True, append_images=images[1:], duration=pauses, loop=0, quality=70, method=2)
    return out.getvalue()


def write_film(directory: Path, film: Film) -> None:
    """Write the film of the run in ``directory``, in place of an earlier one."""
    info = {name: value for name, value in dataclasses.asdict(film).items() if name != "content"}
    with disk.as_user_error("the film", directory):
        (directory / INFO_FILE).unlink(missing_ok=True)
        if film.content:
            with disk.atomic_write(directory / FILM_FILE) as file:
                file.write(film.content)
        else:
            (directory / FILM_FILE).unlink(missing_ok=True)
        with disk.atomic_write(directory / INFO_FILE) as file:  # last: it says that the film is complete
            file.write((json.dumps(info, indent=1) + "\n").encode())


def read_film(directory: Path) -> Film | None:
    """The film of the run in ``directory``, or the reason why there is none; ``None`` if none was ever recorded."""
    if not (directory / INFO_FILE).is_file():
        return None
    content = (directory / FILM_FILE).read_bytes() if (directory / FILM_FILE).is_file() else b""
    return Film(content=content, **read_json(directory / INFO_FILE))
