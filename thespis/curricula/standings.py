"""What is known of a league: its members, and the points of every learner against each of them."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from thespis.core.records import Report
from thespis.curricula.fixed import repeat
from thespis.curricula.matchmaking import Role, Roll


class Standings(eqx.Module):
    """A league under way. Which member is whose: ``roll``."""

    policies: PyTree
    """Leaves ``[member, ...]``."""
    generations: Int[Array, "*seed"]
    """How many have joined; the first, number 0, plays at random."""
    rollouts: Int[Array, "*seed"]
    points: Float[Array, "*seed learner member"]
    """What each learner has won against each member: a win is 1, a draw 1/2; recent games count more."""
    chances: Float[Array, "*seed learner member"]
    """How likely each learner meets each member until the next update."""
    roll: Roll = eqx.field(static=True)

    @property
    def there(self) -> Bool[Array, " member"]:
        """Which members have joined."""
        return jnp.arange(self.roll.size) < self.roll.mains + self.generations * len(self.roll.roles)

    @property
    def beginners(self) -> Bool[Array, " member"]:
        """Who plays at random: all until the first rollout has ended, then the first generation while it is kept."""
        first = self.roll.past & (jnp.arange(self.roll.size) < self.roll.mains + len(self.roll.roles))
        return (self.rollouts == 0) | (first & (self.generations <= self.roll.copies))

    def met(self, points: Float[Array, "learner member"], now: PyTree) -> Standings:
        """After a rollout: with other points, and with main agents as they played in it (``now``, leaves [learner])."""
        mains = self.roll.mains
        policies = jax.tree.map(lambda held, one: held.at[:mains].set(one[:mains]), self.policies, now)
        return Standings(policies, self.generations, self.rollouts + 1, points, self.chances, self.roll)

    def joined(self, now: PyTree, again: Bool[Array, " learner"]) -> Standings:
        """With a copy of every learner in the places of the oldest.

        Of games against a copy is known what was of those against its original, as far as one of the two is a main
        agent. Learners that begin ``again`` are even with all.
        """
        roll, count, at = self.roll, len(self.roll.roles), self.roll.place(self.generations)
        put = functools.partial(jax.lax.dynamic_update_slice_in_dim, start_index=at, axis=0)
        policies = jax.tree.map(put, self.policies, now)
        against = self.points[:, : roll.mains]
        even = jnp.full((count, count), 0.5)
        found = even.at[: roll.mains].set(1.0 - against.T).at[:, : roll.mains].set(against)
        points = jnp.where(again[:, None], 0.5, jax.lax.dynamic_update_slice(self.points, found, (0, at)))
        return Standings(policies, self.generations + 1, self.rollouts, points, self.chances, roll)

    def report(self, points: Float[Array, "learner member"]) -> Report:
        """Points expected of each kind of learner against whom it met, and of exploiters against main agents of now."""
        expected = jnp.sum(self.chances * points, axis=1)
        kinds = {role: np.array([each is role for each in self.roll.roles]) for role in Role}
        found = {f"{role.value}_points": jnp.mean(expected[kind]) for role, kind in kinds.items() if kind.any()}
        if (kind := kinds[Role.MAIN_EXPLOITER]).any():
            found["exploited"] = jnp.mean(points[kind][:, : self.roll.mains])
        return Report(found | {"generations": self.generations.astype("float32")})


def begin(roll: Roll, policy: PyTree) -> Standings:
    """A league whose members play at random, each with ``policy`` in its place."""
    even, zero = jnp.full((len(roll.roles), roll.size), 0.5), jnp.zeros((), "int32")
    return Standings(repeat(policy, roll.size), zero + 1, zero, even, even, roll)
