"""Questions for a person: plays episodes of a run, cuts them into segments, and pairs these."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.records import EnvSpec
from thespis.core.spaces import Text
from thespis.data.comparison_files import (
    LABELS_FILE,
    RESPONSES_FILE,
    LabelFile,
    comparison_directories,
    pad_axis,
    read_queries,
    write_queries,
)
from thespis.data.transitions import flatten_columns
from thespis.evaluation.baseline import RandomPolicy
from thespis.evaluation.episode_recording import EpisodeRecording, write_episode
from thespis.evaluation.run import Run
from thespis.feedback.preference_queries import candidate_pairs
from thespis.runtime import disk
from thespis.viewer.questions import read_responses

MAX_SEGMENTS = 400
"""Segments that pairs are made of, at most: a sample of those that were played."""


@dataclasses.dataclass(frozen=True)
class SegmentSettings:
    """Which questions are asked about a run.

    ``num_pairs`` comparisons of segments of ``length`` steps, cut from ``num_episodes`` sampled episodes of the run's
    training seeds in turn, and ``num_random`` of uniformly random actions. ``seed`` draws the pairs.
    """

    num_pairs: int = 100
    length: int = 25
    num_episodes: int = 8
    num_random: int = 2
    seed: int = 0


def open_questions(directory: Path, step: int) -> Path | None:
    """The newest directory of comparisons of a run if it has open questions or is of this ``step``; else ``None``."""
    try:
        newest = comparison_directories(directory)[-1]
    except UserError:
        return None
    about, _ = read_queries(newest)
    is_open = LabelFile(newest, len(about["pairs"])).next_query is not None
    return newest if is_open or about["step"] == step else None


def check_comparable(spec: EnvSpec) -> None:
    """Raise ``UserError`` for a multi-agent or text environment."""
    if spec.groups or isinstance(spec.action_space, Text):
        raise UserError(
            "segments are compared in environments with one agent that acts without words: for responses of a language "
            "model give a file of them (thespis label FILE.jsonl)"
        )


def ask_about_run(run: Run, settings: SegmentSettings, log: Callable[[str], None]) -> Path:
    """Play, record and pair segments of a run's episodes; return the new directory of comparisons.

    Raises:
        UserError: in multi-agent and text environments, and if there are too few segments for so many pairs.
    """
    check_comparable(run.spec)
    directory = run.path / "labels" / f"step_{run.step:012d}"
    if directory.exists():  # questions that were never written: the command was interrupted
        shutil.rmtree(directory)
    segments: list[tuple[dict[str, Any], dict[str, np.ndarray]]] = []
    for name, recording, seed, mode in _play(run, settings):
        write_episode(directory / "episodes" / f"{name}.npz", recording, run.recording_metadata(seed, mode))
        segments += _cut(name, recording, settings.length)
        log(f"{name}: return {recording.episode_return:.6g} in {len(recording.transitions.reward)} steps")
    rng = np.random.default_rng(settings.seed)
    segments = [segments[i] for i in rng.permutation(len(segments))[:MAX_SEGMENTS]]
    if settings.num_pairs > len(segments) * (len(segments) - 1) // 2:
        raise UserError(
            f"{len(segments)} segments do not make {settings.num_pairs} pairs: raise --episodes or lower --segment"
        )
    pairs = np.asarray(candidate_pairs(len(segments), settings.num_pairs, jax.random.key(settings.seed)))
    columns = {
        name: np.stack([np.stack([segments[i][1][name] for i in pair]) for pair in pairs]) for name in segments[0][1]
    }
    about = {"env": run.spec.name, "run": str(run.path), "step": run.step, "segment_length": settings.length}
    write_queries(directory, columns, about | {"pairs": [[segments[i][0] for i in pair] for pair in pairs]})
    return directory


def _play(run: Run, settings: SegmentSettings) -> Iterator[tuple[str, EpisodeRecording, int, str]]:
    """Name, recording, seed and mode of every episode."""
    seeds = run.config["seeds"]
    for i in range(settings.num_episodes):
        seed = seeds[i % len(seeds)]
        recording = run.record(seed, greedy=False, episode=i + 1)
        yield f"seed_{seed}_sampled_{i}", recording, seed, "sampled"
    policy: Any = RandomPolicy(run.spec.action_space, run.spec.groups)
    for i in range(settings.num_random):
        recording = run.record_with(policy, np.arange(1), Mode.SAMPLE, f"record/random/{i}")
        yield f"random_{i}", recording, seeds[0], "random"


def _cut(name: str, recording: EpisodeRecording, length: int) -> list[tuple[dict[str, Any], dict[str, np.ndarray]]]:
    """The segments of an episode: where each is from, and its columns ``[time]``; a short rest is left out."""
    steps, spec = recording.transitions, recording.spec
    columns = flatten_columns(spec.observation_space, "observation", steps.view.observation)
    columns |= flatten_columns(spec.action_space, "action", steps.action)
    total, segments = len(steps.reward), []
    for start in range(0, max(total - length, 0) + 1, length):
        count = min(length, total - start)
        place = {"episode": name, "start": start, "length": count}
        segment = {column: pad_axis(values[start : start + length], 0, length) for column, values in columns.items()}
        segments.append((place, segment | {"mask": np.arange(length) < count}))
    return segments


def ask_about_responses(path: Path) -> Path:
    """The directory of comparisons of a JSON-lines file of responses, ``FILE.labels``: made, or continued.

    Raises ``UserError`` if the file is not as described, or has other responses than those already asked about.
    """
    rows, directory = read_responses(path), path.with_name(f"{path.stem}.labels")
    copy = directory / RESPONSES_FILE
    if copy.exists() and (directory / LABELS_FILE).exists() and read_responses(copy) != rows:
        raise UserError(f"{path} has changed since its responses were compared: give it another name")
    with disk.as_user_error("the questions", directory):
        directory.mkdir(parents=True, exist_ok=True)
        with disk.atomic_write(copy) as file:
            file.write(path.read_bytes())
    return directory
