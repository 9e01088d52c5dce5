"""Who can sit in the seats of a world of many agents: trained runs, chance, and whatever has these two functions."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
from jaxtyping import Array, Key, PyTree

from thespis.core.agents import Group, per_group
from thespis.core.contracts import Game, Method, Mode
from thespis.core.game_trees import game_tree
from thespis.core.game_walks import uniform
from thespis.core.keys import fold
from thespis.core.records import EnvSpec, View
from thespis.core.spaces import Space, random_action, to_world
from thespis.evaluation.exploitability import Judgement, judge, judge_method


@runtime_checkable
class Player(Protocol):
    """Acts for all seats at once; whoever asks takes the actions of the seats that the player sits in.

    A pytree of arrays, or an object without any.
    """

    def begin(self, n: int) -> PyTree:
        """Memory of ``n`` fresh games, leading axis ``n``; ``()`` if there is none."""
        ...

    def act(self, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any]:
        """Actions ``[n, agent, ...]`` by group, in the world's units, and the memory after them."""
        ...


@runtime_checkable
class Judged(Protocol):
    """A player that can be judged exactly where a game is small."""

    def judged(self, game: Game) -> Judgement:
        """All seats of it against best replies. Raises ``UserError`` where this cannot be computed."""
        ...


class Trained(eqx.Module):
    """What a method for many agents has learnt."""

    method: Method
    state: PyTree
    mode: Mode = eqx.field(static=True)
    action: Space = eqx.field(static=True)

    def begin(self, n: int) -> PyTree:
        """The method's memory."""
        return self.method.begin(self.method.policy(self.state, self.mode), n)

    def act(self, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any]:
        """The method's actions."""
        action, memory, _ = self.method.act(self.method.policy(self.state, self.mode), memory, view, key)
        return to_world(self.action, action), memory

    def judged(self, game: Game) -> Judgement:
        """By the probabilities that the method tells."""
        return judge_method(self.method, jax.tree.map(lambda x: x[None], self.state), game, self.mode)[0]


class Random(eqx.Module):
    """Any legal action, all alike."""

    action: Space = eqx.field(static=True)
    groups: tuple[Group, ...] = eqx.field(static=True)

    @classmethod
    def of(cls, spec: EnvSpec) -> Random:
        """For one world."""
        return cls(spec.action, spec.groups)

    def judged(self, game: Game) -> Judgement:
        """By equal probabilities."""
        tree = game_tree(game)
        return judge(tree, uniform(tree))

    def begin(self, n: int) -> PyTree:
        """Nothing to remember."""
        return ()

    def act(self, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any]:
        """Actions drawn anew."""
        alive: Any = view.alive
        rows = next(iter(alive.values())).shape[0]
        keys = {group.name: fold(key, group.name) for group in self.groups}

        def draw(space: Space, axes: tuple[int, ...], legal: PyTree, key: Key[Array, ""]) -> PyTree:
            each = jax.vmap(jax.vmap(lambda key, legal: random_action(space, key, legal)))
            return to_world(space, each(jax.random.split(key, (rows, *axes)), legal))

        return per_group(self.groups, self.action, draw, view.legal, keys), memory
