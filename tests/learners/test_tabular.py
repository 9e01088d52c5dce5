"""Tabular counterfactual regret minimization (CFR, CFR+): against OpenSpiel and known game values."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pyspiel
import pytest
from open_spiel.python.algorithms import cfr
from openspiel_games import PAIRS, from_openspiel
from synthetic_batches import quick_key

from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.laws.random_samples import random_transitions
from thespis.core.records import Batch, EnvSpec
from thespis.core.spaces import Box, Discrete
from thespis.envs.games.factory import make_game
from thespis.envs.games.game_tree import build_game_tree
from thespis.envs.games.self_play import SelfPlayEnv
from thespis.evaluation.exploitability import evaluate_method, evaluate_policy_table
from thespis.learners.games.tabular_cfr import AlternatingUpdates, SimultaneousUpdates, average_policy
from thespis.methods.games.cfr import CFR
from thespis.methods.games.cfr_plus import CFRPlus
from thespis.objectives.regret import regret_matching

KEY = quick_key(0)
STEPS = random_transitions(EnvSpec("plain", Box((2,)), Discrete(2)), np.random.default_rng(0), 1, 1)
BATCH = Batch(STEPS, *jax.device_put((np.ones((1, 1), bool), (), np.int32(0))))
"""Any batch: tabular methods do not use it."""


def train(method, name, iterations):
    """The state after ``iterations`` iterations in one update, and the report."""
    return _train(dataclasses.replace(method, num_iterations=iterations), name, jax.config.jax_enable_x64)


@functools.cache
def _train(method, name, precise):
    spec = SelfPlayEnv(make_game(name)).spec
    return jax.jit(lambda key, batch: method.update(method.init(spec, key), batch, key))(KEY, BATCH)


@pytest.mark.long
@pytest.mark.parametrize(
    ("method", "theirs"),
    [
        (CFR(), dict(alternating_updates=False, linear_averaging=False, regret_matching_plus=False)),
        (
            CFR(update_order=AlternatingUpdates()),
            dict(alternating_updates=True, linear_averaging=False, regret_matching_plus=False),
        ),
        (CFRPlus(), dict(alternating_updates=True, linear_averaging=True, regret_matching_plus=True)),
    ],
)
def test_kuhn_poker_matches_openspiel(method, theirs):
    """Average and current policy after 60 iterations, in float64."""
    pair, tree = PAIRS["kuhn_poker"], build_game_tree(make_game("kuhn_poker"))
    solver = cfr._CFRSolver(pair.load(), **theirs)
    for _ in range(60):
        solver.evaluate_and_update_policy()
    with jax.enable_x64(True):
        state, _ = train(method, "kuhn_poker", 60)
        policies = jax.jit(
            lambda s: (average_policy(s), regret_matching(s.cumulative_regret, jnp.asarray(tree.action_mask)))
        )(state)
    for ours, policy in zip(policies, (solver.average_policy(), solver.current_policy()), strict=True):

        def action_probs(text, policy=policy):
            return enumerate(policy.policy_for_key(text))

        np.testing.assert_allclose(ours, from_openspiel(pair, tree, action_probs), atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "solver"),
    [(CFR(update_order=AlternatingUpdates()), pyspiel.CFRSolver), (CFRPlus(), pyspiel.CFRPlusSolver)],
)
def test_leduc_poker_matches_openspiel(method, solver):
    pair, tree = PAIRS["leduc_holdem"], build_game_tree(make_game("leduc_holdem"))
    theirs = pair.load()
    solver = solver(theirs)
    for _ in range(20):
        solver.evaluate_and_update_policy()
    policy = solver.average_policy()
    with jax.enable_x64(True):
        ours = average_policy(train(method, "leduc_holdem", 20)[0])
    np.testing.assert_allclose(ours, from_openspiel(pair, tree, policy.get_state_policy), atol=1e-9)
    assert evaluate_policy_table(tree, ours).exploitability == pytest.approx(
        pyspiel.exploitability(theirs, policy), abs=1e-9
    )


@pytest.mark.long
def test_kuhn_poker_is_solved():
    """In float32. The reported exploitability is exact; the value of the game to the first player is -1/18."""
    for method, iterations, tolerance in ((CFR(), 300, 0.05), (CFRPlus(), 1000, 0.0001)):
        state, report = train(method, "kuhn_poker", iterations)
        states = jax.tree.map(lambda x: np.asarray(x)[None], state)
        evaluation = evaluate_method(method, states, make_game("kuhn_poker"))[0]
        assert evaluation.exploitability == pytest.approx(float(report.metrics["exploitability"]), abs=1e-6)
        assert evaluation.exploitability < tolerance
        assert evaluation.on_policy_values[0] == pytest.approx(-1 / 18, abs=tolerance)
        assert float(report.metrics["value"]) == pytest.approx(evaluation.on_policy_values[0], abs=1e-6)


@pytest.mark.slow
def test_tic_tac_toe_is_solved():
    _, report = train(CFRPlus(), "tic_tac_toe", 100)
    assert float(report.metrics["exploitability"]) < 0.01
    assert float(report.metrics["value"]) == pytest.approx(0, abs=0.01)


def test_one_update_of_many_iterations_equals_several_updates():
    method, spec = CFRPlus(num_iterations=30), SelfPlayEnv(make_game("kuhn_poker")).spec
    with jax.enable_x64(True):
        at_once = train(method, "kuhn_poker", 60)[0]
        state, update = jax.jit(lambda: method.init(spec, KEY))(), jax.jit(method.update)
        for _ in range(2):
            state, _ = update(state, BATCH, KEY)
    assert int(state.num_iterations) == 60
    np.testing.assert_allclose(state.cumulative_policy, at_once.cumulative_policy, rtol=1e-5)


@pytest.mark.slow
def test_actions_follow_the_average_policy():
    """Modes sample from the average policy; EXPLOIT plays its most likely action."""
    method, env = CFR(), SelfPlayEnv(make_game("kuhn_poker"))
    state, _ = train(method, "kuhn_poker", 100)
    tree = build_game_tree(env.game)
    views = jax.vmap(env.view)(tree.example_states)
    info_states = np.arange(len(tree.info_state_player)), tree.info_state_player
    for mode in Mode:
        policy = method.policy(state, mode)
        probs = np.asarray(method.action_probs(policy, (), views)["seats"])[info_states]
        table = np.asarray(average_policy(state))
        expected = np.eye(2)[table.argmax(axis=1)] if mode is Mode.EXPLOIT else table
        np.testing.assert_allclose(probs, expected, atol=1e-6)
        repeated_views = jax.tree.map(lambda x: np.repeat(x, 500, axis=0), views)
        actions = jax.jit(method.act)(policy, (), repeated_views, quick_key(2))[0]["seats"]
        frequencies = np.asarray(actions).reshape(12, 500, 2).mean(axis=1)[info_states]
        np.testing.assert_allclose(frequencies, expected[:, 1], atol=0.0 if mode is Mode.EXPLOIT else 0.1)


def test_update_orders_differ():
    with jax.enable_x64(True):
        first, second = (
            train(CFR(update_order=order), "kuhn_poker", 60)[0]
            for order in (SimultaneousUpdates(), AlternatingUpdates())
        )
    assert np.abs(np.asarray(first.cumulative_regret) - np.asarray(second.cumulative_regret)).max() > 0.01


@pytest.mark.long
@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (EnvSpec("plain", Box((2,)), Discrete(2)), "tabular methods need all players of a game"),
        (SelfPlayEnv(make_game("connect_four")).spec, "too large"),
    ],
)
def test_unsuitable_environments_are_rejected(spec, message):
    with pytest.raises(UserError, match=message):
        CFR().init(spec, KEY)
