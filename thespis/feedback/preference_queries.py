r"""Comparisons of segments: which pairs are asked about, who answers, and where the answers are kept.

A **segment** is a window of consecutive steps of one episode, a **query** a pair of them, a **label** the probability
in ``[0, 1]`` that the first is the better one (1/2: they are equally good). Steps after an episode's end are masked and
count nowhere, so a segment that an episode's end cuts short is compared by the steps that it has.

Sources: Christiano et al., 2017 (disagreement of an ensemble); Lee et al., 2021 (B-Pref, arXiv:2111.03026, section 3.2:
teachers that are noisy, make mistakes, have no preference, or skip queries).

Differs from B-Pref: thresholds are fixed numbers in units of a segment's sum of rewards, and do not grow with the
learner; sums are not discounted; a teacher without noise has no preference between equal sums.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.records import Batch, EnvSpec, Number
from thespis.core.spaces import zero_value
from thespis.runs.ranges import FRACTION, Range, in_range
from thespis.runtime.keys import fold
from thespis.runtime.shuffle import permutation


class Segments(eqx.Module):
    """Segments of behaviour: leaves have any leading axes, then the axis ``time``."""

    observation: PyTree
    action: PyTree
    mask: Bool[Array, "*axes time"]

    def take(self, index: Int[Array, "..."]) -> Segments:
        """The segments with these indices on the first axis."""
        return jax.tree.map(lambda x: x[index], self)


class Queries(eqx.Module):
    """Questions to a labeller: pairs of segments, leaves ``[pair, 2, time, ...]``, with the environment's rewards."""

    segments: Segments
    reward: Float[Array, "pair 2 time"]

    @property
    def returns(self) -> Float[Array, "pair 2"]:
        """The sum of the environment's rewards in each segment."""
        return jnp.sum(jnp.where(self.segments.mask, self.reward, 0.0), axis=-1)


class Answers(eqx.Module):
    """Answers to queries: the label of each, whether there is one (a labeller may skip queries), and who gave it."""

    label: Float[Array, " pair"]
    is_labelled: Bool[Array, " pair"]
    user: Int[Array, " pair"] | None = None
    """Index of the user who answered; ``None``: there is one user, 0."""

    def with_user(self) -> Answers:
        """The answers with an index of the user also where there is one user."""
        return (
            self
            if self.user is not None
            else Answers(self.label, self.is_labelled, jnp.zeros(self.label.shape, "int32"))
        )


class Labeller(eqx.Module):
    """Slot: who compares segments. ``asks``: whether queries are made during a run."""

    asks: ClassVar[bool] = True

    def initial_comparisons(self, spec: EnvSpec, num_comparisons: int, segment_length: int) -> Comparisons:
        """The comparisons that a run begins with, in a buffer for ``num_comparisons``: none."""
        return init_comparisons(spec, num_comparisons, segment_length)

    @abc.abstractmethod
    def answer(self, queries: Queries, key: Key[Array, ""]) -> Answers:
        """The labels of all queries: 1 where the first segment is better, 0 where the second is, or between."""


class SyntheticTeacher(Labeller):
    r"""A teacher that compares segments by the environment's rewards, which the learner does not see.

    It prefers the first segment with the probability :math:`\sigma(\beta (R_1 - R_2))` of Bradley and Terry, where
    :math:`R` is a segment's sum of rewards; with ``beta=inf`` the greater sum always wins. With ``error_prob`` the
    answer is then turned round.
    """

    beta: Number = eqx.field(default=math.inf, metadata=in_range(Range(0)))
    """Rationality: 0 answers at random, inf without noise. Per unit of reward."""
    error_prob: Number = eqx.field(default=0.0, metadata=in_range(FRACTION))
    """Probability of a mistake: the opposite answer."""
    equal_threshold: Number = 0.0
    """Segments whose sums differ by less than this are equally good: the label is 1/2."""
    skip_threshold: Number | None = None
    """A query is skipped if both sums are below this; None: never."""

    def answer(self, queries: Queries, key: Key[Array, ""]) -> Answers:
        """The teacher's labels: 0, 1/2 or 1."""
        returns = queries.returns
        margin = returns[:, 0] - returns[:, 1]
        label = bradley_terry_answers(margin, self.beta, key).label
        is_mistaken = jax.random.uniform(fold(key, "mistake"), margin.shape) < self.error_prob
        label = jnp.where(is_mistaken, 1.0 - label, label)  # a tie stays a tie
        label = jnp.where(jnp.abs(margin) < self.equal_threshold, 0.5, label)
        if self.skip_threshold is None:
            return Answers(label, jnp.ones(margin.shape, bool))
        return Answers(label, jnp.max(returns, axis=1) >= self.skip_threshold)


def bradley_terry_answers(margin: Float[Array, " pair"], beta: Number, key: Key[Array, ""]) -> Answers:
    """Labels drawn with the probability ``sigmoid(beta * margin)``; with ``beta=inf`` the sign decides, 0 is a tie."""
    noiseless = jnp.isinf(beta)
    probability = jnp.where(noiseless, margin > 0, jax.nn.sigmoid(beta * margin))
    first_is_better = jax.random.uniform(fold(key, "preference"), margin.shape) < probability
    label = jnp.where(noiseless & (margin == 0), 0.5, first_is_better.astype("float32"))
    return Answers(label, jnp.ones(margin.shape, bool))


