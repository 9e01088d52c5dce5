"""Coverage and information on a grid: set functions by brute force and by numpy, best ways by search."""

from __future__ import annotations

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.conformance import check_environment
from thespis.envs.compiled.coverage import ADDITIVE, FIELD, SLIPPERY, TOLD, Coverage, Covered, Informed
from thespis.envs.compiled.two_rooms import MOVES
from thespis.envs.registry import compiled
from thespis.evidence.claims import AtLeast
from thespis.papers.subpo import PAPER

SIDE = 5


def covered(weights, places, reach=1):
    """The weight of all cells in sight of ``places``."""
    side = len(weights)
    seen = {
        (r + i, c + j)
        for r, c in places
        for i, j in itertools.product(range(reach + 1), repeat=2)
        if r + i < side and c + j < side
    }
    return sum(weights[cell] for cell in seen)


def informed(weights, places, length=1.0, noise=0.5):
    """The information of measurements at ``places``, by one determinant."""
    x = np.array(places, float)
    apart = ((x[:, None] - x[None]) ** 2).sum(-1)
    w = np.array([weights[tuple(place)] for place in places])
    kernel = np.sqrt(np.outer(w, w)) * np.exp(-apart / (2 * length**2))
    return np.linalg.slogdet(np.eye(len(places)) + kernel / noise**2)[1] / 2


def way(actions, side=SIDE):
    """Places from the corner on."""
    places = [(0, 0)]
    for action in actions:
        places.append(tuple(np.clip(np.add(places[-1], MOVES[action]), 0, side - 1)))
    return places


def paid(world, actions):
    def step(state, action):
        state, answer = world.step(state, action, jax.random.key(0))
        return state, answer

    state, _ = world.reset((), jax.random.key(0))
    return jax.jit(lambda s, a: jax.lax.scan(step, s, a)[1])(state, jnp.array(actions))


KINDS = pytest.mark.parametrize(("objective", "worth"), [(Covered(), covered), (Informed(), informed)])


@KINDS
def test_gains_sum_to_what_the_way_is_worth(objective, worth):
    world = Coverage(objective, side=SIDE, horizon=12)
    weights, rng = np.asarray(world.weights, float), np.random.default_rng(0)
    for _ in range(3):
        actions = rng.integers(0, 5, 12)
        answers = paid(world, actions)
        places = way(actions)
        wanted = [worth(weights, places[: i + 2]) - worth(weights, places[: i + 1]) for i in range(12)]
        np.testing.assert_allclose(answers.reward, wanted, atol=1e-5)
        assert answers.reward.sum() == pytest.approx(worth(weights, places) - worth(weights, places[:1]), abs=1e-4)
        assert answers.terminated.tolist() == [False] * 11 + [True] and not answers.truncated.any()
        alone = paid(dataclasses.replace(world, additive=True), actions)
        np.testing.assert_allclose(alone.reward, [worth(weights, [place]) for place in places[1:]], atol=1e-5)


@KINDS
def test_more_is_never_worth_less_and_adds_less_to_more(objective, worth):
    """Monotone and submodular, on random sets: what is added to a set adds no less to a part of it."""
    weights, rng = np.asarray(Coverage(side=SIDE).weights, float), np.random.default_rng(1)

    def gained(places, more):
        known = objective.begin(jnp.asarray(weights, "float32"))
        for place in places:
            known = objective.add(known, jnp.array(place))[1]
        return float(objective.add(known, jnp.array(more))[0])

    for _ in range(20):
        places = [tuple(place) for place in rng.integers(0, SIDE, (5, 2))]
        part, more = places[: rng.integers(1, 5)], tuple(rng.integers(0, SIDE, 2))
        less, least = gained(part, more), gained(places, more)
        assert less >= least - 1e-5 and least >= -1e-5
        assert least == pytest.approx(worth(weights, [*places, more]) - worth(weights, places), abs=1e-4)


