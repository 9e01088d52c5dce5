r"""Labellers with other models of what people compare than the sum of rewards: regret, cyclic taste, several users.

Each is a :class:`~thespis.feedback.preference_queries.Labeller`, and may stand wherever the synthetic teacher does.
"""

from __future__ import annotations

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.records import Number
from thespis.feedback.preference_queries import Answers, Labeller, Queries, SyntheticTeacher, bradley_terry_answers
from thespis.runs.ranges import AT_LEAST_0, FRACTION, POSITIVE, in_range
from thespis.runtime.keys import fold, indexed_keys


class StateValue(eqx.Module):
    """Slot: the value of states under the optimal policy, as far as a labeller knows it."""

    @abc.abstractmethod
    def __call__(self, observation: PyTree) -> Float[Array, ""]:
        """The value of one observation: the discounted sum of rewards from there on."""


class ZeroValue(StateValue):
    """Value 0 of all states: a segment's regret is then minus the sum of its rewards but the last."""

    def __call__(self, observation: PyTree) -> Float[Array, ""]:
        """Zero."""
        return jnp.zeros(())


class RegretTeacher(Labeller):
    r"""Teacher that compares segments by regret: how much of what was possible a segment lost.

    .. math:: -\mathrm{regret}(\sigma) = \sum_{t < T} \gamma^t r_t + \gamma^T V^*(s_T) - V^*(s_0)

    where :math:`s_T` is the segment's last observed state, or, if the episode ended in the segment, what comes after
    the end, worth 0. So a segment that leads to a good state is preferred, though its own rewards are small.

    Source: Knox et al., 2022 (arXiv:2206.02231, equation 3, for deterministic transitions). Differs: the reward of the
    last step counts only if the episode ended with it, as the state that it leads to is not part of a segment.
    """

    value: StateValue = ZeroValue()
    """The optimal value of a state: your own module:Class; with ZeroValue only rewards count."""
    discount: Number = eqx.field(default=1.0, metadata=in_range(FRACTION))
    """Discount of the values and of the segment's rewards."""
    beta: Number = eqx.field(default=math.inf, metadata=in_range(AT_LEAST_0))
    """Rationality: 0 answers at random, inf without noise. Per unit of regret."""

    def answer(self, queries: Queries, key: Key[Array, ""]) -> Answers:
        """Labels of the teacher: 0, 1/2 or 1."""
        regrets = self.regrets(queries)
        return bradley_terry_answers(regrets[:, 1] - regrets[:, 0], self.beta, key)

    def regrets(self, queries: Queries) -> Float[Array, "pair 2"]:
        """The regret of each segment."""
        mask = queries.segments.mask
        values = jax.vmap(jax.vmap(jax.vmap(self.value)))(queries.segments.observation)
        length = mask.shape[-1]
        count = mask.sum(axis=-1)
        is_cut = count < length  # the episode ended within the segment
        num_rewards = jnp.where(is_cut, count, length - 1)
        discounts = jnp.asarray(self.discount) ** jnp.arange(length)
        rewards = jnp.where(jnp.arange(length) < num_rewards[..., None], discounts * queries.reward, 0.0)
        last = jnp.where(is_cut, 0.0, discounts[-1] * values[..., -1])
        return values[..., 0] - rewards.sum(axis=-1) - last


class CyclicTeacher(Labeller):
    r"""Teacher with a cyclic taste: a segment is preferred to those that are up to half a circle behind it.

    Sums of rewards are angles, :math:`2 \pi R / \mathrm{period}`; the first segment is preferred with the probability
    :math:`\sigma(\beta \sin(\phi_1 - \phi_2))`. No reward explains such answers where sums differ by more than half a
    ``period``: of three segments each can be preferred to the next.
    """

    period: Number = eqx.field(default=1.0, metadata=in_range(POSITIVE))
    """Difference of two sums of rewards that are the same to this teacher, above 0."""
    beta: Number = eqx.field(default=math.inf, metadata=in_range(AT_LEAST_0))
    """How certain answers are: 0 answers at random, inf without noise."""

    def answer(self, queries: Queries, key: Key[Array, ""]) -> Answers:
        """Labels of the teacher: 0, 1/2 or 1."""
        angle = 2 * jnp.pi * queries.returns / self.period
        return bradley_terry_answers(jnp.sin(angle[:, 0] - angle[:, 1]), self.beta, key)


class UserTypes(Labeller):
    """Labellers of several users: each query is answered by one of them, drawn at random; answers say by whom."""

    users: tuple[Labeller, ...] = (SyntheticTeacher(), SyntheticTeacher(error_prob=1.0))
    """The users' labellers: by default one who wants more reward, and one who wants less."""
    weights: tuple[float, ...] = eqx.field(static=True, default=())
    """How often each is asked, in proportion; (): all equally often."""

    def __check_init__(self):
        """Raise ``ValueError`` without users, or for weights that are not theirs."""
        if not self.users or (self.weights and len(self.weights) != len(self.users)):
            raise ValueError(f"{len(self.weights)} weights for {len(self.users)} users: one for each, and at least one")

    def answer(self, queries: Queries, key: Key[Array, ""]) -> Answers:
        """The labels, and by whom they are."""
        count = queries.reward.shape[0]
        weights = jnp.asarray(self.weights or (1.0,) * len(self.users))
        user = jax.random.categorical(fold(key, "user"), jnp.log(weights), shape=(count,)).astype("int32")
        keys = indexed_keys(fold(key, "users"), len(self.users))
        answers = [labeller.answer(queries, keys[i]) for i, labeller in enumerate(self.users)]
        rows = jnp.arange(count)
        return Answers(
            jnp.stack([answer.label for answer in answers])[user, rows],
            jnp.stack([answer.is_labelled for answer in answers])[user, rows],
            user,
        )
