"""How methods that learn values of choices act: the best choice, or now and then a random one.

Several nets may have learnt such values side by side. One of them decides while it explores, and who that is, is a
part; all of them decide together, by the mean of their values, where the best is asked for.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.actors.greedy import epsilon_greedy
from thespis.actors.heads import act_rows
from thespis.core.contracts import Mode
from thespis.core.records import View
from thespis.learners.choices import legal_values
from thespis.learners.gradient import Number

_NOBODY = -1


class EachStep(eqx.Module):
    """Another member at each step, drawn uniformly."""

    def begin(self, n: int) -> tuple[()]:
        """Nothing is remembered."""
        return ()

    def drawn(self, memory: tuple[()], members: int, key: Key[Array, ""]) -> tuple[Int[Array, ""], tuple[()]]:
        """Who decides now, and what is remembered of it."""
        return jax.random.randint(key, (), 0, members, "int32"), memory


class EachEpisode(eqx.Module):
    """One member for a whole episode, drawn uniformly at its first step."""

    def begin(self, n: int) -> Int[Array, " n"]:
        """Nobody is drawn yet."""
        return jnp.full(n, _NOBODY, "int32")

    def drawn(self, memory: Int[Array, ""], members: int, key: Key[Array, ""]) -> tuple[Int[Array, ""], Int[Array, ""]]:
        """Who decides now, and what is remembered of it."""
        member = jnp.where(memory == _NOBODY, jax.random.randint(key, (), 0, members, "int32"), memory)
        return member, member


Turns = EachStep | EachEpisode


class GreedyPolicy(eqx.Module):
    """Nets with an axis of members in front, and the present epsilon."""

    critic: PyTree
    epsilon: Float[Array, ""]
    mode: Mode = eqx.field(static=True)

    @property
    def members(self) -> int:
        """How many nets there are."""
        return jax.tree.leaves(self.critic)[0].shape[0]

    @property
    def alone(self) -> bool:
        """Whether one member decides out of several."""
        return self.members > 1 and self.mode is not Mode.EXPLOIT


class EpsilonGreedy(eqx.Module):
    """How a method with values of choices acts; a concrete method adds what it learns, in a state like ``ChoiceState``.

    Of what stands here only :meth:`pick` may be overridden.
    """

    turns: eqx.AbstractVar[Turns]

    first_epsilon: Number = 1.0
    """Chance of a random choice before the first update."""
    last_epsilon: Number = 0.05
    """Chance of a random choice after ``epsilon_updates`` updates."""
    epsilon_updates: Number = 10_000.0
    """Updates over which the chance falls, linearly."""

    def policy(self, state: Any, mode: Mode) -> GreedyPolicy:
        """The nets and epsilon: falling while it explores, the last one when sampled, 0 when greedy."""
        progress = jnp.clip(state.updates / self.epsilon_updates, 0.0, 1.0)
        falling = self.first_epsilon + progress * (self.last_epsilon - self.first_epsilon)
        epsilon = {Mode.EXPLORE: falling, Mode.SAMPLE: self.last_epsilon, Mode.EXPLOIT: 0.0}[mode]
        return GreedyPolicy(state.critic, jnp.asarray(epsilon, "float32"), mode)

    def begin(self, policy: GreedyPolicy, n: int) -> Any:
        """Who decides, if that is one of several."""
        return self.turns.begin(n) if policy.alone else ()

    def act(self, policy: GreedyPolicy, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """The best legal choice, or a random legal one with chance epsilon."""

        def one(memory, view, key):
            values = legal_values(policy.critic, view)
            if policy.alone:
                member_key, key = jax.random.split(key)
                member, memory = self.turns.drawn(memory, policy.members, member_key)
                values = values[member]
            else:
                values = jnp.mean(values, axis=0)
            return self.pick(policy, values, view, key), memory, ()

        return act_rows(one, memory, view, key)

    def pick(self, policy: GreedyPolicy, values: Float[Array, " n"], view: View, key: Key[Array, ""]) -> PyTree:
        """The action: one choice by its values, those of illegal choices far below any other."""
        return epsilon_greedy(values, view.legal, policy.epsilon, key)
