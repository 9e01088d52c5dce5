"""Maze task in text: the agent reads its position and the open directions, and says one direction per turn.

``goal e5 at a2 open up left >`` is answered by ``up <end>``, then by ``goal e5 at a1 open right down >``. Reaching the
goal within the turns earns 1. The layout is always the same; the goal, a corner, and the start are sampled for every
episode. The demonstrator knows the way from two cells of five and moves at random in the others, so that imitating it
reaches the goal in less than half of the episodes. After LMRL-Gym's mazes (Abdulhai et al., 2023), whose messages also
repeat the goal. Differs from them: smaller, cells are words, and goals vary.
"""

from __future__ import annotations

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from thespis.core.spaces import word_vocabulary
from thespis.envs.text.task import RESPONSE_CUE, TaskSpec, TaskStep, pack_tokens
from thespis.runtime.keys import fold


@dataclasses.dataclass(frozen=True)
class MazeGoalRelabeler:
    """Goal relabeler for hindsight relabeling of maze transcripts, whose goals are one token.

    Reaching the goal ends the episode.

    ``goal_token`` and ``position_token``: the words that stand before the goal and the position in a message, the goal
    first. ``eos_tokens``: tokens that end a response. Responses should contain neither of the two words; the listed
    ones do not.
    """

    goal_token: int
    position_token: int
    eos_tokens: tuple[int, ...]
    goal_reward: float = 1.0

    def achieved_goal(self, transcript: Int[Array, " time"]) -> Int[Array, ""]:
        """The last position that was reported; the goal, if the last response has no answer."""
        is_eos = jnp.isin(transcript, jnp.asarray(self.eos_tokens))
        unanswered = _last(is_eos) > _last(transcript == self.position_token)
        return transcript[_last(transcript == jnp.where(unanswered, self.goal_token, self.position_token)) + 1]

    def relabel(
        self, transcript: Int[Array, " time"], goal: Int[Array, ""]
    ) -> tuple[Int[Array, " time"], Bool[Array, ""]]:
        """Replace the goal in all messages, and cut the transcript at the response that reaches it."""
        positions = jnp.arange(transcript.shape[0])
        previous = jnp.pad(transcript, (1, 0), constant_values=-1)[:-1]
        arrived = (previous == self.position_token) & (transcript == goal)
        message_starts = (transcript == self.goal_token) & (positions <= jnp.argmax(arrived))
        length = jnp.where(arrived.any(), _last(message_starts), transcript.shape[0])
        relabeled = jnp.where(previous == self.goal_token, goal, transcript)
        return jnp.where(positions < length, relabeled, -1), arrived.any() | (self.achieved_goal(transcript) == goal)


def _last(marks: Bool[Array, " time"]) -> Int[Array, ""]:
    """The index of the last mark; -1 if there is none."""
    return jnp.max(jnp.where(marks, jnp.arange(marks.shape[0]), -1))


DIRECTIONS = ("up", "right", "down", "left")
MOVES = np.array([[0, -1], [1, 0], [0, 1], [-1, 0]])
"""Change of column and row in each direction."""


class MazeState(eqx.Module):
    """State of one episode: position and goal as cell indices, counted row by row."""

    position: Int[Array, "*episodes"]
    goal: Int[Array, "*episodes"]