def best(weights, side, steps):
    """The most that any way of so many steps covers beside its start, by search over places and what is covered."""
    reached = {((0, 0), frozenset({(0, 0), (0, 1), (1, 0), (1, 1)}))}
    for _ in range(steps):
        reached = {
            (place, seen | {(place[0] + i, place[1] + j) for i in (0, 1) for j in (0, 1)
                            if place[0] + i < side and place[1] + j < side})
            for (r, c), seen in reached
            for place in {tuple(int(x) for x in np.clip((r + i, c + j), 0, side - 1)) for i, j in MOVES}
        }  # fmt: skip
    start = weights[:2, :2].sum()
    return max(sum(weights[cell] for cell in seen) for _, seen in reached) - start


def test_the_best_of_all_ways_is_found_by_search():
    """Enumeration of every sequence of moves agrees; on even ground a step uncovers two cells at most."""
    world = Coverage(side=3, horizon=4)
    weights = np.asarray(world.weights, float)
    ways = [way(actions, 3) for actions in itertools.product(range(5), repeat=4)]
    most = max(covered(weights, places) for places in ways) - weights[:2, :2].sum()
    assert best(weights, 3, 4) == pytest.approx(most, abs=1e-6)
    assert best(np.ones((6, 6)), 6, 4) == 8.0


def test_what_is_seen_is_where_and_when_and_what_is_left():
    answers = paid(dataclasses.replace(TOLD, slip=0.0), np.array([2, 4, 0]))
    seen = np.asarray(answers.observation)
    assert seen[:, :8].argmax(1).tolist() == [0, 1, 1] and seen[:, 8:16].argmax(1).tolist() == [1, 1, 1]
    assert seen[:, 16:36].argmax(1).tolist() == [1, 2, 3]
    left = seen[:, 36:].reshape(3, 8, 8)
    assert left[0, 0, :3].tolist() == [0, 0, 0] and left[0, 2, 1] == 1 and left[1, 2, 1] == 0
    assert answers.reward[2] == 0
    variance = np.asarray(Informed().left(Informed().add(Informed().begin(jnp.ones((2, 2))), jnp.array([0, 0]))[1]))
    np.testing.assert_allclose(variance, 1 - np.exp([0, -1, -1, -2]) / 1.25, atol=1e-6)


def test_one_move_in_ten_is_not_ones_own():
    world, keys = SLIPPERY, jax.random.split(jax.random.key(1), 4_000)
    state, _ = world.reset((), keys[0])
    places = jax.jit(jax.vmap(lambda key: world.step(state, jnp.int32(2), key)[0].place))(keys)
    assert np.mean(np.asarray(places)[:, 1] == 1) == pytest.approx(0.9 + 0.1 / 5, abs=0.02)


@pytest.mark.parametrize(
    "world", [SLIPPERY, pytest.param(FIELD, marks=pytest.mark.slow), pytest.param(TOLD, marks=pytest.mark.slow)]
)
def test_they_keep_the_laws(world):
    check_environment(world)


def test_they_can_be_named():
    assert compiled("thespis.envs.compiled.coverage:ADDITIVE") == ADDITIVE


@pytest.mark.slow
def test_a_planner_that_takes_what_adds_most_falls_short_of_what_can_be_covered():
    """It is the bound of a claim: what it covers on average, ties broken by chance."""
    weights, rng = np.asarray(SLIPPERY.weights, float), np.random.default_rng(0)

    def played():
        places: list[tuple[int, ...]] = [(0, 0)]
        for _ in range(SLIPPERY.horizon):
            onwards = [tuple(int(x) for x in np.clip(np.add(places[-1], move), 0, 7)) for move in MOVES]
            worths = np.round([covered(weights, [*places, place]) for place in onwards], 9)
            own = int(rng.choice(np.flatnonzero(worths == worths.max())))
            places.append(onwards[rng.integers(5) if rng.random() < SLIPPERY.slip else own])
        return covered(weights, places) - weights[:2, :2].sum()

    found = np.array([played() for _ in range(1_500)])
    (bound,) = (claim.bound for claim in PAPER.miniature.claims if isinstance(claim, AtLeast))
    assert found.mean() == pytest.approx(bound, abs=0.2)
    assert weights.sum() - weights[:2, :2].sum() > found.mean() + 5
