"""Frames of a recorded episode: a ZIP file of WebP images, of which any can be read without the others.

``000000.webp`` is the state that the first observation shows, and so on; where the environment draws itself there is
one image more than there are steps, the last state. Small images are stored without loss, others at high quality.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np

from thespis.core.errors import UserError
from thespis.runtime import disk

SUFFIX = ".frames.zip"
_LOSSLESS_PIXELS = 128 * 128
_QUALITY = 80


def frames_path(record: Path) -> Path:
    """Where the frames of an episode record are."""
    return record.with_name(record.name.removesuffix(".npz") + SUFFIX)


def write_frames(path: Path, frames: list[np.ndarray]) -> None:
    """Write frames uint8 ``[height, width, 3]``; without frames, remove those of an earlier episode."""
    if not frames:
        path.unlink(missing_ok=True)
        return
    with disk.atomic_write(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for i, frame in enumerate(frames):
            archive.writestr(_entry_name(i), _encode(frame))


def _entry_name(index: int) -> str:
    return f"{index:06d}.webp"


def _encode(frame: np.ndarray) -> bytes:
    from PIL import Image

    is_small = frame.shape[0] * frame.shape[1] <= _LOSSLESS_PIXELS
    out = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(frame)).save(out, "WEBP", lossless=is_small, quality=_QUALITY, method=0)
    return out.getvalue()


def count_frames(path: Path) -> int:
    """The number of frames in a file; 0 if there is none. Raises ``UserError`` for a damaged file."""
    if not path.is_file():
        return 0
    try:
        with zipfile.ZipFile(path) as archive:
            return len(archive.namelist())
    except (OSError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is no file of frames: {error}") from error


def read_frame(path: Path, index: int) -> bytes:
    """A frame as WebP. Raises ``UserError`` if there is none of that index."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.read(_entry_name(index))
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} has no frame {index}: {error}") from error
