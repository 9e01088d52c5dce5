"""Declarations of papers and their trials: arms to train, measures, and the inequalities that would show the claim.

A declaration holds everything that decides a verdict and is committed before its evidence. The rule for seeds is
the same for all papers: ``seeds_per_look`` seeds of every arm are trained, all claims are evaluated, and another batch
is added until every claim is decided or ``max_looks`` batches are spent. Each look tests at level
``ERROR_RATE / max_looks`` (Bonferroni), so that a claim whose arms do not differ is decided, either way, with a
probability of at most ``ERROR_RATE``.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from thespis.core import renames
from thespis.core.contracts import Method
from thespis.core.errors import UserError
from thespis.core.records import Citation
from thespis.evaluation.paired import ERROR_RATE
from thespis.evidence.claims import Claim
from thespis.feedback.registry import FEEDBACKS
from thespis.runs.config import from_config, to_config


@dataclasses.dataclass(frozen=True)
class Arm:
    """One arm of a trial: a configured method, and all other options that differ from the defaults."""

    name: str
    method: Method
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Further arguments of :func:`thespis.train`: ``envs``, ``policy_lag``, ``feedback`` ..."""
    env: str | Mapping[str, str] = ""
    """Environment of the arm instead of the trial's, or a mapping from the trial's environments: for instance the same
    task with other observations."""
    steps: int = 0
    """Steps instead of the trial's (0: those of the trial), since an arm that learns from a dataset counts updates."""

    def __post_init__(self):
        """Raise ``ValueError`` for a name that cannot be part of a directory name."""
        if not self.name or set(self.name) & set("/\\:"):
            raise ValueError(f"an arm's name must be usable in a directory name: {self.name!r}")

    def env_for(self, env: str) -> str:
        """The arm's environment where the trial's is ``env``."""
        return (self.env if isinstance(self.env, str) else self.env[env]) or env


@dataclasses.dataclass(frozen=True)
class Trial:
    """A comparison of arms. Scores are per training seed, on every environment."""

    arms: tuple[Arm, ...]
    envs: tuple[str, ...]
    steps: int
    """Environment steps per seed."""
    claims: tuple[Claim, ...]
    """Claims that together make up the paper's claim."""
    seeds_per_look: int = 5
    """Seeds of every arm per batch."""
    max_looks: int = 2
    """Maximum number of batches."""
    num_episodes: int = 20
    """Episodes per seed of the final evaluation."""
    sequential_seeds: bool = False
    """Train seeds one after the other instead of in parallel, so that each has its own training time."""

    def __post_init__(self):
        """Raise ``ValueError`` for claims on unknown arms, arms of equal names, or missing claims or environments."""
        names = [arm.name for arm in self.arms]
        unknown = {name for claim in self.claims for name in claim.arms} - set(names)
        if unknown or len(set(names)) < len(names) or not self.claims or not self.envs:
            raise ValueError(
                f"a trial needs arms with different names, an environment, and claims on these arms; unknown: {unknown}"
            )

    @property
    def confidence_level(self) -> float:
        """Confidence level of the intervals at each look."""
        return 1 - ERROR_RATE / self.max_looks

    def arm(self, name: str) -> Arm:
        """The arm called ``name``."""
        return next(arm for arm in self.arms if arm.name == name)

    def declaration(self) -> dict[str, Any]:
        """Everything that decides the verdict, as JSON-able data."""
        return {
            "arms": {
                arm.name: {"method": to_config(arm.method), "options": to_config(dict(arm.options))}
                | ({"env": arm.env if isinstance(arm.env, str) else dict(arm.env)} if arm.env else {})
                | ({"steps": arm.steps} if arm.steps else {})
                for arm in self.arms
            },
            "envs": list(self.envs),
            "steps": self.steps,
            "batch": self.seeds_per_look,
            "looks": self.max_looks,
            "episodes": self.num_episodes,
            "apart": self.sequential_seeds,
            "claims": [claim.sentence for claim in self.claims],
        }

    @property
    def digest(self) -> str:
        """Hash of the declaration: twelve hexadecimal digits."""
        return digest(self.declaration())


@dataclasses.dataclass(frozen=True)
class Paper:
    """One paper: its citation, its parts in this package, its claim and the trials of it."""

    id: str
    name: str
    citation: Citation
    family: str
    summary: str
    """The method in one or two sentences."""
    claim: str
    """The paper's claim in one line."""
    parts: tuple[str, ...]
    """Parts that implement it, ``module:Class``."""
    command: str
    """A command that trains it, or another method with one of its parts."""
    miniature: Trial
    """The small trial; takes minutes on two cores."""
    full: Trial | None = None
    """The trial with the paper's own environments and budget, where it can be run at all."""
    remarks: str = ""
    """Differences between miniature and paper; for a claim not shown, the likely cause."""

    def trial(self, full: bool) -> Trial:
        """The miniature or the full-size trial. Raises :class:`UserError` if there is no such trial."""
        if full and self.full is None:
            raise UserError(f"{self.id} has no full-size trial: leave out --full")
        return self.full if full and self.full is not None else self.miniature


def upgrade_declaration(declaration: dict[str, Any]) -> dict[str, Any]:
    """A recorded declaration in today's form: renamed parts and settings, and defaults of settings added since.

    Raises:
        UserError: if a part no longer exists or has changed incompatibly.
    """

    option_names = renames.renamed_fields_of("thespis.options:Options")

    def with_env_names(data: Any) -> Any:
        match data:
            case dict():
                return {with_env_names(key): with_env_names(value) for key, value in data.items()}
            case list():
                return [with_env_names(item) for item in data]
            case str():
                return re.sub(r"thespis[\w.]*:\w+", lambda match: renames.current_name(match[0]), data)
        return data

    def upgrade_arm(recorded: dict[str, Any]) -> dict[str, Any]:
        recorded = _with_feedback(recorded)
        method, options = (from_config(recorded[part]) for part in ("method", "options"))
        options = {option_names.get(name, name): value for name, value in options.items()}
        return with_env_names(recorded | {"method": to_config(method), "options": to_config(options)})

    arms = {name: upgrade_arm(recorded) for name, recorded in declaration["arms"].items()}
    return declaration | {"arms": arms, "envs": with_env_names(declaration["envs"])}


def _with_feedback(arm: dict[str, Any]) -> dict[str, Any]:
    """A recorded arm whose method computed rewards itself, where this is a feedback today: as an arm with feedback."""
    method, options = dict(arm["method"]), dict(arm["options"].get("dict", {}))
    for name in ("experience", "rollout_transform"):
        part = method.get(name)
        if isinstance(part, dict) and renames.current_name(part["class"]) in FEEDBACKS.values():
            options["feedback"] = method.pop(name)
    return arm | {"method": method, "options": {"dict": options}}


def digest(declaration: Any) -> str:
    """Twelve hexadecimal digits of JSON-able data."""
    return hashlib.sha256(json.dumps(declaration, sort_keys=True).encode()).hexdigest()[:12]
