"""What a paper claims, as data: arms to train, a measure of each, and the inequality that would show the claim.

A declaration holds everything that decides a verdict and is committed before its evidence. The rule for seeds is
the same for all papers: ``batch`` seeds of every arm are trained, all claims are looked at, and another batch is
added until every claim is decided or ``looks`` batches are spent. Each look tests at ``ERROR / looks``
(Bonferroni), so that a claim without truth in it is decided, either way, with a probability of at most ``ERROR``.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from thespis.core.contracts import Method
from thespis.core.errors import UserError
from thespis.core.records import Citation
from thespis.evidence.claims import Claim
from thespis.runs.config import from_config, to_config

ERROR = 0.05
"""The largest probability with which a claim is decided where both arms are equal."""


@dataclasses.dataclass(frozen=True)
class Arm:
    """One kind of run: a configured method, and what else differs from a plain run of it."""

    name: str
    method: Method
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Further arguments of :func:`thespis.train`: ``envs``, ``lag``, ``feedback`` ..."""
    env: str | Mapping[str, str] = ""
    """Trained and played in this world instead of the trial's, or for each of them in another: the same task, seen
    otherwise."""
    steps: int = 0
    """Steps instead of the trial's (0: those), where an arm that learns from data counts updates and others do not."""

    def __post_init__(self):
        """Raises ``ValueError`` for a name that cannot be a directory's."""
        if not self.name or set(self.name) & set("/\\:"):
            raise ValueError(f"an arm's name cannot become that of a directory: {self.name!r}")

    def world(self, env: str) -> str:
        """Where it is trained and played when the trial's world is ``env``."""
        return (self.env if isinstance(self.env, str) else self.env[env]) or env


@dataclasses.dataclass(frozen=True)
class Trial:
    """Arms side by side. Scores are per training seed, on every environment."""

    arms: tuple[Arm, ...]
    envs: tuple[str, ...]
    steps: int
    """Environment steps per seed."""
    claims: tuple[Claim, ...]
    """All of them together are the paper's claim."""
    batch: int = 5
    """Seeds of every arm that are trained at once."""
    looks: int = 2
    """Batches at most."""
    episodes: int = 20
    """Episodes per seed of the final evaluation."""
    apart: bool = False
    """Train seeds one after the other instead of side by side, so that each has a clock of its own."""

    def __post_init__(self):
        """Raises ``ValueError`` for claims on arms that are not there."""
        names = [arm.name for arm in self.arms]
        unknown = {name for claim in self.claims for name in claim.arms} - set(names)
        if unknown or len(set(names)) < len(names) or not self.claims or not self.envs:
            raise ValueError(f"a trial needs arms of different names, an environment, and claims on them: {unknown}")

    @property
    def level(self) -> float:
        """Level of the intervals at each look."""
        return 1 - ERROR / self.looks

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
            "batch": self.batch,
            "looks": self.looks,
            "episodes": self.episodes,
            "apart": self.apart,
            "claims": [claim.sentence for claim in self.claims],
        }

    @property
    def digest(self) -> str:
        """Twelve digits that change with the declaration."""
        return digest(self.declaration())


@dataclasses.dataclass(frozen=True)
class Paper:
    """One paper: what it is, where it lives here, what it claims and how that is tried."""

    id: str
    name: str
    citation: Citation
    family: str
    does: str
    """What the system is, in a sentence or two."""
    claim: str
    """The paper's claim in one line."""
    parts: tuple[str, ...]
    """Where its parts are implemented, ``module:Class``."""
    use: str
    """A command that trains it, or one of its parts on another base."""
    miniature: Trial
    """Minutes on two cores."""
    full: Trial | None = None
    """The paper's own environments and budget, where they can be run at all."""
    remarks: str = ""
    """How the miniature differs from the paper; for a claim not shown, the likely cause."""

    def trial(self, full: bool) -> Trial:
        """The miniature or the full-size trial. Raises :class:`UserError` if there is no such trial."""
        if full and self.full is None:
            raise UserError(f"{self.id} has no full-size trial: leave out --full")
        return self.full if full and self.full is not None else self.miniature


def as_read_now(declaration: dict[str, Any]) -> dict[str, Any]:
    """A declaration from a record, with the defaults of settings that have come since: what the same words say now.

    Raises:
        UserError: if a part is gone or has changed.
    """

    def arm(said: dict[str, Any]) -> dict[str, Any]:
        return said | {part: to_config(from_config(said[part])) for part in ("method", "options")}

    return declaration | {"arms": {name: arm(said) for name, said in declaration["arms"].items()}}


def digest(declaration: Any) -> str:
    """Twelve hexadecimal digits of JSON-able data."""
    return hashlib.sha256(json.dumps(declaration, sort_keys=True).encode()).hexdigest()[:12]
