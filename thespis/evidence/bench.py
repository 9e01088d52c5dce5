"""Benches: environments, budgets and tuned baselines that a family of papers shares, admitted by controls.

A bench judges papers only once it has passed, on tuning seeds, which no verdict uses:

- a positive control: a known, large effect of the same kind comes out as shown;
- a negative control: an arm and its copy with other random numbers come out as level or undecided;
- headroom: the baseline lies between 30% and 80% of the way from random play to the best known;
- symptoms: what the papers of the bench mend can be measured in the baseline.

Random play is that of the runs' own final evaluation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from thespis.core.errors import UserError
from thespis.evaluation.formatting import short_env_name
from thespis.evaluation.statistics import iqm
from thespis.evidence import record
from thespis.evidence.claims import SHOWN
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import Measure
from thespis.evidence.paired_verdict import LEVEL, SHORT_LOOKS, UNDECIDED, Look
from thespis.evidence.paper import Arm, PairedTrial, digest, upgrade_declaration
from thespis.evidence.runner import PairedOutcome, TrialRuns

FIRST_TUNING_SEED = 1_000
"""Seeds from here on are for tuning and for controls, those below for verdicts."""

HEADROOM = (0.3, 0.8)
"""Share of the way from random play to the best known within which a baseline has to lie."""

MIN_DIFFERENT = 0.9
"""Share of the scores of a negative control's arms that have to differ."""


def anchored_share(score: float, anchors: Sequence[float]) -> float:
    """The share of the way from the first anchor, random play, to the second, the best known."""
    low, high = anchors
    return (score - low) / (high - low)


@dataclasses.dataclass(frozen=True)
class Headroom:
    """How far a baseline has come: from the return of random play (0) to that of a reference (1)."""

    baseline: str
    reference: str
    """The arm that is as good as is known: another method, a longer run, or more information."""
    measure: Measure
    """A final return, whose counterpart of random play every run has."""
    random_measure: Measure | None = None
    """That counterpart, measured in the baseline's runs; ``None``: the mean return of random play."""

    def anchors(self, runs: TrialRuns) -> dict[str, tuple[float, float]]:
        """Random play's return and the reference's, for each environment."""
        best = runs.scores(self.reference, self.measure)
        return {env: (self._random_return(runs, env), iqm(best[:, i])) for i, env in enumerate(runs.envs)}

    def shares(self, runs: TrialRuns) -> dict[str, float]:
        """The share for each environment."""
        scores, anchors = runs.scores(self.baseline, self.measure), self.anchors(runs)
        return {env: anchored_share(iqm(scores[:, i]), anchors[env]) for i, env in enumerate(runs.envs)}

    def declaration(self) -> list[Any]:
        """Everything that decides the share, as JSON-able data."""
        names = [self.baseline, self.reference, self.measure.name]
        return names + ([self.random_measure.name] if self.random_measure is not None else []) + [*HEADROOM]

    def _random_return(self, runs: TrialRuns, env: str) -> float:
        """Random play's return in an environment: the mean over the baseline's seeds."""
        if self.random_measure is None:
            return _mean_random_return(runs, self.baseline, env)
        return float(np.mean(runs.scores(self.baseline, self.random_measure)[:, runs.envs.index(env)]))


@dataclasses.dataclass(frozen=True)
class Symptom:
    """What a family's papers mend, measured in the baseline: at least ``threshold``."""

    arm: str
    measure: Measure
    threshold: float
    envs: tuple[str, ...] = ()
    """Environments that must have it; by default all."""

    def sizes(self, runs: TrialRuns) -> dict[str, float]:
        """The interquartile mean of the measure for each of the environments."""
        scores = runs.scores(self.arm, self.measure)
        return {env: iqm(scores[:, runs.envs.index(env)]) for env in self.envs or runs.envs}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bench:
    """Environments, budgets and baselines of a family of papers, with the controls that admit it."""

    name: str
    version: int
    summary: str
    """What it is and what it can show, in a sentence or two."""
    envs: tuple[str, ...]
    steps: int
    num_episodes: int = 100
    arms: tuple[Arm, ...]
    """Arms of the controls, among them the tuned baseline."""
    positive: Comparison
    negative: Comparison
    headroom: Headroom
    symptoms: tuple[Symptom, ...]
    tuning: str
    """How the baselines were tuned: which values, how many trials per arm, on which seeds."""
    looks: tuple[Look, ...] = SHORT_LOOKS

    @property
    def label(self) -> str:
        """Name and version of the bench, as in trials and records."""
        return f"{self.name} {self.version}"

    @property
    def controls(self) -> PairedTrial:
        """The trial of the controls, on tuning seeds."""
        return PairedTrial(
            arms=self.arms,
            envs=self.envs,
            steps=self.steps,
            num_episodes=self.num_episodes,
            headline=self.positive,
            context=(self.negative,),
            looks=self.looks,
            first_seed=FIRST_TUNING_SEED,
        )

    def trial(self, **claims: Any) -> PairedTrial:
        """A trial on this bench: ``arms``, ``headline``, and what else differs from the bench's own values."""
        defaults = {
            "envs": self.envs,
            "steps": self.steps,
            "num_episodes": self.num_episodes,
            "looks": self.looks,
            "bench": self.label,
        }
        return PairedTrial(**(defaults | claims))

    def declaration(self) -> dict[str, Any]:
        """Everything that decides whether the bench is admitted, as JSON-able data."""
        return self.controls.declaration() | {
            "bench": self.label,
            "headroom": self.headroom.declaration(),
            "symptoms": [[s.arm, s.measure.name, s.threshold, list(s.envs)] for s in self.symptoms],
        }

    @property
    def digest(self) -> str:
        """Hash of the declaration: twelve hexadecimal digits."""
        return digest(self.declaration())


