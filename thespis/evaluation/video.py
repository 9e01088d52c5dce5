"""Video of an episode: rendered by the environment, by Gymnasium's environment of the same name, or as plots.

Frames are uint8 ``[height, width, 3]``. Files are gif (no extra needed) or mp4 (needs the ``video`` extra).
"""

from __future__ import annotations

import dataclasses
import io
import math
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Key, PyTree, UInt8

from thespis.core.errors import DISTRIBUTION, UserError, missing_extra
from thespis.core.records import EnvSpec, TimeStep, View
from thespis.core.spaces import Box, dict_space
from thespis.envs.host.gymnasium import GymnasiumSyncEnv
from thespis.envs.host.wrapper import HostWrapper
from thespis.runtime import disk

Frames = list[np.ndarray]


@runtime_checkable
class StateRenderer(Protocol):
    """Interface of a compiled environment that draws its states."""

    @property
    def render_fps(self) -> float:
        """Steps per second of a video."""
        ...

    def render(self, state: PyTree) -> UInt8[jax.Array, "height width 3"]:
        """The image of a state: a pure function."""
        ...


DEFAULT_FPS = 30.0  # frames per second where the environment does not give a rate
MAX_PLOT_FRAMES = 300  # frames of an animated plot, at most
GIF_COLORS = 128
MAX_COMPONENTS = 8  # observation components plotted, at most


class FrameRecorder:
    """Wrapper of a single Gymnasium environment that keeps a frame of every step; one list of frames per episode."""

    def __init__(self, env: Any):
        self._env = env
        self.observation_space, self.action_space, self.spec = env.observation_space, env.action_space, env.spec
        self.fps = float((getattr(env, "metadata", None) or {}).get("render_fps", DEFAULT_FPS))
        self.episodes: list[Frames] = []

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        """Start an episode and its list of frames."""
        result = self._env.reset(seed=seed, options=options)
        self.episodes.append([self._render_frame()])
        return result

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict]:
        """Step the environment and keep a frame."""
        result = self._env.step(action)
        self.episodes[-1].append(self._render_frame())
        return result

    def close(self) -> None:
        """Close the environment and release what it holds."""
        self._env.close()

    def played_frames(self, num_steps: int) -> Frames:
        """The frames of the first episode that was played; the one before it was a trial reset."""
        return self.episodes[1][: num_steps + 1]

    def _render_frame(self) -> np.ndarray:
        frame = np.asarray(self._env.render())
        if frame.ndim != 3 or frame.dtype != np.uint8:
            raise UserError(
                f"render() returned {frame.dtype}{list(frame.shape)}: it must return uint8 [height, width, channel]"
            )
        return frame[..., :3].copy()


class FrameObservation(eqx.Module):
    """Wrapper of a compiled environment whose observations are joined by the image of the state."""

    env: Any

    @property
    def spec(self) -> EnvSpec:
        """The spec of the environment, with observations of two parts."""
        spec = self.env.spec
        shape = jax.eval_shape(lambda: self.env.render(self.env.reset(spec.params, jax.random.key(0))[0])).shape
        space = dict_space(frame=Box(shape, 0, 255, "uint8"), observation=spec.observation_space)
        return dataclasses.replace(spec, observation_space=space)

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[PyTree, TimeStep]:
        """Start an episode and draw its first state."""
        return self._with_frame(*self.env.reset(params, key))

    def step(self, state: PyTree, action: PyTree, key: Key[Array, ""]) -> tuple[PyTree, TimeStep]:
        """One step of the environment, and the image of the state after it."""
        return self._with_frame(*self.env.step(state, action, key))

    def _with_frame(self, state: PyTree, step: TimeStep) -> tuple[PyTree, TimeStep]:
        observation = {"frame": self.env.render(state), "observation": step.observation}
        return state, dataclasses.replace(step, observation=observation)


