"""Recording of one episode: a file of arrays with the critic's evaluation of each step, and a video.

An episode record is an ``.npz`` of columns ``[time]``: ``observation`` and ``action`` (parts of trees as
``observation/name``; actions in the environment's units), ``reward``, ``terminated``, ``truncated``, and those of the
critic's outputs that exist: ``value``, ``advantage``, ``spread``, ``words``. ``about`` is a JSON text with the version
of the format and the origin of the episode; in text environments also the turns of the dialogue. Beside it stand the
images of its states, if there are any (:mod:`thespis.evaluation.episode_frames`).
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from thespis.core.contracts import HostEnvironment, Method, Mode
from thespis.core.errors import UserError
from thespis.core.records import Critique, EnvSpec, Transition
from thespis.core.spaces import Box, unscale_action
from thespis.envs import registry
from thespis.envs.host.factory import is_preprocessed, make_registered
from thespis.envs.host.formatters import TokenizedEnv
from thespis.evaluation import conversation, video
from thespis.evaluation.episode_frames import frames_path, write_frames
from thespis.evaluation.rollout import play_episodes
from thespis.evaluation.score import judge_episode
from thespis.nets.cnn import is_channels_first
from thespis.runtime import disk

RECORD_FORMAT = 1
_IMAGE_HEIGHT = 240  # pixels of a frame made of an image observation, about


@dataclasses.dataclass(frozen=True)
class EpisodeRecording:
    """An episode as transitions ``[time]``, the critic's evaluation, and video frames; ``renderer``: their origin."""

    spec: EnvSpec
    transitions: Transition
    critique: Critique
    frames: video.Frames
    fps: float
    renderer: str

    @property
    def turns(self) -> list[conversation.Turn]:
        """The turns of the dialogue in a text environment; else an empty list."""
        return (
            conversation.episode_turns(self.spec, self.transitions, self.critique)
            if conversation.has_turns(self.spec)
            else []
        )

    @property
    def state_frames(self) -> video.Frames:
        """An image of the state at every step, and the last one if it was drawn; empty if there are no images.

        Of environments that do not render, image observations are shown.
        """
        if self.renderer.startswith("rendered"):
            return self.frames
        observations = self.transitions.view.observation
        if not _is_image(self.spec):
            return []
        return [video.observation_frame(image, _IMAGE_HEIGHT) for image in _shown_images(np.asarray(observations))]

    @property
    def episode_return(self) -> float:
        """The undiscounted sum of rewards."""
        return float(np.sum(self.transitions.reward))


def record_episode(
    method: Method,
    states: PyTree,
    env: Any,
    make_envs: Callable[[int], HostEnvironment],
    seed: int,
    mode: Mode,
    stream: str = "record",
) -> EpisodeRecording:
    """Play and render one episode with ``states`` (leading axis one training seed, ``seed``).

    Another ``stream`` of random numbers gives another episode.

    ``env`` is a name, or the user's own object or class. A compiled environment renders itself if it is a
    :class:`~thespis.evaluation.video.StateRenderer`. An environment that cannot render itself is rendered by
    Gymnasium's environment of the same name; if there is none, the episode is plotted.
    """
    render_env, reason = _make_render_env(env)
    envs, recorder = render_env or (make_envs(1), None)
    try:
        steps = play_episodes(method, states, envs, [seed], mode, num_kept=1, stream=stream).episodes[0][0]
        spec = envs.spec
    finally:
        envs.close()
    critique = judge_episode(method, states, jnp.int32(0), steps)
    if recorder is not None:
        frames = recorder.played_frames(len(steps.reward))
        return EpisodeRecording(spec, steps, critique, frames, recorder.fps, "rendered by the environment")
    frames, fps, renderer = _render_fallback(spec, steps, critique, reason)
    return EpisodeRecording(spec, steps, critique, frames, fps, renderer)


def _make_render_env(env: Any) -> tuple[Any, str]:
    """Environment and frame recorder if the environment can render itself, else ``None`` and the reason."""
    no_rendering = "this environment does not render"
    if isinstance(env, TokenizedEnv):
        return None, no_rendering
    entry = registry.resolve_env(env)
    library, _, name = entry.name.partition(":")
    if entry.kind == "compiled":
        environment = registry.make_compiled(env)
        if not isinstance(environment, video.StateRenderer):
            return None, no_rendering
        recorded = video.CompiledFrameRecorder(environment)
        return (recorded, recorded), ""
    try:
        if isinstance(env, str) and library == "gymnasium":
            if is_preprocessed(name):
                return None, "its screen is preprocessed"
            return video.make_recorded_env(functools.partial(make_registered, name), entry.name), ""
        if entry.kind == "host" and library != "envpool":
            env_factory = registry.import_env(env) if isinstance(env, str) else env
            return video.make_recorded_env(env_factory, entry.name), ""
    except UserError as error:
        return None, str(error)
    return None, no_rendering


