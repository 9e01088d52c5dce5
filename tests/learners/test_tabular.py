"""Counterfactual regret minimisation, against OpenSpiel's and against what is known of the games."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pyspiel
import pytest
from made_up import quick_key
from open_spiel.python.algorithms import cfr
from spiel import PAIRS, as_ours

from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.game_trees import game_tree
from thespis.core.records import Batch, EnvSpec
from thespis.core.samples import random_steps
from thespis.core.spaces import Box, Discrete
from thespis.envs.games.everyone import Everyone
from thespis.envs.games.naming import game
from thespis.evaluation.exploitability import judge, judge_method
from thespis.learners.tabular import Alternating, Simultaneous, average
from thespis.methods.games.cfr import CFR
from thespis.methods.games.cfr_plus import CFRPlus
from thespis.objectives.regrets import regret_matching

KEY = quick_key(0)
STEPS = random_steps(EnvSpec("plain", Box((2,)), Discrete(2)), np.random.default_rng(0), 1, 1)
BATCH = Batch(STEPS, *jax.device_put((np.ones((1, 1), bool), (), np.int32(0))))
"""Any: nothing of it is used."""


def learnt(method, name, iterations):
    """The state after so many iterations, all in one update, and what it reports."""
    return _learnt(dataclasses.replace(method, iterations=iterations), name, jax.config.jax_enable_x64)


@functools.cache
def _learnt(method, name, precise):
    spec = Everyone(game(name)).spec
    return jax.jit(lambda key, batch: method.update(method.init(spec, key), batch, key))(KEY, BATCH)


@pytest.mark.parametrize(
    ("method", "theirs"),
    [
        (CFR(), dict(alternating_updates=False, linear_averaging=False, regret_matching_plus=False)),
        (CFR(order=Alternating()), dict(alternating_updates=True, linear_averaging=False, regret_matching_plus=False)),
        (CFRPlus(), dict(alternating_updates=True, linear_averaging=True, regret_matching_plus=True)),
    ],
)
def test_kuhn_poker_as_openspiel_learns_it(method, theirs):
    """Average and present policy after 60 iterations, in double precision."""
    pair, tree = PAIRS["kuhn_poker"], game_tree(game("kuhn_poker"))
    solver = cfr._CFRSolver(pair.load(), **theirs)
    for _ in range(60):
        solver.evaluate_and_update_policy()
    with jax.enable_x64(True):
        state, _ = learnt(method, "kuhn_poker", 60)
        found = jax.jit(lambda s: (average(s), regret_matching(s.regrets, jnp.asarray(tree.legal))))(state)
    for ours, policy in zip(found, (solver.average_policy(), solver.current_policy()), strict=True):

        def told(text, policy=policy):
            return enumerate(policy.policy_for_key(text))

        np.testing.assert_allclose(ours, as_ours(pair, tree, told), atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "solver"), [(CFR(order=Alternating()), pyspiel.CFRSolver), (CFRPlus(), pyspiel.CFRPlusSolver)]
)
def test_leduc_poker_as_openspiel_learns_it(method, solver):
    pair, tree = PAIRS["leduc_holdem"], game_tree(game("leduc_holdem"))
    theirs = pair.load()
    solver = solver(theirs)
    for _ in range(20):
        solver.evaluate_and_update_policy()
    policy = solver.average_policy()
    with jax.enable_x64(True):
        ours = average(learnt(method, "leduc_holdem", 20)[0])
    np.testing.assert_allclose(ours, as_ours(pair, tree, policy.get_state_policy), atol=1e-9)
    assert judge(tree, ours).exploitability == pytest.approx(pyspiel.exploitability(theirs, policy), abs=1e-9)


def test_kuhn_poker_is_solved():
    """In single precision. What is reported is what an exact judge says; the game is worth -1/18 to who begins."""
    for method, iterations, known in ((CFR(), 300, 0.05), (CFRPlus(), 1000, 0.0001)):
        state, report = learnt(method, "kuhn_poker", iterations)
        states = jax.tree.map(lambda x: np.asarray(x)[None], state)
        found = judge_method(method, states, game("kuhn_poker"))[0]
        assert found.exploitability == pytest.approx(float(report.metrics["exploitability"]), abs=1e-6)
        assert found.exploitability < known
        assert found.values[0] == pytest.approx(-1 / 18, abs=known)
        assert float(report.metrics["value"]) == pytest.approx(found.values[0], abs=1e-6)


@pytest.mark.slow
def test_tic_tac_toe_is_solved():
    _, report = learnt(CFRPlus(), "tic_tac_toe", 100)
    assert float(report.metrics["exploitability"]) < 0.01
    assert float(report.metrics["value"]) == pytest.approx(0, abs=0.01)


def test_iterations_of_one_update_are_those_of_many():
    method, spec = CFRPlus(iterations=30), Everyone(game("kuhn_poker")).spec
    with jax.enable_x64(True):
        at_once = learnt(method, "kuhn_poker", 60)[0]
        state, update = jax.jit(lambda: method.init(spec, KEY))(), jax.jit(method.update)
        for _ in range(2):
            state, _ = update(state, BATCH, KEY)
    assert int(state.iterations) == 60
    np.testing.assert_allclose(state.policies, at_once.policies, rtol=1e-5)


@pytest.mark.slow
def test_it_plays_what_its_table_says():
    """By the average policy; greedily the likeliest; and legally where the table holds nothing."""
    method, world = CFR(), Everyone(game("kuhn_poker"))
    state, _ = learnt(method, "kuhn_poker", 100)
    tree = game_tree(world.game)
    views = jax.vmap(world.view)(tree.positions)
    here = np.arange(len(tree.owner)), tree.owner
    for mode in Mode:
        policy = method.policy(state, mode)
        told = np.asarray(method.probabilities(policy, (), views)["seats"])[here]
        table = np.asarray(average(state))
        wanted = np.eye(2)[table.argmax(axis=1)] if mode is Mode.EXPLOIT else table
        np.testing.assert_allclose(told, wanted, atol=1e-6)
        many = jax.tree.map(lambda x: np.repeat(x, 500, axis=0), views)
        drawn = jax.jit(method.act)(policy, (), many, quick_key(2))[0]["seats"]
        frequencies = np.asarray(drawn).reshape(12, 500, 2).mean(axis=1)[here]
        np.testing.assert_allclose(frequencies, wanted[:, 1], atol=0.0 if mode is Mode.EXPLOIT else 0.1)


def test_orders_differ():
    with jax.enable_x64(True):
        first, second = (learnt(CFR(order=order), "kuhn_poker", 60)[0] for order in (Simultaneous(), Alternating()))
    assert np.abs(np.asarray(first.regrets) - np.asarray(second.regrets)).max() > 0.01


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (EnvSpec("plain", Box((2,)), Discrete(2)), "tables are for all seats of a game"),
        (Everyone(game("connect_four")).spec, "too large"),
    ],
)
def test_worlds_that_no_table_is_for(spec, why):
    with pytest.raises(UserError, match=why):
        CFR().init(spec, KEY)