class CompiledFrameRecorder:
    """Host environment of one compiled environment that keeps a frame of every step; one list of frames per episode."""

    num_envs = 1

    def __init__(self, environment: Any):
        self._env = HostWrapper(FrameObservation(environment), 1)
        self.spec: EnvSpec = environment.spec
        self.fps = float(environment.render_fps)
        self.episodes: list[Frames] = []

    def reset(self, seeds: list[int]) -> TimeStep:
        """Start an episode and its list of frames."""
        first, frame = _split_frame(self._env.reset(seeds))
        self.episodes.append([frame])
        return first

    def step(self, actions: PyTree) -> tuple[TimeStep, View]:
        """Step the environment and keep a frame; where the episode ends, the next one begins."""
        step, view = self._env.step(actions)
        step, frame = _split_frame(step)
        view, next_frame = _split_frame(view)
        self.episodes[-1].append(frame)
        if np.any(step.terminated) or np.any(step.truncated):
            self.episodes.append([next_frame])
        return step, view

    def get_state(self) -> dict[str, Any] | None:
        """The state of the environment, without frames."""
        return self._env.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the environment's state."""
        self._env.set_state(state)

    def close(self) -> None:
        """Do nothing: no resources are held."""

    def played_frames(self, num_steps: int) -> Frames:
        """The frames of the first episode that was played."""
        return self.episodes[0][: num_steps + 1]


def _split_frame(record: Any) -> tuple[Any, np.ndarray]:
    """A time step or view of one environment with its own observation, and the frame."""
    observation = record.observation
    return dataclasses.replace(record, observation=observation["observation"]), observation["frame"][0]


def make_recorded_env(make_env: Callable[..., Any], name: str) -> tuple[GymnasiumSyncEnv, FrameRecorder]:
    """An environment from ``make_env(render_mode="rgb_array")`` wrapped in a :class:`FrameRecorder`.

    Raises :class:`UserError` with the reason if it cannot be rendered.
    """
    _use_headless_rendering()
    try:
        recorder = FrameRecorder(make_env(render_mode="rgb_array"))
        return GymnasiumSyncEnv([recorder], name=name), recorder
    except Exception as error:  # every library fails in its own way without a display
        raise UserError(f"the environment cannot render itself ({_first_error_line(error)})") from error


def _use_headless_rendering() -> None:
    """Set the variables that MuJoCo and pygame read on import; variables set by the user stay."""
    variables = {"PYGAME_HIDE_SUPPORT_PROMPT": "1", "SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy"}
    if sys.platform.startswith("linux") and not os.environ.get("DISPLAY"):
        variables["MUJOCO_GL"] = "egl"
    for name, value in variables.items():
        os.environ.setdefault(name, value)


def _first_error_line(error: Exception) -> str:
    cause = error.__cause__ or error
    lines = str(cause).strip().splitlines()
    return lines[0] if lines else type(cause).__name__


_STATE_FROM_OBSERVATION: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "CartPole-v1": lambda o: o,
    "MountainCar-v0": lambda o: o,
    "MountainCarContinuous-v0": lambda o: o,
    "Pendulum-v1": lambda o: np.array([math.atan2(o[1], o[0]), o[2]]),
    "Acrobot-v1": lambda o: np.array([math.atan2(o[1], o[0]), math.atan2(o[3], o[2]), o[4], o[5]]),
}
"""Gymnasium's state from an observation of these environments, which are the same in gymnax and EnvPool."""


def render_with_gymnasium(name: str, observations: np.ndarray) -> Frames:
    """Frames for ``observations`` ``[time, ...]`` rendered by Gymnasium's environment ``name``.

    Raises :class:`UserError` with the reason if it cannot render them.
    """
    import gymnasium

    if name not in _STATE_FROM_OBSERVATION:
        raise UserError("this environment does not render")
    _use_headless_rendering()
    env = gymnasium.make(name, render_mode="rgb_array", disable_env_checker=True).unwrapped
    try:
        env.reset(seed=0)
        frames = []
        for observation in observations:
            env.state = _STATE_FROM_OBSERVATION[name](np.asarray(observation, np.float64))  # type: ignore[attr-defined]
            frames.append(np.asarray(env.render()).copy())
        return frames
    except gymnasium.error.DependencyNotInstalled as error:
        raise UserError(
            f'rendering by Gymnasium needs pygame, which is not installed: pip install "{DISTRIBUTION}[video]"'
        ) from error
    finally:
        env.close()


