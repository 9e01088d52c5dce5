"""Comparison of groups of runs: which is better, and whether there are enough seeds to say so.

Runs of the same settings on the same environment form a group; a seed's score is its mean return over the
episodes of the final evaluation. Groups that share at least six seeds are compared pair by pair, as equal seeds have
equal environments and starts: the verdict is *better* or *worse* only if the interval of the mean difference excludes 0
(:mod:`thespis.evaluation.paired`). For other groups, the interval of the probability of improvement must exclude one
half.
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
from thespis.envs.return_bounds import return_bounds
from thespis.evaluation import formatting
from thespis.evaluation.formatting import HELD_OUT_SCORES
from thespis.evaluation.paired import ERROR_RATE, PairedEstimate, min_pairs, paired_estimate, pairs_to_show
from thespis.evaluation.run_view import flatten_config
from thespis.evaluation.statistics import Interval, bootstrap_interval, iqm, probability_of_improvement
from thespis.runs.store import RunDirectory

SHARED_ENV_LIBRARIES = ("gymnax", "gymnasium", "envpool")  # environments of the same name are meant to be equal
GROUP_SETTINGS = ("env", "method", "feedback", "curriculum", "steps", "envs", "loop")
GROUP_OPTIONS = ("data", "eval_data", "policy_lag")  # options of a run that change results
MAX_NAMED_SETTINGS = 3  # settings in a group's name, at most


@dataclasses.dataclass(frozen=True)
class RunGroup:
    """Runs of the same settings: ``scores[i]`` is the mean return of seed ``seeds[i]``."""

    name: str
    env: str
    runs: tuple[str, ...]
    seeds: tuple[int, ...]
    scores: tuple[float, ...]
    bounds: Interval | None = None
    """Lowest and highest possible return, if known."""
    measure: str = ""
    """What the scores are, if not returns: a metric on held-out data."""


@dataclasses.dataclass(frozen=True)
class GroupSummary:
    """One group's scores per seed and their interquartile mean; no interval with too few seeds."""

    name: str
    scores: tuple[float, ...]
    iqm: float
    interval: Interval | None


@dataclasses.dataclass(frozen=True)
class PairComparison:
    """Comparison of ``a`` with ``b``: ``verdict`` is *better*, *worse* or *not distinguishable*, ``sentence`` in words.

    ``probability`` is that of improvement: that a seed of ``a`` scores higher than one of ``b``.
    """

    a: str
    b: str
    probability: float
    interval: Interval | None
    verdict: str
    sentence: str
    paired: PairedEstimate | None = None
    """Differences of equal seeds; ``None`` with fewer than 6 of them."""
    pairs_to_show: int | None = None
    """Pairs with which a test would find a difference as large as this one with a probability of 0.8."""

    @property
    def paired_sentence(self) -> str:
        """The differences of equal seeds in words; empty without them."""
        if self.paired is None:
            return ""
        low, high = self.paired.interval
        mean, interval = formatting.format_number(self.paired.mean), formatting.format_interval((low, high))
        text = f"mean difference of {self.paired.num_pairs} pairs of equal seeds: {mean} (95% interval {interval}"
        if self.paired.effect is not None:
            text += f"; {formatting.format_number(self.paired.effect, 2)} standard deviations"
        text += f"; p {formatting.format_number(self.paired.p_value, 2)})"
        if low <= 0.0 <= high and self.pairs_to_show is not None:
            text += f"; if it is real, about {self.pairs_to_show:,} pairs show it"
        return text