class Maze(eqx.Module):
    """Maze task: walk to a goal in a maze of ``size`` by ``size`` cells.

    ``demonstrator_random_cells``: the share of cells, always the same ones, in which the demonstrator moves at random;
    elsewhere it follows a shortest path, except in a share ``demonstrator_noise`` of its moves, which are random.
    """

    size: int = eqx.field(static=True, default=5)
    max_turns: int = eqx.field(static=True, default=12)
    demonstrator_random_cells: float = 0.6
    demonstrator_noise: float = 0.0

    @property
    def task_spec(self) -> TaskSpec:
        """Directions, cells (a column's letter and a row's number) and four more words."""
        cells = (f"{chr(ord('a') + cell % self.size)}{cell // self.size + 1}" for cell in range(self.size**2))
        words = (RESPONSE_CUE, "goal", "at", "open", *DIRECTIONS, *cells)
        return TaskSpec(
            "text:maze",
            word_vocabulary(words),
            self.max_turns,
            max_response_tokens=2,
            max_opening_tokens=10,
            max_message_tokens=10,
            choices=DIRECTIONS,
        )

    @property
    def goal_relabeler(self) -> MazeGoalRelabeler:
        """Goals are cells, named in every message."""
        spec = self.task_spec
        return MazeGoalRelabeler(spec.encode_word("goal"), spec.encode_word("at"), spec.vocabulary.eos_tokens)

    def init(self, key: Key[Array, ""]) -> tuple[MazeState, Int[Array, " opening"]]:
        """The goal in a corner, the start in any other cell."""
        cells, edge = self.size**2, self.size - 1
        goal = jax.random.choice(fold(key, "goal"), jnp.array([0, edge, cells - 1 - edge, cells - 1]))
        position = (goal + jax.random.randint(fold(key, "at"), (), 1, cells)) % cells
        state = MazeState(position, goal)
        return state, self._describe(state)

    def step(
        self, state: MazeState, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[MazeState, TaskStep]:
        """Move, if the response is a direction that is open."""
        spec, directions = self.task_spec, jnp.asarray(self.task_spec.encode(" ".join(DIRECTIONS)))
        direction = jnp.argmax(directions == response[0])
        moves = (directions == response[0]).any() & (response[1] == spec.vocabulary.eos_tokens[0])
        open_, _ = maze_layout(self.size)
        moves &= jnp.asarray(open_)[state.position, direction]
        step = jnp.asarray(MOVES @ np.array([1, self.size]))[direction]
        position = state.position + jnp.where(moves, step, 0)
        arrived, new_state = position == state.goal, MazeState(position, state.goal)
        message = jnp.where(arrived, -1, self._describe(new_state))
        return new_state, TaskStep(message, arrived.astype("float32"), arrived)

    def demonstrator_response(self, state: MazeState, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The next step of a shortest path, or any open direction."""
        is_open, first_directions = maze_layout(self.size)
        cells = np.random.default_rng(0).permutation(self.size**2)
        is_random_cell = jnp.asarray(cells < round(self.demonstrator_random_cells * self.size**2))[state.position]
        random_direction = jax.random.categorical(
            fold(key, "lot"), jnp.where(jnp.asarray(is_open)[state.position], 0.0, -jnp.inf)
        )
        is_noise = jax.random.uniform(fold(key, "wander")) < self.demonstrator_noise
        direction = jnp.where(
            is_random_cell | is_noise, random_direction, jnp.asarray(first_directions)[state.goal, state.position]
        )
        tokens = jnp.asarray(self.task_spec.encode(" ".join(DIRECTIONS)))
        return jnp.stack([tokens[direction], jnp.asarray(self.task_spec.vocabulary.eos_tokens[0], "int32")])

    def _describe(self, place: MazeState) -> Int[Array, " message"]:
        spec, first = self.task_spec, self.task_spec.encode_word("a1")
        directions = jnp.where(
            jnp.asarray(maze_layout(self.size)[0])[place.position], spec.encode(" ".join(DIRECTIONS)), -1
        )
        goal_and_position = (spec.encode("goal"), first + place.goal, spec.encode("at"), first + place.position)
        return pack_tokens(
            spec.max_message_tokens, *goal_and_position, spec.encode("open"), directions, spec.encode(RESPONSE_CUE)
        )


@functools.cache
def maze_layout(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Maze layout: open directions ``[cell, direction]``, and the first direction of a shortest path ``[goal, cell]``.

    The layout is a spanning tree, built depth first with a fixed generator, plus one more opening for every five cells.
    """
    rng, cells = np.random.default_rng(5), size**2
    is_open = np.zeros((cells, 4), bool)

    def neighbor(cell: int, way: int) -> int | None:
        x, y = np.array([cell % size, cell // size]) + MOVES[way]
        return int(y * size + x) if 0 <= x < size and 0 <= y < size else None

    def connect(cell: int, way: int, other: int) -> None:
        is_open[cell, way] = is_open[other, (way + 2) % 4] = True

    path, visited = [0], {0}
    while path:
        neighbors = [(w, c) for w in range(4) if (c := neighbor(path[-1], w)) is not None and c not in visited]
        if not neighbors:
            path.pop()
            continue
        way, cell = neighbors[rng.integers(len(neighbors))]
        connect(path[-1], way, cell)
        visited.add(cell)
        path.append(cell)
    walls = [(c, w, o) for c in range(cells) for w in (1, 2) if (o := neighbor(c, w)) is not None and not is_open[c, w]]
    for i in rng.permutation(len(walls))[: cells // 5]:
        connect(*walls[i])

    first_directions = np.zeros((cells, cells), "int32")
    for goal in range(cells):
        queue, reached = [goal], {goal}
        for cell in queue:
            for way in range(4):
                other = neighbor(cell, way)
                if is_open[cell, way] and other is not None and other not in reached:
                    first_directions[goal, other] = (way + 2) % 4
                    reached.add(other)
                    queue.append(other)
    return is_open, first_directions
