"""COACH, TAMER and Q-learning by a trainer's feedback: trainers, updates and delays by other computations."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.laws.components import check_environment, check_method
from thespis.core.records import Batch, Transition, View
from thespis.envs.registry import make_compiled
from thespis.papers.coach.envs import GOAL, NUM_CELLS, START, WIDTH, PathGrid
from thespis.papers.coach.measures import missed_goals, normalized_return
from thespis.papers.coach.method import Coach, FeedbackQLearning, Tamer, Visit, greedy_with_ties
from thespis.papers.coach.trainers import (
    ActionFeedback,
    AdvantageFeedback,
    ImprovementFeedback,
    TaskFeedback,
    advantages,
    optimal_actions,
    policy_state_values,
)

GRID = PathGrid()
TABLES = GRID.tables
DISCOUNT = 0.95
UP, DOWN, LEFT, RIGHT = range(4)
LEARNERS = (Coach(), Tamer(), FeedbackQLearning())


@pytest.fixture
def probs():
    return jax.nn.softmax(jax.random.normal(jax.random.key(0), (NUM_CELLS, 4)))


def path_batch(cells, actions, update_index=0):
    """Consecutive steps of one environment."""
    cells, actions = np.asarray(cells), np.asarray(actions, "int32")
    following = np.asarray(TABLES.next_state)[cells, actions]
    done = np.asarray(TABLES.is_terminal)[following]
    column = (len(cells), 1)
    steps = Transition(
        View(jax.nn.one_hot(cells, NUM_CELLS)[:, None]),
        jnp.asarray(actions).reshape(column),
        jnp.full(column, 7.0),
        jnp.asarray(done).reshape(column),
        jnp.zeros(column, bool),
        View(jax.nn.one_hot(following, NUM_CELLS)[:, None]),
        jnp.zeros(column, bool),
    )
    return Batch(steps, jnp.ones(column, bool), (), jnp.asarray(update_index))


def train_on(method, cells, actions):
    """One update for each step, from a table of zeros."""
    state = method.init(GRID.spec, jax.random.key(0))
    for cell, action in zip(cells, actions, strict=True):
        state, report = method.update(state, path_batch([cell], [action]), jax.random.key(1))
    return state, report


def test_grid_keeps_its_laws():
    check_environment(GRID)


@pytest.mark.parametrize("method", LEARNERS, ids=lambda method: method.name)
def test_learners_keep_their_laws(method):
    check_method(method, GRID.spec)
    with pytest.raises(UserError, match="tells no tables"):
        method.init(make_compiled("CartPole-v1").spec, jax.random.key(0))


def test_best_way_goes_around_the_bad_cells():
    best, cell, cells = optimal_actions(TABLES, DISCOUNT), START, [START]
    while cell != GOAL:
        cell = int(TABLES.next_state[cell, int(jnp.argmax(best[cell]))])
        cells.append(cell)
    assert len(cells) == 10 and not set(cells[1:-1]) & set(range(1, GOAL))
    assert best[START].tolist() == [True, False, False, False]
    straight = sum(float(TABLES.rewards[cell, RIGHT]) for cell in range(GOAL))
    assert straight == -1.0 and WIDTH - 1 == GOAL


def test_advantages_match_iterated_values(probs):
    values = np.zeros(NUM_CELLS)
    next_state, rewards = np.asarray(TABLES.next_state), np.asarray(TABLES.rewards)
    for _ in range(600):
        q_values = rewards + DISCOUNT * values[next_state]
        values = np.where(TABLES.is_terminal, 0.0, (np.asarray(probs) * q_values).sum(axis=1))
    np.testing.assert_allclose(policy_state_values(probs, TABLES, DISCOUNT), values, atol=1e-4)
    computed = advantages(probs, TABLES, DISCOUNT)
    np.testing.assert_allclose(computed, q_values - values[:, None], atol=1e-4)
    np.testing.assert_allclose(jnp.sum(probs * computed, axis=1)[: GOAL - 1], 0.0, atol=1e-4)


def test_feedback_by_advantage_depends_on_the_policy_and_fades(probs):
    best = optimal_actions(TABLES, DISCOUNT)
    expert = best / best.sum(axis=1, keepdims=True)
    goes_on = ~TABLES.is_terminal
    for trainer in (AdvantageFeedback(), ImprovementFeedback()):
        before, after = (trainer.feedback(p, TABLES, DISCOUNT) for p in (probs, expert))
        assert before[START, UP] > 0 and before[START, RIGHT] < 0
        np.testing.assert_allclose((after * best)[goes_on], 0.0, atol=1e-4)
    for trainer in (ActionFeedback(), TaskFeedback()):
        before, after = (trainer.feedback(p, TABLES, DISCOUNT) for p in (probs, expert))
        np.testing.assert_array_equal(before, after)
    signs = ImprovementFeedback(threshold=0.1).feedback(probs, TABLES, DISCOUNT)
    exact = advantages(probs, TABLES, DISCOUNT)
    np.testing.assert_array_equal(signs, np.where(np.abs(exact) > 0.1, np.sign(exact), 0.0))


def test_expected_step_of_coach_is_the_gradient_of_the_return(probs):
    method, table = Coach(learning_rate=1.0), jnp.log(probs)

    def value(table):
        return policy_state_values(jax.nn.softmax(table, axis=1), TABLES, DISCOUNT)[START]

    visited = np.zeros(NUM_CELLS)
    distribution = np.eye(NUM_CELLS)[START]
    for step in range(600):
        visited += DISCOUNT**step * distribution
        joint = (distribution * ~np.asarray(TABLES.is_terminal))[:, None] * np.asarray(probs)
        distribution = np.bincount(np.asarray(TABLES.next_state).ravel(), joint.ravel(), NUM_CELLS)
    feedback = AdvantageFeedback().feedback(probs, TABLES, DISCOUNT)
    cells, actions = (x.ravel() for x in np.meshgrid(np.arange(NUM_CELLS), np.arange(4), indexing="ij"))

    def change(cell, action):
        visit = Visit(cell, action, TABLES.next_state[cell, action], jnp.zeros((), bool))
        return method.learn(table, jnp.zeros_like(table), visit, feedback[cell, action])[0] - table

    weights = jnp.asarray(visited)[:, None] * probs * ~TABLES.is_terminal[:, None]
    changes = jax.vmap(change)(jnp.asarray(cells), jnp.asarray(actions))
    np.testing.assert_allclose(jnp.einsum("p,psa->sa", weights.ravel(), changes), jax.grad(value)(table), atol=1e-4)


def test_trace_of_coach_credits_earlier_actions():
    method = Coach(trainer=TaskFeedback(), trace_decay=0.5, learning_rate=2.0)
    state, _ = train_on(method, [START, WIDTH], [UP, DOWN])  # 0 at first, and 0 again in the corner
    np.testing.assert_array_equal(state.table, 0.0)
    np.testing.assert_allclose(state.trace[START], [0.375, -0.125, -0.125, -0.125])
    np.testing.assert_allclose(state.trace[WIDTH], [-0.25, 0.75, -0.25, -0.25])
    state, _ = method.update(state, path_batch([START], [RIGHT]), jax.random.key(0))  # a bad cell
    np.testing.assert_allclose(state.table, -2.0 * state.trace)
    np.testing.assert_allclose(state.trace[WIDTH], [-0.125, 0.375, -0.125, -0.125])


def test_tamer_expects_the_last_feedback_with_a_step_size_of_one():
    state, report = train_on(Tamer(trainer=ActionFeedback(), learning_rate=1.0), [START, START], [UP, RIGHT])
    np.testing.assert_array_equal(state.table[START], [1.0, 0.0, 0.0, -1.0])
    assert report.metrics["feedback"] == -1.0


def test_tamer_unlearns_what_is_not_praised_any_more():
    method = Tamer(trainer=ImprovementFeedback(), learning_rate=1.0)
    state, first = train_on(method, [START], [UP])
    assert state.table[START].tolist() == [1.0, 0.0, 0.0, 0.0] and first.metrics["unlearned_cells"] == 0
    np.testing.assert_array_equal(method.policy(state, Mode.EXPLOIT).probs[START], [1.0, 0.0, 0.0, 0.0])
    state, report = method.update(state, path_batch([START], [UP]), jax.random.key(0))
    assert report.metrics["feedback"] == 0  # always done now, so that it earns nothing
    assert report.metrics["unlearned_cells"] == 1
    np.testing.assert_array_equal(method.policy(state, Mode.EXPLOIT).probs[START], 0.25)


def test_q_learning_on_the_task_finds_optimal_values():
    method = FeedbackQLearning(trainer=TaskFeedback(), learning_rate=1.0)
    cells, actions = (x.ravel() for x in np.meshgrid(np.arange(NUM_CELLS), np.arange(4), indexing="ij"))
    keep = np.asarray(~TABLES.is_terminal)[cells]
    sweep = jax.jit(lambda state: method.update(state, path_batch(cells[keep], actions[keep]), jax.random.key(0))[0])
    state = method.init(GRID.spec, jax.random.key(0))
    for _ in range(20):
        state = sweep(state)
    best = np.asarray(optimal_actions(TABLES, DISCOUNT))
    np.testing.assert_array_equal(
        (np.asarray(greedy_with_ties(jnp.round(state.table, 4))) > 0)[~TABLES.is_terminal], best[~TABLES.is_terminal]
    )


@pytest.mark.parametrize("method", LEARNERS, ids=lambda method: method.name)
def test_delayed_feedback_is_credited_to_its_action(method):
    cells, actions = [START, WIDTH, WIDTH + 1, 1, 2], [UP, RIGHT, DOWN, RIGHT, LEFT]
    on_time = dataclasses.replace(method, trainer=ActionFeedback())
    late = dataclasses.replace(method, trainer=ActionFeedback(delay=2), delay=2)
    expected, _ = train_on(on_time, cells[:3], actions[:3])
    state, _ = train_on(late, cells, actions)
    np.testing.assert_allclose(state.table, expected.table)
    misled, _ = train_on(dataclasses.replace(late, delay=0), cells, actions)
    assert not np.allclose(misled.table, expected.table)


def test_streams_and_modes_of_acting(probs):
    view = View(jax.nn.one_hot(jnp.zeros(200, "int32"), NUM_CELLS))
    state = Tamer().init(GRID.spec, jax.random.key(0))
    drawn = [
        Tamer(stream=stream).act(Tamer().policy(state, Mode.EXPLORE), (), view, jax.random.key(0))[0]
        for stream in (0, 1)
    ]
    assert not np.array_equal(*drawn) and set(drawn[0].tolist()) == {0, 1, 2, 3}
    table = jnp.zeros((NUM_CELLS, 4)).at[:, UP].set(1.0)
    np.testing.assert_allclose(Tamer(epsilon=0.2).probs(table, Mode.EXPLORE)[0], [0.85, 0.05, 0.05, 0.05])
    np.testing.assert_allclose(Tamer(epsilon=0.2).probs(table, Mode.SAMPLE)[0], [1, 0, 0, 0])
    np.testing.assert_allclose(Coach().probs(table, Mode.SAMPLE), jax.nn.softmax(table))
    np.testing.assert_allclose(Coach().probs(table, Mode.EXPLOIT)[0], [1, 0, 0, 0])


def test_measures_of_random_and_of_best_play():
    method = Coach()
    state = method.init(GRID.spec, jax.random.key(0))
    best = jnp.where(optimal_actions(TABLES, DISCOUNT), 100.0, 0.0)
    tables = jnp.stack([state.table, best])
    states = jax.vmap(lambda table: dataclasses.replace(state, table=table))(tables)
    run = SimpleNamespace(method=method, states=states, config={"env": "thespis.papers.coach.envs:PathGrid"})
    np.testing.assert_allclose(normalized_return().compute(run), [0.0, 1.0], atol=1e-4)
    missed = missed_goals().compute(run)
    assert missed[1] == pytest.approx(0.0, abs=1e-4) and 0.1 < missed[0] < 0.9
