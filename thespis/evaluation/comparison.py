"""Which kind of run is better, and whether the seeds suffice to say so.

Runs of the same settings on the same environment form a group; a seed's score is its mean return over the
episodes of the final evaluation. The verdict on a pair is *better* or *worse* only where the interval of
the probability of improvement leaves out one half.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from thespis.core.errors import UserError
from thespis.evaluation.statistics import Interval, interval, iqm, probability_of_improvement
from thespis.evaluation.view import flatten
from thespis.runs.store import RunDirectory

SAME_WORLDS = ("gymnax", "gymnasium", "envpool")  # their worlds of one name are meant to be the same
SETTINGS = ("env", "method", "feedback", "curriculum", "steps", "envs", "loop")
OPTIONS = ("data", "lag")  # those of a run's options that change results
NAMED = 3  # settings in a group's name


@dataclasses.dataclass(frozen=True)
class Group:
    """Runs of the same settings: ``scores[i]`` is the mean return of seed ``seeds[i]``."""

    name: str
    env: str
    runs: tuple[str, ...]
    seeds: tuple[int, ...]
    scores: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Summary:
    """One group's scores per seed and their interquartile mean; no interval with too few seeds."""

    name: str
    scores: tuple[float, ...]
    iqm: float
    interval: Interval | None


@dataclasses.dataclass(frozen=True)
class Pair:
    """``a`` against ``b``: ``verdict`` is *better*, *worse* or *not distinguishable*; ``sentence`` is plain."""

    a: str
    b: str
    probability: float
    interval: Interval | None
    verdict: str
    sentence: str


@dataclasses.dataclass(frozen=True)
class Comparison:
    """All groups, and each pair of them once, in the order given."""

    groups: tuple[Summary, ...]
    pairs: tuple[Pair, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain dictionaries and lists."""
        return json.loads(json.dumps(dataclasses.asdict(self)))


def compare(groups: Mapping[str, ArrayLike]) -> Comparison:
    """Compare groups of scores ``[seed]``, given by name. Raises :class:`UserError` for fewer than two."""
    if len(groups) < 2:
        raise UserError(f"there is nothing to compare: all runs are of one kind ({', '.join(groups) or 'none'})")
    scores = {name: np.asarray(values, np.float64) for name, values in groups.items()}
    summaries = tuple(
        Summary(name, tuple(values.tolist()), iqm(values), interval(values)) for name, values in scores.items()
    )
    pairs = tuple(_pair(a, b, scores[a], scores[b]) for a, b in itertools.combinations(scores, 2))
    return Comparison(summaries, pairs)


def _pair(a: str, b: str, left: np.ndarray, right: np.ndarray) -> Pair:
    probability, limits = probability_of_improvement(left, right)
    if limits is None or limits[0] <= 0.5 <= limits[1]:
        verdict = "not distinguishable"
        sentence = f"{a} and {b} are not distinguishable with this many seeds ({len(left)} and {len(right)})"
    else:
        verdict = "better" if limits[0] > 0.5 else "worse"
        sentence = f"{a} is {verdict} than {b}"
    return Pair(a, b, probability, limits, verdict, sentence)


def group_runs(run_dirs: Sequence[str | Path], mode: str = "greedy") -> list[Group]:
    """Group finished runs by their settings and environment, in the order in which they are first named.

    ``mode``: ``greedy`` or ``sampled`` play. A group is named after its method and whatever setting tells it
    from the other groups. Raises :class:`UserError` for a run without a final evaluation, for runs of
    different environments, and for one seed that occurs twice with the same settings: counted twice, it
    would pass for new evidence.
    """
    runs = [RunDirectory.open(path) for path in run_dirs]
    worlds = {_world(run.config): run for run in runs}
    if len(worlds) > 1:
        (one, first), (other, second) = list(worlds.items())[:2]
        raise UserError(
            f"only runs of one environment can be compared: {first.path} is on {one}, {second.path} on {other}"
        )
    members: dict[str, list[RunDirectory]] = defaultdict(list)
    for run in runs:
        members[kind(run.config)].append(run)
    names = _names([group[0].config for group in members.values()])
    return [_group(name, group, mode) for name, group in zip(names, members.values(), strict=True)]


def _group(name: str, runs: list[RunDirectory], mode: str) -> Group:
    owner: dict[int, RunDirectory] = {}
    scores: dict[int, float] = {}
    for run in runs:
        final = run.read_json("final.json")
        if not final or not final.get(mode):
            raise UserError(f"{run.path} has no final evaluation: finish it with `thespis resume {run.path}`")
        for seed, returns in zip(run.config["seeds"], final[mode]["scores"], strict=True):
            if seed in owner:
                both = f"{owner[seed].path} and {run.path}"
                raise UserError(f"{both} hold the same seed {seed} of {name}: name only one of them")
            owner[seed], scores[seed] = run, float(np.mean(returns))
    paths = tuple(str(run.path) for run in runs)
    return Group(name, runs[0].config["env"], paths, tuple(scores), tuple(scores.values()))


def _world(config: dict[str, Any]) -> str:
    suite, _, name = str(config["env"]).rpartition(":")
    return name if suite in SAME_WORLDS else str(config["env"])


def _settings(config: dict[str, Any]) -> dict[str, Any]:
    """What must agree for two runs to differ in their seeds alone."""
    options = config.get("options", {})
    return {name: config.get(name) for name in SETTINGS} | {name: options.get(name) for name in OPTIONS}


def kind(config: dict[str, Any]) -> str:
    """What is equal for the content of two run.json, if the runs differ in their seeds alone."""
    return json.dumps(_settings(config) | {"method_name": config["method_name"]}, sort_keys=True)


def _names(configs: list[dict[str, Any]]) -> list[str]:
    """A name per group: its method, and the first settings in which groups of that method differ."""
    settings = [dict(flatten(_settings(config))) for config in configs]
    names: list[str] = []
    for config, own in zip(configs, settings, strict=True):
        method = config["method_name"]
        same = [s for c, s in zip(configs, settings, strict=True) if c["method_name"] == method]
        differing = [key for key in own if any(s.get(key) != own[key] for s in same)]
        telling = [key for key in differing if key.rpartition(".")[0] not in differing]  # not a part's own fields
        parts = [f"{key.removeprefix('method.')}={_text(own[key])}" for key in telling[:NAMED]]
        name = " ".join([method, *parts])
        names.append(f"{name} ({names.count(name) + 1})" if name in names else name)
    return names


def _text(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
