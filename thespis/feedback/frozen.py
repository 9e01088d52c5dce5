"""A trained feedback of another run that scores and no longer learns: a reward model, a discriminator, a bonus.

The run has trained it beside its method, or as its method (:class:`~thespis.core.contracts.LearnsReward`).

The new run's configuration holds that of the trained feedback, and its first checkpoint the trained state, so that
nothing of the other run is needed later.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import Array, Key, PyTree

from thespis.core.contracts import Feedback
from thespis.core.errors import UserError
from thespis.core.records import Batch, Citation, EnvSpec, Report, Rewards
from thespis.feedback.combined import AddedFeedback, ChainedFeedback
from thespis.objectives.statistics import masked_mean
from thespis.runtime.keys import fold


def _to_text(run: Any) -> str | None:
    """A run's directory as text, also of a path."""
    return None if run is None else str(run)


class FrozenFeedback(eqx.Module):
    """Trained feedback of another run: scores with that run's state, and never changes it."""

    run: str | None = eqx.field(static=True, default=None, converter=_to_text)
    """The run whose trained feedback it is: its directory."""
    part: Any = None
    """The trained feedback's configuration; ``None``: that of the run, which is read when the new run starts."""
    address: str = eqx.field(static=True, default="feedback")
    """Where the trained state is in the run: feedback, or a part of a method that learns a reward."""

    name: ClassVar[str] = "frozen"

    @property
    def citations(self) -> tuple[Citation, ...]:
        """Papers of the trained feedback."""
        return () if self.part is None else self.part.citations

    @property
    def feed(self) -> None:
        """No data: it learns nothing."""
        return None

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> PyTree:
        """A fresh state of the trained feedback, in whose place a run puts the trained one."""
        return self._trained.init(spec, key)

    def score(self, state: PyTree, batch: Batch, key: Key[Array, ""]) -> Rewards:
        """The trained feedback's rewards."""
        return self._trained.score(state, batch, key)

    def update(
        self, state: PyTree, batch: Batch, own_batch: Batch | None, key: Key[Array, ""]
    ) -> tuple[PyTree, Report]:
        """Return the state unchanged, and the mean reward of a step."""
        rewards = self.score(state, batch, fold(key, "score"))  # as the method got them: computed once in a program
        return state, Report({"reward": masked_mean(rewards.total, batch.mask)})

    @property
    def _trained(self) -> Feedback:
        if self.part is None:
            raise UserError("a frozen feedback needs the run that has trained it: feedback.run=DIR")
        return self.part


Frozen = FrozenFeedback
"""The short name, for ``thespis.train(feedback=Frozen("runs/rm"))``."""


def frozen_parts(feedback: Any, address: str = "feedback") -> dict[str, FrozenFeedback]:
    """The frozen feedbacks in a feedback, by the address of their states.

    Raises :class:`UserError` for one inside of another class than the combinations of this package: where its state
    lies is not known.
    """
    if isinstance(feedback, FrozenFeedback):
        return {address: feedback}
    if isinstance(feedback, ChainedFeedback | AddedFeedback):
        parts = [frozen_parts(part, f"{address}.{i}") for i, part in enumerate(feedback.parts)]
        return {where: part for named in parts for where, part in named.items()}
    if any(isinstance(value, FrozenFeedback) for value in _field_values(feedback)):
        raise UserError(f"{type(feedback).__name__} holds a frozen feedback: put it into a chain or a sum of feedbacks")
    return {}


def replace_frozen(feedback: Any, change: Callable[[FrozenFeedback], FrozenFeedback]) -> Any:
    """The feedback with each frozen one in it replaced."""
    if isinstance(feedback, FrozenFeedback):
        return change(feedback)
    if isinstance(feedback, ChainedFeedback | AddedFeedback):
        return dataclasses.replace(feedback, parts=tuple(replace_frozen(part, change) for part in feedback.parts))
    return feedback


def unfrozen(feedback: Any) -> Any:
    """The trained feedback of a frozen one; any other is returned as it is."""
    return unfrozen(feedback.part) if isinstance(feedback, FrozenFeedback) else feedback


def feedback_parts(feedback: Any) -> Iterator[Any]:
    """The feedbacks of which one is made: those in chains and sums, trained ones in place of frozen ones."""
    if isinstance(feedback, ChainedFeedback | AddedFeedback):
        for part in feedback.parts:
            yield from feedback_parts(part)
    else:
        yield unfrozen(feedback)


def _field_values(value: Any) -> Iterator[Any]:
    """A configured object and all values in its fields, recursively."""
    yield value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _field_values(getattr(value, field.name))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _field_values(item)
