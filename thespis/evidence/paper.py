"""Declarations of papers and their trials: arms to train, measures, and the claims on them.

A declaration holds everything that decides a verdict and is committed before its evidence.

Protocol 2 (:class:`PairedTrial`): one headline decides. Arms have equal seeds and are compared pair by pair; claims are
judged at planned looks that share an error rate of 5%, until headline and mechanisms are decided
(:mod:`thespis.evidence.paired_verdict`).

Protocol 1 (:class:`Trial`): ``seeds_per_look`` seeds of every arm are trained, all claims are evaluated, and another
batch is added until every claim is decided or ``max_looks`` batches are spent. Each look tests at level ``ERROR_RATE /
max_looks`` (Bonferroni), so that a claim whose arms do not differ is decided, either way, with a probability of at most
``ERROR_RATE``.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from thespis.core import renames
from thespis.core.contracts import Method
from thespis.core.errors import UserError
from thespis.core.records import Citation
from thespis.evaluation.paired import ERROR_RATE
from thespis.evidence.claims import Claim
from thespis.evidence.comparisons import Comparison, PairedClaim
from thespis.evidence.paired_verdict import SHORT_LOOKS, Look
from thespis.feedback.registry import FEEDBACKS
from thespis.runs.config import from_config, to_config

CLAIM, HEADLINE, MECHANISM, CONTEXT = "claim", "headline", "mechanism", "context"
"""Kinds of claims: that of protocol 1, and those of protocol 2."""


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arms:
    """Arms that are trained in the same environments for as many steps, with the same seeds."""

    arms: tuple[Arm, ...]
    envs: tuple[str, ...]
    steps: int
    """Environment steps per seed."""
    num_episodes: int
    """Episodes per seed of the final evaluation."""
    sequential_seeds: bool = False
    """Train seeds one after the other instead of in parallel, so that each has its own training time."""

    def __post_init__(self):
        """Raise ``ValueError`` for arms of equal names, or missing environments."""
        names = [arm.name for arm in self.arms]
        if len(set(names)) < len(names) or not self.envs:
            raise ValueError(f"a trial needs arms with different names, and an environment; its arms: {names}")

    def check_claims(self, claims: Sequence[PairedClaim]) -> None:
        """Raise ``ValueError`` for no claims, or for claims on unknown arms."""
        unknown = {name for claim in claims for name in claim.arms} - {arm.name for arm in self.arms}
        if unknown or not claims:
            raise ValueError(f"a trial needs claims on its arms; unknown arms: {unknown}")

    def arm(self, name: str) -> Arm:
        """The arm called ``name``."""
        return next(arm for arm in self.arms if arm.name == name)

    def training_declaration(self) -> dict[str, Any]:
        """Everything that decides what is trained and how it is evaluated, as JSON-able data."""
        return {
            "arms": {
                arm.name: {"method": to_config(arm.method), "options": to_config(dict(arm.options))}
                | ({"env": arm.env if isinstance(arm.env, str) else dict(arm.env)} if arm.env else {})
                | ({"steps": arm.steps} if arm.steps else {})
                for arm in self.arms
            },
            "envs": list(self.envs),
            "steps": self.steps,
            "episodes": self.num_episodes,
            "apart": self.sequential_seeds,
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial(Arms):
    """A comparison of arms by protocol 1, in which every claim has to hold. Scores are per seed and environment."""

    claims: tuple[Claim, ...]
    """Claims that together make up the paper's claim."""
    seeds_per_look: int = 5
    """Seeds of every arm per batch."""
    max_looks: int = 2
    """Maximum number of batches."""
    num_episodes: int = 20

    def __post_init__(self):
        """Raise ``ValueError`` for claims on unknown arms, arms of equal names, or missing claims or environments."""
        super().__post_init__()
        self.check_claims(self.claims)

    @property
    def named_claims(self) -> tuple[tuple[str, Claim], ...]:
        """All claims, each with its kind: one kind."""
        return tuple((CLAIM, claim) for claim in self.claims)

    @property
    def most_seeds(self) -> int:
        """The largest number of seeds of an arm."""
        return self.max_looks * self.seeds_per_look

    @property
    def confidence_level(self) -> float:
        """Confidence level of the intervals at each look."""
        return 1 - ERROR_RATE / self.max_looks

    def declaration(self) -> dict[str, Any]:
        """Everything that decides the verdict, as JSON-able data."""
        return self.training_declaration() | {
            "batch": self.seeds_per_look,
            "looks": self.max_looks,
            "claims": [claim.sentence for claim in self.claims],
        }

    @property
    def digest(self) -> str:
        """Hash of the declaration: twelve hexadecimal digits."""
        return digest(self.declaration())


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairedTrial(Arms):
    """A comparison of arms by protocol 2: pairs of equal seeds, one headline that decides, and claims beside it."""

    headline: PairedClaim
    """The paper's main claim, which is the verdict."""
    mechanisms: tuple[PairedClaim, ...] = ()
    """What the paper says that its part does to values, variance, data ..., each with a verdict of its own."""
    context: tuple[PairedClaim, ...] = ()
    """Other comparisons: ablations, bounds, and rivals that the paper does not have. They decide nothing, and no pairs
    are added for them."""
    bench: str = ""
    """Name and version of the bench that the trial stands on."""
    looks: tuple[Look, ...] = SHORT_LOOKS
    """When claims are judged, and at which level."""
    first_seed: int = 0
    """First of the seeds: 0, or that of a fresh block where a trial is repeated after a defect."""
    num_episodes: int = 100

    def __post_init__(self):
        """Raise ``ValueError`` for claims on unknown arms or of equal sentences, or arms of equal names."""
        super().__post_init__()
        claims = [claim for _, claim in self.named_claims]
        self.check_claims(claims)
        if len({claim.sentence for claim in claims}) < len(claims):
            raise ValueError("a trial makes each claim once")

    @property
    def named_claims(self) -> tuple[tuple[str, PairedClaim], ...]:
        """All claims, each with its kind: headline, mechanism or context."""
        return (
            (HEADLINE, self.headline),
            *((MECHANISM, claim) for claim in self.mechanisms),
            *((CONTEXT, claim) for claim in self.context),
        )

    @property
    def most_seeds(self) -> int:
        """The largest number of seeds of an arm."""
        return self.looks[-1].num_pairs

    @property
    def bench_name(self) -> str:
        """The name of the bench without its version."""
        return self.bench.rpartition(" ")[0]

    @property
    def chunk_size(self) -> int:
        """Seeds that train together: the largest number of which all looks have a multiple."""
        return math.gcd(*(look.num_pairs for look in self.looks))

    def declaration(self) -> dict[str, Any]:
        """Everything that decides the verdicts, as JSON-able data."""
        return self.training_declaration() | {
            "protocol": 2,
            "bench": self.bench,
            "looks": [[look.num_pairs, look.error_rate] for look in self.looks],
            "first_seed": self.first_seed,
            "claims": [[kind, claim.sentence, _margins(claim)] for kind, claim in self.named_claims],
        }

    @property
    def digest(self) -> str:
        """Hash of the declaration: twelve hexadecimal digits."""
        return digest(self.declaration())


def _margins(claim: PairedClaim) -> list[float] | None:
    """The margins within which a comparison is level; ``None``: those of the protocol, or no comparison."""
    margins = claim.margins if isinstance(claim, Comparison) else None
    return None if margins is None else list(margins)


@dataclasses.dataclass(frozen=True)
class Fidelity:
    """One point in which our implementation was compared with the authors'."""

    point: str
    authors: str
    """What the authors' code or listing does."""
    ours: str = "the same"
    """What ours does, and why, where it differs."""


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
    miniature: Trial | PairedTrial
    """The small trial; takes minutes on two cores."""
    full: Trial | PairedTrial | None = None
    """The trial with the paper's own environments and budget, where it can be run at all."""
    remarks: str = ""
    """Differences between miniature and paper; for a claim not shown, the likely cause."""
    full_remarks: str = ""
    """The same of the full-size trial, once it has been run."""
    fidelity: tuple[Fidelity, ...] = ()
    """Comparison of the implementation with the authors' code or listing, point by point."""

    def trial(self, full: bool) -> Trial | PairedTrial:
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
