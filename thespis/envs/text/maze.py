"""A maze, told in words: the agent hears where it is and which ways are open, and says a direction at a time.

``goal e5 at a2 open up left >`` is answered by ``up <end>``, then by ``goal e5 at a1 open right down >``. Whoever
reaches the goal within the turns earns 1. The layout is always the same; the goal, a corner, and the start are drawn
for every episode. The demonstrator knows the way from two cells of five and wanders in the others, so that to imitate
it is to reach the goal less than every second time. After LMRL-Gym's mazes (Abdulhai et al., 2023), whose messages also
repeat the goal; differs: smaller, cells are words, and goals vary.
"""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from thespis.core.keys import fold
from thespis.core.vocabulary import closed
from thespis.envs.text.signs import Signs
from thespis.envs.text.task import ASK, Heard, Manners, message

WAYS = ("up", "right", "down", "left")
_MOVES = np.array([[0, -1], [1, 0], [0, 1], [-1, 0]])


class Place(eqx.Module):
    """Cells, counted row by row."""

    at: Int[Array, "*episodes"]
    goal: Int[Array, "*episodes"]


class Maze(eqx.Module):
    """``size`` by ``size`` cells, in a share of which, always the same ones, the demonstrator is ``lost``.

    There its steps are random; elsewhere they are those of a shortest way, but for ``wandering``, a share of random
    ones.
    """

    size: int = eqx.field(static=True, default=5)
    turns: int = eqx.field(static=True, default=12)
    lost: float = 0.6
    wandering: float = 0.0

    @property
    def manners(self) -> Manners:
        """Directions, cells (a column's letter and a row's number) and four words more."""
        cells = (f"{chr(ord('a') + cell % self.size)}{cell // self.size + 1}" for cell in range(self.size**2))
        words = (ASK, "goal", "at", "open", *WAYS, *cells)
        return Manners("text:maze", closed(words), self.turns, utterance=2, opening=10, answer=10, choices=WAYS)

    @property
    def goals(self) -> Signs:
        """Any cell could have been the goal, and every message says which one is."""
        told = self.manners
        return Signs(told.id("goal"), told.id("at"), told.vocabulary.stop)

    def begin(self, key: Key[Array, ""]) -> tuple[Place, Int[Array, " opening"]]:
        """The goal in a corner, the start in any other cell."""
        cells, edge = self.size**2, self.size - 1
        goal = jax.random.choice(fold(key, "goal"), jnp.array([0, edge, cells - 1 - edge, cells - 1]))
        at = (goal + jax.random.randint(fold(key, "at"), (), 1, cells)) % cells
        place = Place(at, goal)
        return place, self._where(place)

    def hear(self, state: Place, said: Int[Array, " utterance"], key: Key[Array, ""]) -> tuple[Place, Heard]:
        """A step, if it is one and the way is open."""
        told, ways = self.manners, jnp.asarray(self.manners.ids(" ".join(WAYS)))
        way = jnp.argmax(ways == said[0])
        goes = (ways == said[0]).any() & (said[1] == told.vocabulary.stop[0])
        open_, _ = layout(self.size)
        goes &= jnp.asarray(open_)[state.at, way]
        step = jnp.asarray(_MOVES @ np.array([1, self.size]))[way]
        at = state.at + jnp.where(goes, step, 0)
        arrived, place = at == state.goal, Place(at, state.goal)
        answer = jnp.where(arrived, -1, self._where(place))
        return place, Heard(answer, arrived.astype("float32"), arrived)

    def expert(self, state: Place, key: Key[Array, ""]) -> Int[Array, " utterance"]:
        """A step of a shortest way, or any open one."""
        open_, ahead = layout(self.size)
        cells = np.random.default_rng(0).permutation(self.size**2)
        lost = jnp.asarray(cells < round(self.lost * self.size**2))[state.at]
        lot = jax.random.categorical(fold(key, "lot"), jnp.where(jnp.asarray(open_)[state.at], 0.0, -jnp.inf))
        wanders = jax.random.uniform(fold(key, "wander")) < self.wandering
        way = jnp.where(lost | wanders, lot, jnp.asarray(ahead)[state.goal, state.at])
        ways = jnp.asarray(self.manners.ids(" ".join(WAYS)))
        return jnp.stack([ways[way], jnp.asarray(self.manners.vocabulary.stop[0], "int32")])

    def _where(self, place: Place) -> Int[Array, " answer"]:
        told, first = self.manners, self.manners.id("a1")
        ways = jnp.where(jnp.asarray(layout(self.size)[0])[place.at], told.ids(" ".join(WAYS)), -1)
        where = (told.ids("goal"), first + place.goal, told.ids("at"), first + place.at)
        return message(told.answer, *where, told.ids("open"), ways, told.ids(ASK))


@functools.cache
def layout(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Which ways are open ``[cell, way]``, and the first way of a shortest path ``[goal, cell]``.

    A spanning tree, dug depth first with a fixed generator, and one more opening for every five cells.
    """
    rng, cells = np.random.default_rng(5), size**2
    open_ = np.zeros((cells, 4), bool)

    def beside(cell: int, way: int) -> int | None:
        x, y = np.array([cell % size, cell // size]) + _MOVES[way]
        return int(y * size + x) if 0 <= x < size and 0 <= y < size else None

    def dig(cell: int, way: int, other: int) -> None:
        open_[cell, way] = open_[other, (way + 2) % 4] = True

    path, seen = [0], {0}
    while path:
        ways = [(w, c) for w in range(4) if (c := beside(path[-1], w)) is not None and c not in seen]
        if not ways:
            path.pop()
            continue
        way, cell = ways[rng.integers(len(ways))]
        dig(path[-1], way, cell)
        seen.add(cell)
        path.append(cell)
    shut = [(c, w, o) for c in range(cells) for w in (1, 2) if (o := beside(c, w)) is not None and not open_[c, w]]
    for i in rng.permutation(len(shut))[: cells // 5]:
        dig(*shut[i])

    ahead = np.zeros((cells, cells), "int32")
    for goal in range(cells):
        queue, reached = [goal], {goal}
        for cell in queue:
            for way in range(4):
                other = beside(cell, way)
                if open_[cell, way] and other is not None and other not in reached:
                    ahead[goal, other] = (way + 2) % 4
                    reached.add(other)
                    queue.append(other)
    return open_, ahead