def plot_frames(title: str, curves: dict[str, np.ndarray], images: np.ndarray | None = None) -> Frames:
    """Frames of a plot of ``curves`` (each ``[time]`` or ``[time, component]``) with a line that moves through time.

    ``images`` (``[time, height, width, channel]``), if given, are shown left of the plot.
    """
    base, spans = _draw_base_plot(title, curves)
    length = len(next(iter(curves.values())))
    frames = []
    for t in np.unique(np.linspace(0, length - 1, min(length, MAX_PLOT_FRAMES)).round().astype(int)):
        frame = base.copy()
        for left, right, top, bottom in spans:
            x = round(left + (right - left) * t / max(length - 1, 1))
            frame[top:bottom, x + 2 : right] = 255 - (255 - frame[top:bottom, x + 2 : right]) // 3  # not yet
            frame[top:bottom, x : x + 2] = (217, 88, 13)
        frames.append(frame if images is None else _concat_image(images[t], frame))
    return frames


def _draw_base_plot(title: str, curves: dict[str, np.ndarray]) -> tuple[np.ndarray, list[tuple[int, int, int, int]]]:
    """The plot as an image, and the pixel positions of its axes: left, right, top, bottom."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from thespis.evaluation.figure_style import styled_figure

    with styled_figure((6.4, 1.2 + 1.1 * len(curves))) as fig:
        canvas = FigureCanvasAgg(fig)
        axes = fig.subplots(len(curves), 1, sharex=True, squeeze=False)[:, 0]
        for ax, (name, values) in zip(axes, curves.items(), strict=True):
            table = np.asarray(values, np.float64).reshape(len(values), -1)[:, :MAX_COMPONENTS]
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


def observation_frame(observation: np.ndarray, height: int) -> UInt8[np.ndarray, "height width 3"]:
    """An image observation as a frame of about ``height`` pixels; of many channels, each has a colour."""
    values = np.asarray(observation, np.float64)
    values = values if values.ndim == 3 else values[..., None]
    peak = max(float(values.max()), 1e-9)
    if values.shape[-1] not in (1, 3):
        palette = np.random.default_rng(0).uniform(80, 255, (values.shape[-1], 3))
        colours = palette[values.argmax(axis=-1)] * (values.max(axis=-1, keepdims=True) > 0)
    else:
        colours = np.broadcast_to(values / peak * 255, (*values.shape[:2], 3))
    scale = max(height // values.shape[0], 1)
    return np.kron(colours, np.ones((scale, scale, 1))).astype(np.uint8)


def _concat_image(observation: np.ndarray, frame: np.ndarray) -> np.ndarray:
    """An image observation, enlarged, left of a frame of the same height."""
    enlarged = observation_frame(observation, frame.shape[0])
    panel = np.full((frame.shape[0], enlarged.shape[1], 3), 255, np.uint8)
    panel[: enlarged.shape[0]] = enlarged[: frame.shape[0]]
    return np.concatenate([panel, frame], axis=1)


def write_video(path: Path, frames: Frames, fps: float) -> None:
    """Write ``frames`` at ``fps`` frames per second to ``path``, a gif or an mp4 by its suffix.

    Raises :class:`UserError` for another suffix, a missing library or a disk error.
    """
    if path.suffix not in (".gif", ".mp4"):
        raise UserError(f"cannot write {path.name}: a video file ends in .gif or .mp4")
    content = _encode_gif(frames, fps) if path.suffix == ".gif" else None
    with disk.as_user_error("the video", path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            _write_mp4(path, frames, fps)
            return
        with disk.atomic_write(path) as file:
            file.write(content)


def _encode_gif(frames: Frames, fps: float) -> bytes:
    from PIL import Image

    # One palette for all frames, so that they differ only where something moves, and only that is stored.
    sample = np.concatenate(frames[:: max(len(frames) // 4, 1)], axis=0)
    palette = Image.fromarray(sample).quantize(GIF_COLORS)
    images = [Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    out = io.BytesIO()
    pause = max(round(100 / fps), 2) * 10  # milliseconds; viewers slow down what is faster than 50 a second
    images[0].save(out, "GIF", save_all=True, append_images=images[1:], duration=pause, loop=0)
    return out.getvalue()


def _write_mp4(path: Path, frames: Frames, fps: float) -> None:
    try:
        import imageio.v3 as imageio
        import imageio_ffmpeg  # noqa: F401 (the encoder)
    except ImportError:
        raise missing_extra("imageio", "video") from None
    height, width = (size - size % 2 for size in frames[0].shape[:2])  # the encoder needs even sizes
    stacked = np.stack([frame[:height, :width] for frame in frames])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)  # the encoder never sees JAX
        imageio.imwrite(path, stacked, plugin="FFMPEG", fps=fps, macro_block_size=2)
