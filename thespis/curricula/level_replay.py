r"""Prioritized level replay (PLR), robust PLR and ACCEL: levels worth learning from are kept, replayed and edited.

A buffer keeps the levels with the highest scores (:mod:`thespis.curricula.level_scores`). Every rollout of all
environments is one of three kinds:

- **new**: random levels, which enter the buffer if their score is high enough;
- **replay**, with probability ``replay_prob`` once the buffer is full enough: levels of the buffer, drawn by

  .. math:: P(i) = (1 - \rho) \frac{h_i}{\sum_j h_j} + \rho \frac{c - c_i}{\sum_j c - c_j}, \qquad
     h_i = \text{rank}(S_i)^{-1 / \beta}

  with :math:`c - c_i` the episodes since the level was last played;
- **edited** (ACCEL, ``num_edits`` > 0), after every replay: edits of the levels that were just replayed.

Robust PLR and ACCEL learn from replayed levels alone (``learns_from_new=False``): rollouts on new and edited levels
only give their scores.

Source: Jiang et al., 2021 (arXiv:2010.03934; robust: arXiv:2110.02439); Parker-Holder et al., 2022 (arXiv:2203.01302).

Differs from the reference code in JAX (jaxued): all levels of a replay are drawn by the same probabilities (there one
after another, each counted as played); new levels replace those of the lowest probability before the rollout (there it
is computed again after each); a level on which no episode was completed keeps its score (there it loses it); the
highest return of a level may be negative.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree, UInt32

from thespis.core.contracts import Levels
from thespis.core.errors import UserError
from thespis.core.records import Citation, Critique, Draw, EnvSpec, EpisodeStats, Number, Report, Transition
from thespis.curricula.fixed import repeat_params
from thespis.curricula.level_scores import LevelScore, MaxMonteCarlo
from thespis.curricula.random_levels import mean_return, require_levels
from thespis.runtime.keys import fold, indexed_keys

NEW, REPLAY, EDITED = 0, 1, 2
"""Kinds of rollouts."""


class LevelBuffer(eqx.Module):
    """Buffer of levels: leaves ``[slot, ...]``, of which the first ``size`` are in use."""

    levels: PyTree
    hashes: UInt32[Array, "slot 2"]
    scores: Float[Array, " slot"]
    max_returns: Float[Array, " slot"]
    """Highest return ever reached on each level."""
    last_played: Int[Array, " slot"]
    """Value of ``num_played`` when the level was last played."""
    num_parents: Int[Array, " slot"]
    """How often each level was played in the last replay."""
    size: Int[Array, ""]
    num_played: Int[Array, ""]
    """Levels played so far, of all rollouts."""


class LevelReplayState(eqx.Module):
    """State of the curriculum: the buffer, the kind of the next rollout, and the environment's generator of levels."""

    buffer: LevelBuffer
    kind: Int[Array, ""]
    hash_factors: UInt32[Array, "numbers 2"]
    generator: Levels = eqx.field(static=True)


