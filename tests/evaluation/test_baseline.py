"""Baselines of final results: random play against known returns, random opponents against exact results."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from word_count_env import WordCountEnv

import thespis
from thespis.arena.random_opponents import NUM_GAMES, results_against_random
from thespis.core.contracts import Mode
from thespis.core.records import View
from thespis.core.spaces import Box, Discrete, MultiDiscrete, dict_space
from thespis.envs import registry
from thespis.evaluation import baseline
from thespis.evaluation.baseline import RandomPolicy, random_baseline
from thespis.evaluation.formatting import final_results
from thespis.evaluation.vs_random import evaluate_vs_random

SPACE = dict_space(box=Box((2,), -3.0, 5.0), one=Discrete(4), many=MultiDiscrete((3, 2)))


def host_envs(name: str):
    return lambda count: registry.make_host(name, count)


def test_actions_are_uniform_among_the_legal_ones():
    n = 4_000
    legal = {"box": None, "one": np.array([True, False, True, True]), "many": np.array([True, True, False, True, True])}
    view = View(jnp.zeros((n, 1)), jax.tree.map(lambda mask: np.tile(mask, (n, 1)), legal))
    policy = RandomPolicy(SPACE, ())
    action, memory, _ = policy.act(policy.policy(0, Mode.SAMPLE), (), view, jax.random.key(0))
    assert memory == ()
    one, many = np.asarray(action["one"]), np.asarray(action["many"])
    spread = 5 * np.sqrt(0.25 / n)
    np.testing.assert_allclose(np.bincount(one, minlength=4) / n, [1 / 3, 0, 1 / 3, 1 / 3], atol=spread)
    np.testing.assert_allclose(np.bincount(many[:, 0], minlength=3) / n, [1 / 2, 1 / 2, 0], atol=spread)
    np.testing.assert_allclose(np.bincount(many[:, 1]) / n, [1 / 2, 1 / 2], atol=spread)
    assert one[(one == 1)].size == 0 and many[(many[:, 0] == 2)].size == 0
    box = np.asarray(action["box"])  # canonical: bounded parts lie within -1 and 1
    assert box.min() < -0.99 and box.max() > 0.99 and abs(box.mean()) < spread * 2
    assert abs(np.corrcoef(box[:, 0], one)[0, 1]) < spread * 2


@pytest.mark.long
def test_random_play_has_the_known_return():
    result = random_baseline(host_envs("gymnax:CartPole-v1"), [0, 1], 150)
    assert result is not None and result["seeds"] == 2 and result["episodes"] == 150
    assert abs(result["iqm"] - 22.2) < 4 * 12 / np.sqrt(300)  # as often measured: mean 22.2, deviation 12
    assert random_baseline(host_envs("gymnax:CartPole-v1"), [0, 1], 150) == result
    lengths = np.array(result["lengths"])
    np.testing.assert_array_equal(lengths, result["scores"])
    assert len(np.unique(lengths[0])) > 10 and (lengths[0] != lengths[1]).any()


def test_episodes_that_never_end_are_cut(monkeypatch):
    monkeypatch.setattr(baseline, "MAX_RANDOM_STEPS", 7)
    result = random_baseline(host_envs("gymnax:Pendulum-v1"), [0], 2)
    assert result is not None and result["lengths"] == [[7, 7]]


@pytest.fixture(scope="module")
def game_run(tmp_path_factory) -> thespis.Run:
    out = tmp_path_factory.mktemp("game") / "run"
    settings = ["hidden_sizes=16", "num_epochs=1"]
    return thespis.train("ppo", "pgx:tic_tac_toe", steps=4_096, seeds=2, episodes=4, settings=settings, out=out)


@pytest.mark.long
def test_results_of_each_seat_agree_with_exact_probabilities(game_run):
    env = registry.make_compiled("pgx:tic_tac_toe")
    results = results_against_random(game_run.directory)
    assert len(results) == 2
    for seat, result in enumerate(results):
        for i, payoffs in enumerate(result["scores"]):
            state = jax.tree.map(lambda x, at=i: x[at], game_run.states)
            exact = evaluate_vs_random(game_run.method, state, env, seat)
            mean, variance = exact.win - exact.loss, exact.win + exact.loss - (exact.win - exact.loss) ** 2
            assert len(payoffs) == NUM_GAMES and set(payoffs) <= {-1.0, 0.0, 1.0}
            assert abs(np.mean(payoffs) - mean) < 4 * np.sqrt(variance / NUM_GAMES) + 1e-9
    assert results[0]["iqm"] != results[1]["iqm"]


def test_baselines_stand_beside_the_final_result(game_run):
    final = game_run.final_scores
    assert final is not None
    names = [name for name, _ in final_results(final)]
    assert names == ["greedy", "sampled", "random", "seat 1 against random", "seat 2 against random"]
    assert final["vs_random"] == results_against_random(game_run.directory)
    page = (game_run.path / "report.html").read_text()
    assert "<td>random</td>" in page and "seat 2 against random" in page


@pytest.mark.slow
@pytest.mark.parametrize("moves", [False, True])
def test_language_models_stand_beside_the_untrained_one(moves, tmp_path):
    """With step size zero the model at the end is the untrained one, and plays the same episodes."""
    small = ["model=blank", "num_layers=1", "hidden_size=32", "feed.num_envs=8", "feed.group_size=4"]
    settings = [*small, f"learning_rate={0.05 * moves}"]
    run = thespis.train("grpo", WordCountEnv, steps=96, episodes=8, settings=settings, out=tmp_path / "run")
    final = run.final_scores
    assert final is not None and [name for name, _ in final_results(final)] == ["greedy", "sampled", "untrained"]
    assert (final["untrained"]["scores"] != final["sampled"]["scores"]) == moves
    assert "random" not in final and "vs_random" not in final