@dataclasses.dataclass(frozen=True)
class RunComparison:
    """Summaries of all groups and the comparison of each pair, in the order of the arguments."""

    groups: tuple[GroupSummary, ...]
    pairs: tuple[PairComparison, ...]

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain dictionaries and lists."""
        return json.loads(json.dumps(dataclasses.asdict(self)))


def compare_groups(
    groups: Mapping[str, ArrayLike],
    bounds: Interval | None = None,
    seeds: Mapping[str, Sequence[int]] | None = None,
) -> RunComparison:
    """Compare groups of scores ``[seed]``, which lie within ``bounds`` if given, by name.

    ``seeds``: the seed of each score; scores of equal seeds are compared pair by pair. Raises :class:`UserError` for
    fewer than two groups.
    """
    if len(groups) < 2:
        raise UserError(f"there is nothing to compare: all runs are of one kind ({', '.join(groups) or 'none'})")
    scores = {name: np.asarray(values, np.float64) for name, values in groups.items()}
    summaries = tuple(
        GroupSummary(name, tuple(values.tolist()), iqm(values), bootstrap_interval(values, bounds=bounds))
        for name, values in scores.items()
    )
    pairs = [_compare_pair(a, b, scores[a], scores[b]) for a, b in itertools.combinations(scores, 2)]
    if seeds is not None:
        by_seed = {name: dict(zip(seeds[name], values, strict=True)) for name, values in scores.items()}
        pairs = [_with_differences(pair, by_seed[pair.a], by_seed[pair.b]) for pair in pairs]
    return RunComparison(summaries, tuple(pairs))


def _with_differences(pair: PairComparison, a: dict[int, float], b: dict[int, float]) -> PairComparison:
    """The comparison with the differences of the seeds that both groups have."""
    common = [seed for seed in a if seed in b]
    if len(common) < min_pairs(ERROR_RATE):
        return pair
    left, right = np.array([(a[seed], b[seed]) for seed in common]).T
    paired = paired_estimate(left, right)
    needed = pairs_to_show(paired.mean, float((left - right).std(ddof=1)))
    side = (paired.interval[0] > 0) - (paired.interval[1] < 0)
    verdict, sentence = _verdict(pair.a, pair.b, side, f"{len(common)} pairs")
    return dataclasses.replace(pair, verdict=verdict, sentence=sentence, paired=paired, pairs_to_show=needed)


def _compare_pair(a: str, b: str, a_scores: np.ndarray, b_scores: np.ndarray) -> PairComparison:
    probability, limits = probability_of_improvement(a_scores, b_scores)
    side = 0 if limits is None else (limits[0] > 0.5) - (limits[1] < 0.5)
    counts = f"{len(a_scores)} and {len(b_scores)}"
    return PairComparison(a, b, probability, limits, *_verdict(a, b, side, counts))


def _verdict(a: str, b: str, side: int, counts: str) -> tuple[str, str]:
    """The verdict and its sentence; ``side``: 1 where ``a`` is better, -1 where it is worse, 0 where one cannot say."""
    if side == 0:
        return "not distinguishable", f"{a} and {b} are not distinguishable with this many seeds ({counts})"
    verdict = "better" if side > 0 else "worse"
    return verdict, f"{a} is {verdict} than {b}"


def group_runs(run_dirs: Sequence[str | Path], mode: str = "greedy") -> list[RunGroup]:
    """Group finished runs by settings and environment, in the order of first occurrence.

    ``mode``: ``greedy`` or ``sampled`` play. A group is named after its method and the settings in which it differs
    from other groups. Runs from data without an environment are compared by a metric on their held-out data, which must
    be the same for all. Raises :class:`UserError` for a run without a final evaluation, for runs on different
    environments, and for a seed that occurs twice with the same settings: it must not be counted twice.
    """
    runs = [RunDirectory.open(path) for path in run_dirs]
    envs = {_env_name(run.config): run for run in runs}
    if len(envs) > 1:
        (env_a, run_a), (env_b, run_b) = list(envs.items())[:2]
        raise UserError(
            f"only runs of one environment can be compared: {run_a.path} is on {env_a}, {run_b.path} on {env_b}"
        )
    members: dict[str, list[RunDirectory]] = defaultdict(list)
    for run in runs:
        members[settings_key(run.config)].append(run)
    names = _group_names([group[0].config for group in members.values()])
    metric = _held_out_metric(runs) if runs and runs[0].config["env"] is None else ""
    return [_make_group(name, group, mode, metric) for name, group in zip(names, members.values(), strict=True)]


def _held_out_metric(runs: list[RunDirectory]) -> str:
    """The metric on held-out data that says most of those that all runs have."""
    for run in runs:
        if not run.held_out():
            raise UserError(
                f"{run.path} has learned from data without an environment: train with --eval-data or --env to compare "
                "it"
            )
    files = {run.config["options"].get("eval_data"): run for run in runs}
    if len(files) > 1:
        (data_a, run_a), (data_b, run_b) = list(files.items())[:2]
        raise UserError(
            f"only runs with the same held-out data can be compared: {run_a.path} has {data_a}, {run_b.path} {data_b}"
        )
    metrics = [run.held_out()[-1]["metrics"] for run in runs]
    common = [name for name in (*HELD_OUT_SCORES, *metrics[0]) if all(name in own for own in metrics)]
    if not common:
        raise UserError("these runs have no metric on held-out data in common")
    return common[0]


def _final_scores(run: RunDirectory, mode: str, metric: str) -> list[float]:
    """The score of each seed at the end: its mean return, or a metric on held-out data, negated if small is good."""
    if metric:
        values = run.held_out()[-1]["metrics"][metric]
        return values if metric == "accuracy" else [-value for value in values]
    final = run.read_json("final.json")
    if not final or not final.get(mode):
        raise UserError(f"{run.path} has no final evaluation: finish it with `thespis resume {run.path}`")
    return [float(np.mean(returns)) for returns in final[mode]["scores"]]


def _make_group(name: str, runs: list[RunDirectory], mode: str, metric: str) -> RunGroup:
    owner: dict[int, RunDirectory] = {}
    declared: list[float] | None = None
    scores: dict[int, float] = {}
    for run in runs:
        for seed, score in zip(run.config["seeds"], _final_scores(run, mode, metric), strict=True):
            if seed in owner:
                both_paths = f"{owner[seed].path} and {run.path}"
                raise UserError(f"{both_paths} hold the same seed {seed} of {name}: name only one of them")
            owner[seed], scores[seed] = run, score
        declared = (run.read_json("final.json") or {}).get("return_bounds", declared)
    paths = tuple(str(run.path) for run in runs)
    env = runs[0].config["env"]
    if not metric:
        return RunGroup(name, env, paths, tuple(scores), tuple(scores.values()), return_bounds(env, declared))
    measure = f"held-out {metric}" + ("" if metric == "accuracy" else " times -1 (higher is better)")
    data = env or str(runs[0].config["options"].get("eval_data"))
    return RunGroup(name, data, paths, tuple(scores), tuple(scores.values()), measure=measure)


def _env_name(config: dict[str, Any]) -> str:
    suite, _, name = str(config["env"]).rpartition(":")
    return name if suite in SHARED_ENV_LIBRARIES else str(config["env"])


def _group_settings(config: dict[str, Any]) -> dict[str, Any]:
    """Settings that are equal for runs that differ only in their seeds."""
    options = config.get("options", {})
    source = {"init_from": (config.get("init_from") or {}).get("run")}  # the rest of it may have changed since
    parts = [f"{part['to']}={part['run']}:{part['from']}" for part in config.get("init_parts", [])]
    source |= {"init_parts": parts} if parts else {}
    return (
        {name: config.get(name) for name in GROUP_SETTINGS}
        | {name: options.get(name) for name in GROUP_OPTIONS}
        | source
    )


def settings_key(config: dict[str, Any]) -> str:
    """A key of the content of run.json that is equal for runs that differ only in their seeds."""
    return json.dumps(_group_settings(config) | {"method_name": config["method_name"]}, sort_keys=True)


def _group_names(configs: list[dict[str, Any]]) -> list[str]:
    """Names of groups: the method, and the first settings in which groups of that method differ."""
    settings = [dict(flatten_config(_group_settings(config))) for config in configs]
    names: list[str] = []
    for config, own_settings in zip(configs, settings, strict=True):
        method = config["method_name"]
        same_method = [s for c, s in zip(configs, settings, strict=True) if c["method_name"] == method]
        differing = [key for key in own_settings if any(s.get(key) != own_settings[key] for s in same_method)]
        named = [
            key for key in differing if key.rpartition(".")[0] not in differing
        ]  # without the fields of a part that differs itself
        parts = [
            f"{key.removeprefix('method.')}={_format_value(own_settings[key])}" for key in named[:MAX_NAMED_SETTINGS]
        ]
        name = " ".join([method, *parts])
        names.append(f"{name} ({names.count(name) + 1})" if name in names else name)
    return names


def _format_value(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
