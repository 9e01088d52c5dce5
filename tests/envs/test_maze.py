"""Maze: steps against an independent simulation in numpy and recorded play of jaxued; one-line errors."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.errors import UserError
from thespis.core.laws.components import check_environment
from thespis.envs.compiled.maze import Maze
from thespis.envs.compiled.maze_drawing import TILE_PIXELS
from thespis.envs.compiled.maze_levels import MAZES, TEST_MAZE_NAMES, MazeLevel, MazeLevels, format_level, parse_level
from thespis.envs.registry import list_envs, make_compiled, make_host, resolve_env

FREE, WALL, GOAL = np.eye(3, dtype="float32")
MOVES = {0: (0, 1), 1: (1, 0), 2: (0, -1), 3: (-1, 0)}


class NumpyMaze:
    """The rules in numpy, with a padded map that is cut and rotated: names of cells in place of index arithmetic."""

    def __init__(self, level, view_size, time_limit):
        self.map = np.pad(np.where(level.walls, "#", "."), view_size, constant_values="#")
        self.pad, self.view_size, self.time_limit, self.time = view_size, view_size, time_limit, 0
        self.position, self.direction = np.asarray(level.agent) + view_size, int(level.direction)
        self.map[tuple(np.asarray(level.goal) + view_size)] = "G"

    def observe(self):
        north_up = np.rot90(self.map, (self.direction + 1) % 4)  # turned until the agent looks up
        row, column = np.argwhere(np.rot90(self._agent_mask(), (self.direction + 1) % 4))[0]
        half = self.view_size // 2
        view = north_up[row - self.view_size + 1 : row + 1, column - half : column + half + 1]
        return np.select([(view == "#")[..., None], (view == "G")[..., None]], [WALL, GOAL], FREE)

    def _agent_mask(self):
        mask = np.zeros(self.map.shape, bool)
        mask[tuple(self.position)] = True
        return mask

    def step(self, action):
        self.time += 1
        reward, terminated = 0.0, False
        if action == 0:
            self.direction = (self.direction + 3) % 4
        elif action == 1:
            self.direction = (self.direction + 1) % 4
        elif action == 2:
            ahead = self.position + MOVES[self.direction]
            if self.map[tuple(ahead)] == "G":
                reward, terminated = 1 - 0.9 * self.time / self.time_limit, True
            elif self.map[tuple(ahead)] == ".":
                self.position = ahead
        return reward, terminated, not terminated and self.time >= self.time_limit


def play(env, levels, actions):
    """First time steps ``[level]``, and those after each of ``actions`` ``[level, time]``; nothing is reset."""

    @jax.jit
    @jax.vmap
    def run(level, actions):
        state, first = env.reset(level, jax.random.key(0))
        return first, jax.lax.scan(lambda s, a: env.step(s, a, jax.random.key(0)), state, actions)[1]

    return jax.tree.map(np.asarray, run(levels, actions))


def sample_levels(levels, n, seed=0):
    return jax.jit(jax.vmap(levels.sample))(jax.random.split(jax.random.key(seed), n))


def test_contract():
    check_environment(Maze(">.#/..G", num_walls=3, time_limit=7), num_steps=20)


@pytest.mark.slow
def test_contract_with_defaults():
    check_environment(Maze())


@pytest.mark.long
@pytest.mark.parametrize(
    "env",
    [
        Maze(time_limit=150),
        Maze("/".join([">...", *["...."] * 6, "...G"]), num_walls=8, view_size=3, time_limit=40, num_actions=7),
        Maze(">.G", num_walls=1, view_size=7, time_limit=5),
    ],
)
def test_steps_match_numpy(env):
    rng, num, length = np.random.default_rng(0), 40, env.time_limit
    levels = sample_levels(env.levels, num)
    actions = np.where(
        rng.random((num, length)) < 0.5, 2, rng.integers(0, env.num_actions, (num, length), "int32")
    ).astype("int32")
    first, steps = play(env, levels, actions)
    num_goals = 0
    for i in range(num):
        level = jax.tree.map(lambda x, i=i: np.asarray(x)[i], levels)
        simulation = NumpyMaze(level, env.view_size, env.time_limit)
        np.testing.assert_array_equal(first.observation["image"][i], simulation.observe())
        assert first.observation["direction"][i] == simulation.direction
        for t in range(length):
            reward, terminated, truncated = simulation.step(actions[i, t])
            assert steps.reward[i, t] == pytest.approx(reward, abs=1e-6)
            assert (steps.terminated[i, t], steps.truncated[i, t]) == (terminated, truncated)
            assert steps.observation["direction"][i, t] == simulation.direction
            np.testing.assert_array_equal(steps.observation["image"][i, t], simulation.observe())
            if terminated or truncated:
                num_goals += terminated
                break
        else:
            pytest.fail("an episode must end at its time limit")
    assert 2 <= num_goals < num


RECORDED = dict(np.load(Path(__file__).parent / "data" / "jaxued_maze.npz"))


def recorded_levels():
    return jax.vmap(MazeLevel)(
        jnp.asarray(RECORDED["walls"]),
        jnp.asarray(RECORDED["agent_xy"][:, ::-1], "int32"),
        jnp.asarray(RECORDED["agent_direction"], "int32"),
        jnp.asarray(RECORDED["goal_xy"][:, ::-1], "int32"),
    )


def test_steps_match_jaxued():
    """Observations, rewards and ends of 24 recorded episodes; see the notes beside the data."""
    object_kinds = {1: FREE, 2: WALL, 8: GOAL}
    colours = {1: 0, 2: 5, 8: 1}
    first, steps = play(Maze(num_actions=7), recorded_levels(), jnp.asarray(RECORDED["action"], "int32"))
    ends = {"goal": 0, "limit": 0}
    for i, length in enumerate(RECORDED["length"]):
        recorded = RECORDED["image"][i, : length + 1].swapaxes(1, 2)
        assert all((recorded[..., 1][recorded[..., 0] == kind] == colour).all() for kind, colour in colours.items())
        expected = np.zeros((*recorded.shape[:-1], 3), "float32")
        for kind, one_hot in object_kinds.items():
            expected[recorded[..., 0] == kind] = one_hot
        observed = jax.tree.map(
            lambda a, b, i=i, length=length: np.concatenate([a[i][None], b[i, :length]]),
            first.observation,
            steps.observation,
        )
        np.testing.assert_array_equal(observed["image"], expected)
        np.testing.assert_array_equal(observed["direction"], RECORDED["direction"][i, : length + 1])
        np.testing.assert_allclose(steps.reward[i, :length], RECORDED["reward"][i, :length], rtol=1e-6)
        done = (steps.terminated | steps.truncated)[i, :length]
        assert done.tolist() == [False] * (length - 1) + [True]
        assert steps.terminated[i, length - 1] == (RECORDED["reward"][i, length - 1] > 0)
        ends["goal" if steps.terminated[i, length - 1] else "limit"] += 1
    assert ends == {"goal": 16, "limit": 8}


def test_mazes_match_jaxued():
    assert RECORDED["names"].tolist() == list(TEST_MAZE_NAMES)
    recorded = recorded_levels()
    for i, name in enumerate(TEST_MAZE_NAMES):
        level = jax.tree.map(lambda x, i=i: x[i], recorded)
        jax.tree.map(np.testing.assert_array_equal, make_compiled(f"thespis:maze?level={name}").spec.params, level)


def test_goal_in_the_last_step_terminates():
    env = Maze(">.G", num_walls=0, time_limit=2)
    level = jax.tree.map(lambda x: x[None], env.spec.params)
    _, steps = play(env, level, jnp.array([[2, 2]]))
    assert steps.terminated.tolist() == [[False, True]] and not steps.truncated.any()
    assert steps.reward[0].tolist() == [0.0, pytest.approx(0.1)]
    _, steps = play(env, level, jnp.array([[2, 1]]))
    assert steps.truncated.tolist() == [[False, True]] and not steps.terminated.any() and not steps.reward.any()


def test_registry_names():
    assert make_compiled("thespis:maze") == Maze() and resolve_env("thespis:maze").kind == "compiled"
    env = make_compiled("thespis:maze?level=Labyrinth&num_walls=25&vary_num_walls=False")
    assert env == Maze("Labyrinth", 25, False)
    assert env.levels == MazeLevels((13, 13), 25, False)
    assert format_level(env.spec.params) == MAZES["Labyrinth"]
    sizes = {level: Maze(level).levels for level in ("Empty", ">G", ">../..G")}
    assert [(levels.shape, levels.num_walls) for levels in sizes.values()] == [((13, 13), 60), ((1, 2), 0), ((2, 3), 2)]
    assert {"thespis:maze"} | {f"thespis:maze?level={name}" for name in TEST_MAZE_NAMES} <= set(list_envs())
    assert make_host("thespis:maze?level=StandardMaze", 2).spec.params.walls.sum() > 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("thespis:mase", "did you mean thespis:maze"),
        ("thespis:maze?level=Labyrint", "unknown maze 'Labyrint'; did you mean Labyrinth"),
        ("thespis:maze?level=>./G", "rows of equal length"),
        ("thespis:maze?level=>.>G", "one agent"),
        ("thespis:maze?level=>..", "one goal"),
        ("thespis:maze?view_size=4", "odd number"),
        ("thespis:maze?num_actions=2", "num_actions of at least 3"),
        ("thespis:maze?num_walls=168", "give 0 to 167"),
    ],
)
def test_mistakes_are_reported(name, message):
    with pytest.raises(UserError, match=message) as caught:
        make_compiled(name)
    assert "\n" not in str(caught.value)


def test_texts_round_trip():
    for text in [*MAZES.values(), "^.#\nG.."]:
        assert format_level(parse_level(text)) == text
    level = parse_level("^.#/G..")
    assert level.walls.tolist() == [[False, False, True], [False, False, False]]
    assert (level.agent.tolist(), int(level.direction), level.goal.tolist()) == ([0, 0], 3, [1, 0])


def test_pictures_show_walls_goal_agent_and_view():
    env = Maze(">.#/..G", num_walls=1, view_size=3)
    state, _ = env.reset(env.spec.params, jax.random.key(0))
    picture = np.asarray(env.render(state))
    assert picture.shape == (4 * TILE_PIXELS, 5 * TILE_PIXELS, 3) and picture.dtype == "uint8"
    tiles = picture.reshape(4, TILE_PIXELS, 5, TILE_PIXELS, 3).swapaxes(1, 2)
    middle = tiles[:, :, TILE_PIXELS // 2, TILE_PIXELS // 2].astype(int)
    seen = np.zeros((4, 5), bool)
    seen[0:3, 1:4] = True  # two rows of the maze and the wall above them, from the agent's column on
    wall, free, goal, agent = ((100, 100, 100), (0, 0, 0), (0, 200, 0), (230, 40, 30))
    plain = np.array([[wall] * 5, [wall, agent, free, wall, wall], [wall, free, free, goal, wall], [wall] * 5])
    np.testing.assert_array_equal(middle, np.where(seen[..., None], plain + (255 - plain) * 3 // 10, plain))
    turned, _ = env.step(state, jnp.int32(1), jax.random.key(0))
    arrow = (tiles[1, 1] == tiles[1, 1, TILE_PIXELS // 2, TILE_PIXELS // 2]).all(-1)
    below = np.asarray(env.render(turned))[TILE_PIXELS : 2 * TILE_PIXELS, TILE_PIXELS : 2 * TILE_PIXELS]
    np.testing.assert_array_equal(
        (below == tiles[1, 1, TILE_PIXELS // 2, TILE_PIXELS // 2]).all(-1), np.rot90(arrow, 3)
    )
