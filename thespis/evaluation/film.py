"""Pictures of an episode: drawn by the world itself, by Gymnasium's world of the same name, or as moving plots.

Frames are uint8 ``[height, width, 3]``. Files are gif (needs nothing more) or mp4 (needs the ``video`` extra).
"""

from __future__ import annotations

import io
import math
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from thespis.core import disk
from thespis.core.errors import UserError, missing_extra
from thespis.envs.host.gymnasium import Gymnasium

Frames = list[np.ndarray]

RATE = 30.0  # frames per second where the world does not say
PLOTTED = 300  # frames of a moving plot, at most
COLOURS = 128  # of a gif
LINES = 8  # observation components drawn, at most


class Camera:
    """A single Gymnasium environment that keeps a picture of every step; one list of frames per episode."""

    def __init__(self, env: Any):
        self._env = env
        self.observation_space, self.action_space, self.spec = env.observation_space, env.action_space, env.spec
        self.rate = float((getattr(env, "metadata", None) or {}).get("render_fps", RATE))
        self.episodes: list[Frames] = []

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        """Start an episode, and its film."""
        answer = self._env.reset(seed=seed, options=options)
        self.episodes.append([self._shot()])
        return answer

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict]:
        """One step, and its picture."""
        answer = self._env.step(action)
        self.episodes[-1].append(self._shot())
        return answer

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _shot(self) -> np.ndarray:
        frame = np.asarray(self._env.render())
        if frame.ndim != 3 or frame.dtype != np.uint8:
            raise UserError(f"render() gave {frame.dtype}{list(frame.shape)} where a picture was expected")
        return frame[..., :3].copy()


def filmed(make: Callable[..., Any], name: str) -> tuple[Gymnasium, Camera]:
    """One world of ``make(render_mode="rgb_array")`` with a camera in it.

    Raises :class:`UserError` saying why it cannot be filmed.
    """
    _draw_without_screen()
    try:
        camera = Camera(make(render_mode="rgb_array"))
        return Gymnasium([camera], name=name), camera
    except Exception as error:  # every library has its own ways of having no screen
        raise UserError(f"its own pictures are not to be had ({_first_line(error)})") from error


def _draw_without_screen() -> None:
    """Read by MuJoCo and pygame when they are first imported; what the user has set stays."""
    wanted = {"PYGAME_HIDE_SUPPORT_PROMPT": "1", "SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy"}
    if sys.platform.startswith("linux") and not os.environ.get("DISPLAY"):
        wanted["MUJOCO_GL"] = "egl"
    for name, value in wanted.items():
        os.environ.setdefault(name, value)


def _first_line(error: Exception) -> str:
    cause = error.__cause__ or error
    lines = str(cause).strip().splitlines()
    return lines[0] if lines else type(cause).__name__


_TWINS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "CartPole-v1": lambda o: o,
    "MountainCar-v0": lambda o: o,
    "MountainCarContinuous-v0": lambda o: o,
    "Pendulum-v1": lambda o: np.array([math.atan2(o[1], o[0]), o[2]]),
    "Acrobot-v1": lambda o: np.array([math.atan2(o[1], o[0]), math.atan2(o[3], o[2]), o[4], o[5]]),
}
"""Gymnasium's state for an observation of these worlds, which are the same in gymnax and EnvPool."""


def drawn_by_twin(name: str, observations: np.ndarray) -> Frames:
    """Frames for ``observations`` ``[time, ...]`` drawn by Gymnasium's ``name``.

    Raises :class:`UserError` saying why it cannot draw them.
    """
    import gymnasium

    if name not in _TWINS:
        raise UserError("this world draws no pictures")
    _draw_without_screen()
    env = gymnasium.make(name, render_mode="rgb_array", disable_env_checker=True).unwrapped
    try:
        env.reset(seed=0)
        frames = []
        for observation in observations:
            env.state = _TWINS[name](np.asarray(observation, np.float64))  # type: ignore[attr-defined]
            frames.append(np.asarray(env.render()).copy())
        return frames
    except gymnasium.error.DependencyNotInstalled as error:
        raise UserError("Gymnasium's pictures need pygame, which is not installed: pip install pygame-ce") from error
    finally:
        env.close()


