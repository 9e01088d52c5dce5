"""Two rooms: every step against a reference implementation, and shortest solutions by search."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from thespis.core.laws.components import check_environment
from thespis.papers.gmah.envs import GROUP, MOVES, ROOM_FEATURES, SWITCH_FEATURES, TwoRooms, TwoRoomsState

ENV = TwoRooms()
MAP = ["n..#..f", "...D...", "...#..."]
"""Near and far switch, wall, door."""
CELLS = [(r, c) for r in range(3) for c in range(7) if MAP[r][c] != "#"]


def reference_step(positions, actions):
    """Reference step: next positions of both agents, and whether the episode ends."""
    opened = any(MAP[r][c] in "nf" for r, c in positions)
    after = []
    for (r, c), action in zip(positions, actions, strict=True):
        target = r + MOVES[action][0], c + MOVES[action][1]
        inside = target[0] in range(3) and target[1] in range(7)
        free = inside and (
            target == (r, c) or (MAP[target[0]][target[1]] != "#" and (MAP[target[0]][target[1]] != "D" or opened))
        )
        after.append(target if free else (r, c))
    return tuple(after), all(c > 3 for _, c in after)


def batched_step(positions, actions):
    def step_from(position, action):
        return ENV.step(TwoRoomsState(position, jnp.zeros((), "int32")), {GROUP: action}, jax.random.key(0))

    return jax.jit(jax.vmap(step_from))(np.array(positions, "int32"), np.array(actions, "int32"))


def test_every_step_matches_the_reference():
    cases = itertools.product(itertools.product(CELLS, repeat=2), itertools.product(range(5), repeat=2))
    positions, actions = zip(*cases, strict=True)
    after, step = batched_step(positions, actions)
    expected = [reference_step(p, a) for p, a in zip(positions, actions, strict=True)]
    np.testing.assert_array_equal(after.positions, [w[0] for w in expected])
    np.testing.assert_array_equal(step.reward, [w[1] for w in expected])
    np.testing.assert_array_equal(step.terminated, [w[1] for w in expected])
    obs = np.asarray(step.observation[GROUP])
    flat = np.asarray(after.positions) @ [7, 1]
    np.testing.assert_array_equal(obs[:, 1, :21].argmax(-1), flat[:, 1])  # the agent itself comes first
    np.testing.assert_array_equal(obs[:, 1, 21:42].argmax(-1), flat[:, 0])
    on_switch = [[[MAP[r][c] == "n", MAP[r][c] == "f"] for r, c in w[0]] for w in expected]
    np.testing.assert_array_equal(obs[:, :, list(SWITCH_FEATURES)], on_switch)


def test_the_room_is_shown():
    env = TwoRooms(shows_room=True)
    state = TwoRoomsState(jnp.array([(1, 3), (0, 0)], "int32"), jnp.zeros((), "int32"))
    for column, action in ((4, 2), (3, 1), (2, 1)):
        state, step = env.step(state, {GROUP: jnp.array([action, 0], "int32")}, jax.random.key(0))
        near, far, room = np.asarray(step.observation[GROUP])[:, list(ROOM_FEATURES)].T
        assert state.positions[0, 1] == column and room.tolist() == [float(column > 3), 0.0]
        assert near.tolist() == [0, 1] and far.tolist() == [0, 0]


def shortest_solution(start, second=range(5)):
    """A shortest sequence of joint actions that ends the episode, by breadth-first search; ``None`` if there is none.

    The second agent chooses among ``second``.
    """
    paths, visited = [(start, ())], {start}
    while paths:
        next_paths = []
        for positions, path in paths:
            for actions in itertools.product(range(5), second):
                after, over = reference_step(positions, actions)
                if over:
                    return (*path, actions)
                if after not in visited:
                    visited.add(after)
                    next_paths.append((after, (*path, actions)))
        paths = next_paths
    return None


def test_shortest_solution_needs_both_agents_and_is_rewarded_at_the_end():
    """By hand: the second agent reaches the far switch in 5 steps, then the waiting first agent passes in 2 more."""
    start = (0, 0), (1, 2)
    solution = shortest_solution(start)
    assert len(solution) == 7
    state, rewards = TwoRoomsState(jnp.array(start, "int32"), jnp.zeros((), "int32")), []
    for actions in solution:
        state, step = ENV.step(state, {GROUP: jnp.array(actions, "int32")}, jax.random.key(0))
        rewards.append(float(step.reward))
    assert rewards == [0.0] * (len(solution) - 1) + [1.0]
    assert ENV.optimal_return() == sum(rewards)
    assert shortest_solution(start, second=(0,)) is None and shortest_solution(((1, 2), (0, 0)), second=(0,)) is None


def test_contract():
    check_environment(ENV)
    check_environment(TwoRooms(shows_room=True))
