"""Several feedbacks as one: chained, each on the rewards of the one before it, or added with weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from thespis.core.contracts import Feedback
from thespis.core.errors import UserError
from thespis.core.feeds import Feed
from thespis.core.records import Batch, Citation, EnvSpec, Number, Report, Rewards
from thespis.runtime.keys import fold


def only_feed(parts: tuple[Feedback, ...]) -> Feed | None:
    """The feed of the one part that has one. Raises ``UserError`` if several do."""
    feeds = [part.feed for part in parts if part.feed is not None]
    if len(feeds) > 1:
        raise UserError("of combined feedbacks only one can have data of its own: train the others first")
    return feeds[0] if feeds else None


def init_parts(parts: tuple[Feedback, ...], spec: EnvSpec, key: Key[Array, ""]) -> tuple[PyTree, ...]:
    """The states of all parts."""
    return tuple(part.init(spec, fold(key, f"part{i}")) for i, part in enumerate(parts))


def map_parts(feedback: Any, change: Callable[[Any], Any]) -> Any:
    """The feedback with each part of a chain or sum changed, at any depth; any other is changed itself."""
    if isinstance(feedback, ChainedFeedback | AddedFeedback):
        return dataclasses.replace(feedback, parts=tuple(map_parts(part, change) for part in feedback.parts))
    return change(feedback)


def update_parts(
    parts: tuple[Feedback, ...],
    states: tuple[PyTree, ...],
    batches: list[Batch],
    own_batch: Batch | None,
    key: Key[Array, ""],
) -> tuple[tuple[PyTree, ...], Report]:
    """Update all parts, each on its batch; metrics are named after the parts."""
    updated, metrics = [], {}
    for i, (part, state) in enumerate(zip(parts, states, strict=True)):
        own = None if part.feed is None else own_batch
        state, report = part.update(state, batches[i], own, fold(key, f"part{i}"))
        updated.append(state)
        metrics |= {f"{part.name}_{name}": value for name, value in report.metrics.items()}
    return tuple(updated), Report(metrics)


class ChainedFeedback(eqx.Module):
    """Feedbacks one after another: each scores the batch with the rewards of the one before.

    For instance GAIL's reward with an exploration bonus added to it.
    """

    parts: tuple[Any, ...] = ()
    """The feedbacks in order; the first sees the environment's rewards."""

    name: ClassVar[str] = "chain"
    citations: ClassVar[tuple[Citation, ...]] = ()

    @property
    def feed(self) -> Feed | None:
        """The feed of the one part that has one."""
        return only_feed(self.parts)

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> tuple[PyTree, ...]:
        """The states of all parts."""
        return init_parts(self.parts, spec, key)

    def score(self, state: tuple[PyTree, ...], batch: Batch, key: Key[Array, ""]) -> Rewards:
        """The last part's rewards, with the channels of all."""
        rewards = Rewards(batch.steps.reward)
        for part, one in zip(self.parts, state, strict=True):
            rewards = part.score(one, batch, key)
            batch = batch.with_rewards(rewards)
        return Rewards(rewards.total, batch.steps.channels, rewards.tokens)

    def update(
        self, state: tuple[PyTree, ...], batch: Batch, own_batch: Batch | None, key: Key[Array, ""]
    ) -> tuple[tuple[PyTree, ...], Report]:
        """Update all parts, each on the rewards that it scores."""
        batches = []
        for part, one in zip(self.parts, state, strict=True):
            batches.append(batch)
            batch = batch.with_rewards(part.score(one, batch, key))
        return update_parts(self.parts, state, batches, own_batch, key)


class AddedFeedback(eqx.Module):
    """A weighted sum of feedbacks, each of which sees the environment's rewards; each is also a channel of its name.

    A part that adds to the environment's reward (rnd, counts) counts that reward once more: chain it instead.
    """

    parts: tuple[Any, ...] = ()
    """The feedbacks."""
    weights: tuple[Number, ...] = ()
    """The weight of each."""

    name: ClassVar[str] = "sum"
    citations: ClassVar[tuple[Citation, ...]] = ()

    @property
    def feed(self) -> Feed | None:
        """The feed of the one part that has one."""
        return only_feed(self.parts)

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> tuple[PyTree, ...]:
        """The states of all parts. Raises ``UserError`` unless each part has a weight and a name of its own."""
        names = {part.name for part in self.parts}
        if len(self.parts) != len(self.weights) or len(names) < len(self.parts) or not self.parts:
            raise UserError("a sum of feedbacks needs a weight for each of them, and no two of the same name")
        return init_parts(self.parts, spec, key)

    def score(self, state: tuple[PyTree, ...], batch: Batch, key: Key[Array, ""]) -> Rewards:
        """The weighted sum, of rewards and of rewards of tokens, and every part's own rewards as channels."""
        scored = [part.score(one, batch, key) for part, one in zip(self.parts, state, strict=True)]
        weighted = list(zip(self.weights, scored, strict=True))
        total = sum((weight * rewards.total for weight, rewards in weighted), start=jnp.zeros_like(batch.steps.reward))
        by_tokens = [weight * rewards.tokens for weight, rewards in weighted if rewards.tokens is not None]
        channels = {part.name: rewards.total for part, rewards in zip(self.parts, scored, strict=True)}
        return Rewards(
            total, dict(batch.steps.channels or {}) | channels, sum(by_tokens[1:], by_tokens[0]) if by_tokens else None
        )

    def update(
        self, state: tuple[PyTree, ...], batch: Batch, own_batch: Batch | None, key: Key[Array, ""]
    ) -> tuple[tuple[PyTree, ...], Report]:
        """Update all parts on the batch."""
        return update_parts(self.parts, state, [batch] * len(self.parts), own_batch, key)
