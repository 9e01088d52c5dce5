"""One episode of a trained actor, whole: as a file of arrays with the critic's opinion of each step, and as a film.

An episode record is an ``.npz`` of columns ``[time]``: ``observation`` and ``action`` (parts of trees as
``observation/name``; actions in the world's units), ``reward``, ``terminated``, ``truncated``, and what the critic
says: ``value``, ``advantage``, ``spread``, ``words``, where it says it. ``about`` is a JSON text with the format's
version and where the episode comes from.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from thespis.core import disk
from thespis.core.contracts import HostEnvironment, Method, Mode
from thespis.core.errors import UserError
from thespis.core.records import Critique, EnvSpec, Transition
from thespis.core.spaces import Box, Text, to_world
from thespis.envs import registry
from thespis.envs.host.scripts import Spelt
from thespis.evaluation import conversation, film
from thespis.evaluation.play import play
from thespis.runs.config import locate

FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Recording:
    """An episode as transitions ``[time]``, the critic's opinion of it, its film, and who drew that (``how``)."""

    spec: EnvSpec
    steps: Transition
    critique: Critique
    frames: film.Frames
    rate: float
    how: str

    @property
    def talk(self) -> list[conversation.Turn]:
        """What was heard and said, in a world of texts; else nothing."""
        return conversation.turns(self.spec, self.steps, self.critique) if isinstance(self.spec.action, Text) else []

    @property
    def total(self) -> float:
        """The episode's return."""
        return float(np.sum(self.steps.reward))


def record(
    method: Method,
    states: PyTree,
    environment: Any,
    make_worlds: Callable[[int], HostEnvironment],
    seed: int,
    mode: Mode,
) -> Recording:
    """Play one episode with ``states`` (leading axis one training seed, ``seed``) and film it.

    ``environment`` is its name, or the user's own object or class; a world that cannot draw itself is drawn by
    Gymnasium's world of the same name, and if there is none, plotted.
    """
    own, reason = _own_camera(environment)
    worlds, camera = own or (make_worlds(1), None)
    try:
        steps = play(method, states, worlds, [seed], mode, keep=1, stream="record").kept[0][0]
        spec = worlds.spec
    finally:
        worlds.close()
    judge = jax.jit(lambda state, steps: method.judge(state, steps))
    critique = judge(jax.tree.map(lambda x: x[0], states), steps)
    if camera is not None:
        frames = camera.episodes[1][: len(steps.reward) + 1]  # the first one was a trial reset
        return Recording(spec, steps, critique, frames, camera.rate, "drawn by the environment")
    frames, rate, how = _drawn(spec, steps, critique, reason)
    return Recording(spec, steps, critique, frames, rate, how)


def _own_camera(environment: Any) -> tuple[Any, str]:
    """World and camera, if the world can draw itself, else why not."""
    import gymnasium

    silent = "this world draws no pictures"
    if isinstance(environment, Spelt):
        return None, silent
    entry = registry.resolve(environment)
    library, _, name = entry.name.partition(":")
    try:
        if isinstance(environment, str) and library == "gymnasium":
            make = lambda **how: gymnasium.make(name, disable_env_checker=True, **how)  # noqa: E731
            return film.filmed(make, entry.name), ""
        if entry.kind == "host" and library != "envpool":
            made = locate(environment) if isinstance(environment, str) else environment
            return film.filmed(made, entry.name), ""
    except UserError as error:
        return None, str(error)
    return None, silent


def _drawn(spec: EnvSpec, steps: Transition, critique: Critique, reason: str) -> tuple[film.Frames, float, str]:
    """Frames of an episode whose world did not draw itself, their rate, and who drew them."""
    library, _, name = spec.name.partition(":")
    if library in ("gymnax", "envpool"):
        try:
            last = jax.tree.map(lambda x: x[-1:], steps.next_view.observation)
            seen = jax.tree.map(lambda x, y: np.concatenate([x, y]), steps.view.observation, last)
            frames = film.drawn_by_twin(name, seen)
            return frames, film.RATE, f"drawn by Gymnasium's {name} from the observations"
        except UserError as error:
            reason = str(error)
    title = f"{spec.name}: return {float(np.sum(steps.reward)):.5g} in {len(steps.reward)} steps"
    if isinstance(spec.observation, Text):
        return conversation.frames(title, conversation.turns(spec, steps, critique)), 1.0, "as it was said"
    picture, curves = _curves(spec, steps, critique)
    return film.plotted(title, curves, picture), film.RATE, f"plotted, as {reason}"


def _curves(spec: EnvSpec, steps: Transition, critique: Critique) -> tuple[np.ndarray | None, dict[str, np.ndarray]]:
    """The observation if it is a picture, and what is plotted."""
    observed = steps.view.observation
    is_picture = isinstance(spec.observation, Box) and len(spec.observation.shape) in (2, 3)
    flat = [np.asarray(x, np.float64).reshape(len(steps.reward), -1) for x in jax.tree.leaves(observed)]
    acted = [np.asarray(x, np.float64).reshape(len(steps.reward), -1) for x in jax.tree.leaves(sent(spec, steps))]
    curves = {} if is_picture else {"observation": np.concatenate(flat, axis=1)}
    curves |= {"action": np.concatenate(acted, axis=1), "reward": np.asarray(steps.reward)}
    for name in ("value", "advantage"):
        if (opinion := getattr(critique, name)) is not None:
            curves[name] = np.asarray(opinion)
    return (np.asarray(observed) if is_picture else None), curves


def sent(spec: EnvSpec, steps: Transition) -> PyTree:
    """The actions as the world received them."""
    return jax.tree.map(np.asarray, to_world(spec.action, steps.action))


def write_record(path: Path, recording: Recording, about: dict[str, Any]) -> None:
    """Write an episode record. ``about``: run, step, seed, mode and whatever else JSON can hold."""
    steps, critique = recording.steps, recording.critique
    columns = _named("observation", steps.view.observation) | _named("action", sent(recording.spec, steps))
    columns |= {name: np.asarray(getattr(steps, name)) for name in ("reward", "terminated", "truncated")}
    opinions = {name: getattr(critique, name) for name in ("value", "advantage", "spread", "words")}
    columns |= {name: np.asarray(opinion) for name, opinion in opinions.items() if opinion is not None}
    told = {
        "format": FORMAT,
        "env": recording.spec.name,
        "return": recording.total,
        "length": len(steps.reward),
        "discount": None if critique.discount is None else float(critique.discount),
        "action_units": "world",
    }
    columns["about"] = np.array(json.dumps(told | about))
    with disk.one_line("the episode", path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        with disk.replacing(path) as file:
            np.savez_compressed(file, allow_pickle=False, **columns)


def read_record(path: str | Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What an episode record says of itself, and its columns. Raises :class:`UserError` for another format."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            columns = {name: stored[name] for name in stored.files}
        about = json.loads(str(columns.pop("about")))
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path} is no episode record: {error}") from error
    if about.get("format") != FORMAT:
        raise UserError(f"{path} is an episode record of format {about.get('format')!r}; this version reads {FORMAT}")
    return about, columns


def _named(name: str, tree: PyTree) -> dict[str, np.ndarray]:
    """The leaves of a tree by ``name/path``."""

    def path_of(path: Any) -> str:
        return "/".join(filter(None, (name, jax.tree_util.keystr(path, simple=True, separator="/"))))

    return {path_of(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
