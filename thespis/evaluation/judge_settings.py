"""Settings of a language model that compares recorded responses; they can be read without loading a model."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from thespis.core.errors import UserError

if TYPE_CHECKING:
    from thespis.language.engine import GenerationConfig


@dataclasses.dataclass(frozen=True)
class JudgeSettings:
    """How responses are compared. Raises ``UserError`` for settings that do not go together."""

    principle: str = "It is more helpful, correct and honest."
    """What makes a response better, in words."""
    num_votes: int = 1
    """Verdicts in each order."""
    both_orders: bool = True
    """Whether each pair is read in both orders; otherwise in one, which is as good as random for each pair."""
    gives_reasons: bool = True
    """Whether the judge writes reasons before its verdict."""
    own_reference: bool = False
    """Whether the judge answers the prompt itself first, and reads its own answer before the two responses."""
    is_structured: bool = False
    """Whether verdicts are JSON that a schema constrains; the engine must support it."""
    temperature: float = 0.0
    """Sampling temperature; 0: greedy."""
    max_tokens: int = 256
    """Maximum number of tokens of a verdict with its reasons, and of the judge's own answer."""
    seed: int = 0
    """Random seed of the first vote; each later one has the next."""

    def __post_init__(self):
        """Refuse settings that do not go together."""
        if self.num_votes < 1:
            raise UserError("a judge votes at least once: votes of 1 or more")
        if self.num_votes > 1 and self.temperature == 0:
            raise UserError("all votes of a greedy judge are equal: give a temperature above 0, or one vote")
        if not self.principle.strip():
            raise UserError("the principle is empty: say what makes a response better")
        self.generation(0)

    def generation(self, vote: int) -> GenerationConfig:
        """Options of the completions of a vote. Raises ``UserError`` for values out of range."""
        from thespis.language.engine import GenerationConfig

        return GenerationConfig(self.temperature, max_tokens=self.max_tokens, seed=self.seed + vote)