def _render_fallback(
    spec: EnvSpec, transitions: Transition, critique: Critique, reason: str
) -> tuple[video.Frames, float, str]:
    """Frames of an episode whose environment does not render, their rate, and their origin."""
    library, _, name = spec.name.partition(":")
    if library in ("gymnax", "envpool"):
        try:
            last = jax.tree.map(lambda x: x[-1:], transitions.next_view.observation)
            observations = jax.tree.map(lambda x, y: np.concatenate([x, y]), transitions.view.observation, last)
            frames = video.render_with_gymnasium(name, observations)
            return frames, video.DEFAULT_FPS, f"rendered by Gymnasium's {name} from the observations"
        except UserError as error:
            reason = str(error)
    title = f"{spec.name}: return {float(np.sum(transitions.reward)):.5g} in {len(transitions.reward)} steps"
    if conversation.has_turns(spec):
        return (
            conversation.render_conversation(title, conversation.episode_turns(spec, transitions, critique)),
            1.0,
            "as text",
        )
    images, curves = _episode_curves(spec, transitions, critique)
    return video.plot_frames(title, curves, images), video.DEFAULT_FPS, f"plotted, because {reason}"


def _episode_curves(
    spec: EnvSpec, transitions: Transition, critique: Critique
) -> tuple[np.ndarray | None, dict[str, np.ndarray]]:
    """The observations if they are images, and the curves to plot."""
    observations = transitions.view.observation
    is_image = _is_image(spec)
    flat = [np.asarray(x, np.float64).reshape(len(transitions.reward), -1) for x in jax.tree.leaves(observations)]
    actions = [
        np.asarray(x, np.float64).reshape(len(transitions.reward), -1)
        for x in jax.tree.leaves(env_actions(spec, transitions))
    ]
    curves = {} if is_image else {"observation": np.concatenate(flat, axis=1)}
    curves |= {"action": np.concatenate(actions, axis=1), "reward": np.asarray(transitions.reward)}
    for name in ("value", "advantage"):
        if (column := getattr(critique, name)) is not None:
            curves[name] = np.asarray(column)
    return (_shown_images(np.asarray(observations)) if is_image else None), curves


def _is_image(spec: EnvSpec) -> bool:
    return isinstance(spec.observation_space, Box) and len(spec.observation_space.shape) in (2, 3)


def _shown_images(observations: np.ndarray) -> np.ndarray:
    """Images to show, channels last; of a stack of grey frames, the newest."""
    if not is_channels_first(observations.shape[1:]):
        return observations
    images = np.moveaxis(observations, 1, -1)
    return images if images.shape[-1] in (1, 3) else images[..., -1:]


def env_actions(spec: EnvSpec, transitions: Transition) -> PyTree:
    """The actions in the environment's units."""
    return jax.tree.map(np.asarray, unscale_action(spec.action_space, transitions.action))


def write_episode(path: Path, recording: EpisodeRecording, metadata: dict[str, Any]) -> None:
    """Write an episode record, and its frames beside it. ``metadata``: run, step, seed, mode and other JSON values."""
    steps, critique = recording.transitions, recording.critique
    columns = _flatten_tree("observation", steps.view.observation) | _flatten_tree(
        "action", env_actions(recording.spec, steps)
    )
    columns |= {name: np.asarray(getattr(steps, name)) for name in ("reward", "terminated", "truncated")}
    critic_columns = {name: getattr(critique, name) for name in ("value", "advantage", "spread", "words")}
    columns |= {name: np.asarray(column) for name, column in critic_columns.items() if column is not None}
    about = {
        "format": RECORD_FORMAT,
        "env": recording.spec.name,
        "return": recording.episode_return,
        "length": len(steps.reward),
        "discount": None if critique.discount is None else float(critique.discount),
        "action_units": "world",
    }
    if recording.turns:
        about["turns"] = [dataclasses.asdict(turn) for turn in recording.turns]
    columns["about"] = np.array(json.dumps(about | metadata))
    with disk.as_user_error("the episode", path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_frames(frames_path(path), recording.state_frames)
        with disk.atomic_write(path) as file:  # last: a record is complete
            np.savez_compressed(file, allow_pickle=False, **columns)


def read_episode(path: str | Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The metadata of an episode record and its columns. Raises :class:`UserError` for another format."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            columns = {name: stored[name] for name in stored.files}
        about = json.loads(str(columns.pop("about")))
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path} is not an episode record: {error}") from error
    if about.get("format") != RECORD_FORMAT:
        raise UserError(
            f"{path} is an episode record of format {about.get('format')!r}; this version reads {RECORD_FORMAT}"
        )
    return about, columns


def _flatten_tree(name: str, tree: PyTree) -> dict[str, np.ndarray]:
    """Leaves of a tree by ``name/path``."""

    def leaf_name(path: Any) -> str:
        return "/".join(filter(None, (name, jax.tree_util.keystr(path, simple=True, separator="/"))))

    return {leaf_name(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