class PrioritizedLevelReplay(eqx.Module):
    """PLR curriculum; with ``learns_from_new=False`` robust PLR, and with ``num_edits`` besides, ACCEL.

    For methods with a critic that learn from rollouts (PPO): a rollout should be as long as an episode.
    """

    capacity: int = eqx.field(static=True, default=4_000)
    """Levels in the buffer."""
    replay_prob: Number = 0.8
    """Probability that a rollout replays levels, once the buffer is full enough."""
    min_fill: Number = 0.5
    """Share of the buffer that must be in use before the first replay."""
    staleness_coef: Number = 0.3
    """Share of the probability that depends on when a level was last played; the rest depends on its score."""
    temperature: Number = 0.3
    """Temperature of the score's rank: lower values prefer the levels with the highest scores."""
    score: LevelScore = MaxMonteCarlo()
    """Score of a level: MaxMonteCarlo, PositiveValueLoss, or your own module:Class."""
    learns_from_new: bool = eqx.field(static=True, default=True)
    """Whether the learner also learns from new and edited levels."""
    num_edits: int = eqx.field(static=True, default=0)
    """Edits of each replayed level afterwards (ACCEL); 0: none."""

    name: ClassVar[str] = "plr"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Prioritized Level Replay", "Jiang et al.", 2021, "arXiv:2010.03934"),
        Citation("Replay-Guided Adversarial Environment Design", "Jiang et al.", 2021, "arXiv:2110.02439"),
        Citation("Evolving Curricula with Regret-Based Environment Design", "Parker-Holder et al.", 2022, "2203.01302"),
    )
    needs_critique: ClassVar[bool] = True
    draws_per_rollout: ClassVar[bool] = True

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> LevelReplayState:
        """An empty buffer. Raises ``UserError`` for an environment without levels."""
        generator = require_levels(spec)
        if self.capacity < 1 or self.num_edits < 0:
            raise UserError("curriculum.capacity is at least 1, and curriculum.num_edits not negative")
        example = jax.tree.map(jnp.asarray, spec.params)
        zero, zeros = jnp.zeros((), "int32"), jnp.zeros(self.capacity, "int32")
        buffer = LevelBuffer(
            repeat_params(example, self.capacity),
            jnp.zeros((self.capacity, 2), "uint32"),
            jnp.zeros(self.capacity),
            jnp.full(self.capacity, jnp.finfo("float32").min),
            zeros,
            zeros,
            zero,
            zero,
        )
        code = jax.eval_shape(generator.encode, example)
        factors = jax.random.bits(key, (code.size, 2), "uint32") | 1
        return LevelReplayState(buffer, zero + NEW, factors, generator)

    def draw(self, state: LevelReplayState, key: Key[Array, ""], n: int) -> Draw:
        """Levels of one rollout, all of the same kind."""
        generator, buffer = state.generator, state.buffer
        new = jax.vmap(generator.sample)(indexed_keys(fold(key, "new"), n))
        slots = jax.random.categorical(fold(key, "replay"), jnp.log(self.replay_probs(buffer)), shape=(n,))
        slots = slots.astype("int32")
        params = _choose(state.kind == REPLAY, jax.tree.map(lambda x: x[slots], buffer.levels), new)
        if self.num_edits:
            parents = jnp.repeat(jnp.arange(self.capacity), buffer.num_parents, total_repeat_length=n)
            edit_keys = indexed_keys(fold(key, "edit"), n)
            edited = jax.vmap(lambda slot, k: self._edit(state, slot, k))(parents, edit_keys)
            params = _choose(state.kind == EDITED, edited, params)
        learns = None if self.learns_from_new else jnp.broadcast_to(state.kind == REPLAY, (n,))
        return Draw(params, jnp.where(state.kind == REPLAY, slots, -1), learns)

    def update(
        self,
        state: LevelReplayState,
        rollout: Transition,
        critique: Critique | None,
        stats: EpisodeStats,
        key: Key[Array, ""],
    ) -> tuple[LevelReplayState, Report]:
        """Score the levels of a rollout, put new ones into the buffer, and choose the kind of the next rollout."""
        if critique is None or stats.level is None:
            raise ValueError("prioritized level replay needs the critic's estimates and the levels that it drew")
        slots, is_replay = stats.level[0], state.kind == REPLAY
        levels, buffer = jax.tree.map(lambda x: x[0], stats.params), state.buffer
        best = jnp.max(jnp.where(stats.done, stats.returns, jnp.finfo("float32").min), axis=0)
        known = jnp.where(is_replay, buffer.max_returns[slots], jnp.finfo("float32").min)
        max_returns, has_ended = jnp.maximum(best, known), jnp.any(stats.done, axis=0)
        scores = self.score(critique, stats.done, max_returns)
        replayed = _record_replay(buffer, slots, scores, max_returns, has_ended)
        inserted = self._insert(state, levels, scores, max_returns, has_ended)
        buffer = _choose(is_replay, replayed, inserted)
        kind = self._next_kind(state.kind, buffer, key)
        in_use = jnp.arange(self.capacity) < buffer.size
        metrics = {
            "return": mean_return(stats),
            "score": jnp.mean(scores),
            "buffer_score": jnp.sum(jnp.where(in_use, buffer.scores, 0.0)) / jnp.maximum(buffer.size, 1),
            "buffer_fill": buffer.size / self.capacity,
            "replay": is_replay.astype("float32"),
        }
        return dataclasses.replace(state, buffer=buffer, kind=kind), Report(metrics)

    def replay_probs(self, buffer: LevelBuffer) -> Float[Array, " slot"]:
        """Probability that each level is drawn in a replay; 0 for slots that are not in use."""
        in_use = jnp.arange(self.capacity) < buffer.size
        order = jnp.argsort(jnp.where(in_use, -buffer.scores, jnp.inf))
        ranks = jnp.zeros(self.capacity).at[order].set(jnp.arange(1.0, self.capacity + 1.0))
        by_score = _normalize(jnp.where(in_use, ranks ** (-1.0 / self.temperature), 0.0), in_use)
        staleness = _normalize(jnp.where(in_use, buffer.num_played - buffer.last_played, 0).astype("float32"), in_use)
        return (1.0 - self.staleness_coef) * by_score + self.staleness_coef * staleness

    def _edit(self, state: LevelReplayState, slot: Int[Array, ""], key: Key[Array, ""]) -> PyTree:
        return state.generator.mutate(jax.tree.map(lambda x: x[slot], state.buffer.levels), key, self.num_edits)

    def _next_kind(self, kind: Int[Array, ""], buffer: LevelBuffer, key: Key[Array, ""]) -> Int[Array, ""]:
        is_full = buffer.size >= self.min_fill * self.capacity
        replays = is_full & (buffer.size > 0) & (jax.random.uniform(key) < self.replay_prob)
        following = jnp.where(replays, REPLAY, NEW)
        return jnp.where((kind == REPLAY) & (self.num_edits > 0), EDITED, following).astype("int32")

    def _insert(
        self,
        state: LevelReplayState,
        levels: PyTree,
        scores: Float[Array, " env"],
        max_returns: Float[Array, " env"],
        has_ended: Bool[Array, " env"],
    ) -> LevelBuffer:
        """The buffer after a rollout on levels that were not drawn from it, one after another.

        A level that is in the buffer already gets its new score. Another one takes the next free slot, or that of the
        level with the lowest probability, if its score is higher.
        """
        buffer, capacity = state.buffer, self.capacity
        codes = jax.vmap(state.generator.encode)(levels)
        hashes = jnp.sum(codes.astype("uint32")[..., None] * state.hash_factors, axis=1, dtype="uint32")
        by_prob = jnp.argsort(self.replay_probs(buffer))

        def insert(carry: tuple[LevelBuffer, Array], row: tuple[Array, ...]) -> tuple[tuple[LevelBuffer, Array], Array]:
            buffer, num_replaced = carry
            code, score, max_return, ended, i = row
            same = jnp.all(buffer.hashes == code, axis=1) & (jnp.arange(capacity) < buffer.size)
            is_known, is_full = jnp.any(same), buffer.size >= capacity
            slot = jnp.where(is_full, by_prob[num_replaced], buffer.size)
            slot = jnp.where(is_known, jnp.argmax(same), slot)
            enters = ended & ~is_known & (~is_full | (score > buffer.scores[slot]))
            target = jnp.where(enters | (is_known & ended), slot, capacity)  # beyond the end: not written
            known_return = jnp.where(is_known, buffer.max_returns[slot], max_return)
            buffer = dataclasses.replace(
                buffer,
                hashes=buffer.hashes.at[target].set(code, mode="drop"),
                scores=buffer.scores.at[target].set(score, mode="drop"),
                max_returns=buffer.max_returns.at[target].set(jnp.maximum(max_return, known_return), mode="drop"),
                last_played=buffer.last_played.at[target].set(buffer.num_played + i + 1, mode="drop"),
                size=buffer.size + (enters & ~is_full),
            )
            num_replaced = num_replaced + (enters & is_full)
            return (buffer, num_replaced), target

        rows = hashes, scores, max_returns, has_ended, jnp.arange(scores.shape[0])
        (buffer, _), targets = jax.lax.scan(insert, (buffer, jnp.zeros((), "int32")), rows)
        stored = jax.tree.map(lambda x, new: x.at[targets].set(new, mode="drop"), buffer.levels, levels)
        num_played = buffer.num_played + scores.shape[0]
        return dataclasses.replace(buffer, levels=stored, num_played=num_played)