@dataclasses.dataclass(frozen=True)
class Check:
    """One condition of a bench's admission: what was measured, and whether it passed."""

    name: str
    value: str
    passed: bool


def check_bench(bench: Bench, outcome: PairedOutcome) -> list[Check]:
    """The conditions of admission, from the finished controls."""
    positive, negative = outcome.findings
    checks = [
        Check(f"positive control: {positive.sentence}", positive.verdict, positive.verdict == SHOWN),
        Check(f"negative control: {negative.sentence}", negative.verdict, negative.verdict in (LEVEL, UNDECIDED)),
    ]
    scores = [outcome.runs.scores(arm, bench.negative.measure) for arm in bench.negative.arms]
    num_pairs = min(map(len, scores))  # the copy has no more than the first look's where the positive control went on
    differs = float((scores[0][:num_pairs] != scores[1][:num_pairs]).mean())
    name = f"negative control: {bench.negative.b} has other random numbers, so that at least 90% of its scores differ"
    checks.append(Check(name, f"{differs:.0%}", differs >= MIN_DIFFERENT))
    low, high = HEADROOM
    way = f"of the way from random play to {bench.headroom.reference}"
    for env, share in bench.headroom.shares(outcome.runs).items():
        name = f"headroom: {bench.headroom.baseline} is between {low:.0%} and {high:.0%} {way} in {short_env_name(env)}"
        checks.append(Check(name, f"{share:.0%}", low <= share <= high))
    for symptom in bench.symptoms:
        for env, size in symptom.sizes(outcome.runs).items():
            what = f"{symptom.measure.name} of {symptom.arm}"
            name = f"symptom: {what} at least {symptom.threshold:g} in {short_env_name(env)}"
            checks.append(Check(name, f"{size:.3g}", size >= symptom.threshold))
    return checks


def make_admission(bench: Bench, outcome: PairedOutcome, declared_in: str | None) -> dict[str, Any]:
    """The content of ``evidence/benches/NAME.json``, which is never edited by hand."""
    checks = check_bench(bench, outcome)
    content = {
        "name": bench.name,
        "version": bench.version,
        "admitted": all(check.passed for check in checks),
        "checks": [dataclasses.asdict(check) for check in checks],
        "findings": record.finding_rows(bench.controls, outcome),
        "anchors": {"measure": bench.headroom.measure.name, "envs": bench.headroom.anchors(outcome.runs)},
    }
    content |= record.trial_content(bench.controls, outcome, declared_in)
    return content | {"declaration": bench.declaration(), "digest": bench.digest}


def admission_path(directory: Path, name: str) -> Path:
    """The file of the record of a bench's controls."""
    return directory / "benches" / f"{name}.json"


def read_admission(directory: Path, name: str) -> dict[str, Any] | None:
    """The record of a bench's controls; ``None`` if there is none. Raises :class:`UserError` for a damaged one."""
    return record.read_json(admission_path(directory, name), f"thespis bench check {name}")


def admission_status(bench: Bench, admission: dict[str, Any] | None) -> str:
    """``admitted``, ``refused``, ``outdated`` (the bench has changed since) or ``not checked``."""
    if admission is None:
        return "not checked"
    if not is_current(bench, admission):
        return "outdated"
    return "admitted" if admission["admitted"] else "refused"


def is_current(bench: Bench, admission: dict[str, Any]) -> bool:
    """Whether the controls were those of today's declaration; settings that methods got since have their defaults."""
    try:
        return digest(upgrade_declaration(admission["declaration"])) == bench.digest
    except UserError:
        return False


def rival_shares(
    headline: Comparison, paired_record: dict[str, Any], admission: dict[str, Any] | None
) -> dict[str, float]:
    """How far the rival of a headline has come, from random play (0) to the best known (1), for each environment.

    By the measure of the bench's headroom, whatever the headline compares. Empty where the trial does not have this
    measure, or environments of the bench. A lead over a rival that has hardly begun to learn says nothing.
    """
    if admission is None:
        return {}
    anchors = admission["anchors"]
    tables = [measure["arms"] for measure in paired_record["measures"] if measure["name"] == anchors["measure"]]
    return {
        env: anchored_share(result["iqm"], anchors["envs"][env])
        for arms in tables
        for env, result in arms[headline.b].items()
        if env in anchors["envs"]
    }


def _mean_random_return(runs: TrialRuns, arm: str, env: str) -> float:
    """Mean return of uniformly random actions, of the final evaluation of an arm's runs."""
    finals = [run.final_scores for run in runs.runs[arm, env]]
    scores = [final["random"]["scores"] for final in finals if final is not None and final.get("random")]
    if not scores:
        raise UserError(f"the runs of {arm} in {env} have no random play to compare with")
    return float(np.mean(np.concatenate([np.ravel(x) for x in scores])))