class QuerySelection(eqx.Module):
    """Slot: which of the candidate pairs of segments are asked about."""

    @abc.abstractmethod
    def select(
        self, preferences: Float[Array, "member pair"], num_queries: int, key: Key[Array, ""]
    ) -> Int[Array, " query"]:
        """Indices of ``num_queries`` different pairs.

        ``preferences``: each network's probability that the first segment of a pair is better.
        """


class UniformQueries(QuerySelection):
    """Queries chosen at random."""

    def select(
        self, preferences: Float[Array, "member pair"], num_queries: int, key: Key[Array, ""]
    ) -> Int[Array, " query"]:
        """Random pairs."""
        return jax.lax.top_k(jax.random.uniform(key, preferences.shape[1:]), num_queries)[1]


class DisagreementQueries(QuerySelection):
    """Queries on whose answer the networks disagree most: the largest standard deviations of their probabilities."""

    def select(
        self, preferences: Float[Array, "member pair"], num_queries: int, key: Key[Array, ""]
    ) -> Int[Array, " query"]:
        """The pairs with the largest standard deviations."""
        return jax.lax.top_k(jnp.std(preferences, axis=0), num_queries)[1]


class Comparisons(eqx.Module):
    """Buffer of labelled comparisons: pairs of segments ``[comparison, 2, time, ...]`` and their labels.

    ``num_stored`` of them are filled, the first ones; ``num_asked`` also counts the queries that were skipped.
    """

    segments: Segments
    label: Float[Array, " comparison"]
    user: Int[Array, " comparison"]
    """Who answered."""
    round: Int[Array, " comparison"]
    """The round in which it was asked, from 0; those that a run began with have -1."""
    num_stored: Int[Array, ""]
    num_asked: Int[Array, ""]

    @property
    def is_stored(self) -> Bool[Array, " comparison"]:
        """Which places are filled."""
        return jnp.arange(self.label.shape[0]) < self.num_stored

    def until(self, last_round: Int[Array, ""]) -> Comparisons:
        """The buffer as it is to one who knows the answers up to a round; later ones do not count as stored."""
        num_known = jnp.sum(self.is_stored & (self.round <= last_round), dtype="int32")
        return dataclasses.replace(self, num_stored=num_known)

    def add(
        self, segments: Segments, answers: Answers, is_asked: Bool[Array, " pair"], round_index: Int[Array, ""]
    ) -> Comparisons:
        """The buffer with those pairs ``[pair, 2, time]`` that were asked about in a round, and labelled."""
        is_new = is_asked & answers.is_labelled
        place = jnp.where(is_new, self.num_stored + jnp.cumsum(is_new) - 1, self.label.shape[0])

        def write(stored: PyTree, new: PyTree) -> PyTree:
            return jax.tree.map(lambda x, y: x.at[place].set(y, mode="drop"), stored, new)

        return Comparisons(
            write(self.segments, segments),
            write(self.label, answers.label),
            write(self.user, answers.with_user().user),
            write(self.round, jnp.broadcast_to(round_index, place.shape)),
            self.num_stored + jnp.sum(is_new, dtype="int32"),
            self.num_asked + jnp.sum(is_asked, dtype="int32"),
        )


def init_comparisons(spec: EnvSpec, num_comparisons: int, segment_length: int) -> Comparisons:
    """An empty buffer."""
    shape, zero = (num_comparisons, 2, segment_length), jnp.zeros((), "int32")

    def allocate(value: PyTree) -> PyTree:
        return jax.tree.map(lambda x: jnp.zeros((*shape, *jnp.shape(x)), jnp.asarray(x).dtype), value)

    segments = Segments(
        allocate(zero_value(spec.observation_space)), allocate(zero_value(spec.action_space)), jnp.zeros(shape, bool)
    )
    users, rounds = jnp.zeros(num_comparisons, "int32"), jnp.full(num_comparisons, -1, "int32")
    return Comparisons(segments, jnp.zeros(num_comparisons), users, rounds, zero, zero)


def batch_segments(batch: Batch) -> tuple[Segments, Float[Array, "row time"]]:
    """The windows of a batch ``[time, row]`` as segments ``[row, time]``, and their rewards."""
    steps = batch.steps
    rows = jax.tree.map(
        lambda x: jnp.swapaxes(x, 0, 1), (steps.view.observation, steps.action, batch.mask, steps.reward)
    )
    return Segments(*rows[:3]), rows[3]


def candidate_pairs(num_segments: int, num_pairs: int, key: Key[Array, ""]) -> Int[Array, "pair 2"]:
    """Random pairs of different segments; no pair occurs twice, and every segment equally often, up to one."""
    table = round_robin(num_segments)[:num_pairs]
    return permutation(key, num_segments)[table].astype("int32")


def round_robin(num_players: int) -> np.ndarray:
    """All pairs ``[pair, 2]`` in rounds in which each player occurs once (of an odd number, one does not play).

    Circle method: one player stays, the others go round.
    """
    players = [*range(num_players), *[-1] * (num_players % 2)]
    pairs = []
    for _ in range(len(players) - 1):
        half = len(players) // 2
        pairs += list(zip(players[:half], reversed(players[half:]), strict=True))
        players = [players[0], players[-1], *players[1:-1]]
    return np.array([pair for pair in pairs if -1 not in pair], "int32").reshape(-1, 2)