def _record_replay(
    buffer: LevelBuffer,
    slots: Int[Array, " env"],
    scores: Float[Array, " env"],
    max_returns: Float[Array, " env"],
    has_ended: Bool[Array, " env"],
) -> LevelBuffer:
    """The buffer after a rollout on its own levels; of a level that was played twice, the last score counts."""
    counts = jnp.zeros_like(buffer.num_parents).at[slots].add(1, mode="drop")
    return dataclasses.replace(
        buffer,
        scores=buffer.scores.at[slots].set(jnp.where(has_ended, scores, buffer.scores[slots]), mode="drop"),
        max_returns=buffer.max_returns.at[slots].max(max_returns, mode="drop"),
        last_played=buffer.last_played.at[slots].max(buffer.num_played + 1 + jnp.arange(slots.shape[0]), mode="drop"),
        num_parents=counts,
        num_played=buffer.num_played + slots.shape[0],
    )


def _choose(condition: Bool[Array, ""], yes: PyTree, no: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def _normalize(weights: Float[Array, " slot"], in_use: Bool[Array, " slot"]) -> Float[Array, " slot"]:
    """Weights that add up to 1; uniform over slots in use where all are 0."""
    total = jnp.sum(weights)
    uniform = in_use / jnp.maximum(jnp.sum(in_use), 1)
    return jnp.where(total > 0, weights / jnp.where(total > 0, total, 1.0), uniform)


def robust_plr() -> PrioritizedLevelReplay:
    """Robust PLR: the learner learns from replayed levels alone."""
    return PrioritizedLevelReplay(learns_from_new=False)


def accel() -> PrioritizedLevelReplay:
    """ACCEL: robust PLR whose replayed levels are then edited, with five edits each."""
    return PrioritizedLevelReplay(learns_from_new=False, num_edits=5)