def plotted(title: str, curves: dict[str, np.ndarray], picture: np.ndarray | None = None) -> Frames:
    """A plot of ``curves`` (each ``[time]`` or ``[time, component]``) with a line that moves through time.

    ``picture`` (``[time, height, width, channel]``) is shown beside it, if the observation is one.
    """
    base, spans = _canvas(title, curves)
    length = len(next(iter(curves.values())))
    frames = []
    for t in np.unique(np.linspace(0, length - 1, min(length, PLOTTED)).round().astype(int)):
        frame = base.copy()
        for left, right, top, bottom in spans:
            x = round(left + (right - left) * t / max(length - 1, 1))
            frame[top:bottom, x + 2 : right] = 255 - (255 - frame[top:bottom, x + 2 : right]) // 3  # not yet
            frame[top:bottom, x : x + 2] = (217, 88, 13)
        frames.append(frame if picture is None else _beside(picture[t], frame))
    return frames


def _canvas(title: str, curves: dict[str, np.ndarray]) -> tuple[np.ndarray, list[tuple[int, int, int, int]]]:
    """The whole plot once, and where its axes lie in pixels: left, right, top, bottom."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from thespis.evaluation.style import figure

    with figure((6.4, 1.2 + 1.1 * len(curves))) as drawing:
        canvas = FigureCanvasAgg(drawing)
        axes = drawing.subplots(len(curves), 1, sharex=True, squeeze=False)[:, 0]
        for ax, (name, values) in zip(axes, curves.items(), strict=True):
            table = np.asarray(values, np.float64).reshape(len(values), -1)[:, :LINES]
            ax.plot(table, lw=1.0)
            ax.set_ylabel(name)
            ax.set_xlim(0, max(len(values) - 1, 1))
        axes[0].set_title(title, loc="left")
        axes[-1].set_xlabel("step")
        canvas.draw()
        image = np.asarray(canvas.buffer_rgba())[..., :3].copy()
        boxes = [ax.get_window_extent() for ax in axes]
    height = image.shape[0]
    spans = [(round(b.x0), round(b.x1), height - round(b.y1), height - round(b.y0)) for b in boxes]
    return image, spans


def _beside(observation: np.ndarray, frame: np.ndarray) -> np.ndarray:
    """An image observation, enlarged, left of a frame of the same height. Many channels become colours."""
    values = np.asarray(observation, np.float64)
    values = values if values.ndim == 3 else values[..., None]
    peak = max(float(values.max()), 1e-9)
    if values.shape[-1] not in (1, 3):
        palette = np.random.default_rng(0).uniform(80, 255, (values.shape[-1], 3))
        colours = palette[values.argmax(axis=-1)] * (values.max(axis=-1, keepdims=True) > 0)
    else:
        colours = np.broadcast_to(values / peak * 255, (*values.shape[:2], 3))
    scale = max(frame.shape[0] // values.shape[0], 1)
    enlarged = np.kron(colours, np.ones((scale, scale, 1))).astype(np.uint8)
    panel = np.full((frame.shape[0], enlarged.shape[1], 3), 255, np.uint8)
    panel[: enlarged.shape[0]] = enlarged[: frame.shape[0]]
    return np.concatenate([panel, frame], axis=1)


def write(path: Path, frames: Frames, rate: float) -> None:
    """Write ``frames`` at ``rate`` per second to ``path``, a gif or an mp4 by its ending.

    Raises :class:`UserError` for another ending, a missing library or a disk that refuses.
    """
    if path.suffix not in (".gif", ".mp4"):
        raise UserError(f"cannot write {path.name}: a film ends in .gif or .mp4")
    content = _gif(frames, rate) if path.suffix == ".gif" else None
    with disk.one_line("the film", path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            _mp4(path, frames, rate)
            return
        with disk.replacing(path) as file:
            file.write(content)


def _gif(frames: Frames, rate: float) -> bytes:
    from PIL import Image

    # One palette for all, so that frames differ only where something moves, and only that is stored.
    some = np.concatenate(frames[:: max(len(frames) // 4, 1)], axis=0)
    palette = Image.fromarray(some).quantize(COLOURS)
    images = [Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    out = io.BytesIO()
    pause = max(round(100 / rate), 2) * 10  # milliseconds; viewers slow down what is faster than 50 a second
    images[0].save(out, "GIF", save_all=True, append_images=images[1:], duration=pause, loop=0)
    return out.getvalue()


def _mp4(path: Path, frames: Frames, rate: float) -> None:
    try:
        import imageio.v3 as imageio
        import imageio_ffmpeg  # noqa: F401 (the encoder)
    except ImportError:
        raise missing_extra("imageio", "video") from None
    height, width = (size - size % 2 for size in frames[0].shape[:2])  # the encoder wants even sizes
    stacked = np.stack([frame[:height, :width] for frame in frames])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)  # the encoder never sees JAX
        imageio.imwrite(path, stacked, plugin="FFMPEG", fps=rate, macro_block_size=2)
