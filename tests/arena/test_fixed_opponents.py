"""Fixed opponents: returns of games and trained best responses, against exact values from the game tree."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from method_cases import CREW, KUHN

import thespis
from thespis.arena.best_response import train_best_response
from thespis.arena.fixed_opponents import FixedOpponentEnv, FixedOpponents
from thespis.arena.players import UniformRandomPlayer
from thespis.core.errors import UserError
from thespis.core.spaces import random_action
from thespis.envs.games.game_tree import best_response_value, build_game_tree, expected_returns, uniform_policy
from thespis.evaluation.exploitability import method_probabilities
from thespis.runs.config import from_config, to_config
from thespis.runtime.keys import seed_key

TREE = build_game_tree(KUHN.game)
OUTCOME = jax.jit(lambda policy: expected_returns(TREE, policy))


class Always:
    """Always plays the first legal action, or the last."""

    def __init__(self, first: bool):
        self.first = first

    def init_memory(self, n):
        return ()

    def act(self, memory, view, key):
        legal = view.action_mask["seats"]
        actions = jnp.argmax(legal, -1) if self.first else legal.shape[-1] - 1 - jnp.argmax(legal[..., ::-1], -1)
        return {"seats": actions.astype("int32")}, memory

    def table(self):
        action = (
            TREE.action_mask.argmax(1)
            if self.first
            else TREE.action_mask.shape[1] - 1 - TREE.action_mask[:, ::-1].argmax(1)
        )
        return np.eye(TREE.action_mask.shape[1])[action]


def expected(policy, opponent) -> float:
    """Exact return of ``policy`` against ``opponent``, the mean over both players, from the game tree."""
    returns = []
    for player in range(2):
        joint = np.where((TREE.info_state_player == player)[:, None], policy, opponent)
        returns.append(float(OUTCOME(joint)[player]))
    return float(np.mean(returns))


@pytest.mark.long
@pytest.mark.parametrize(
    "players", [(Always(True),), (Always(True), Always(False))], ids=["one opponent", "random choice of two"]
)
def test_random_play_has_the_exact_return(players):
    env = FixedOpponentEnv(KUHN, players)
    games = 6_000

    def play(key):
        state, step = env.reset((), key)

        def move(carry, key):
            state, step, total = carry
            action = random_action(env.spec.action_space, key, step.action_mask)
            next_state, next_step = env.step(state, action, key)
            total = total + jnp.where(step.terminated, 0.0, next_step.reward)
            state, step = jax.tree.map(
                lambda a, b: jnp.where(step.terminated, a, b), (state, step), (next_state, next_step)
            )
            return (state, step, total), None

        init_state = state, step, jnp.zeros(())
        (_, step, total), _ = jax.lax.scan(move, init_state, jax.random.split(key, 2))  # no player acts more than twice
        return total, step.terminated

    total, finished = jax.jit(jax.vmap(play))(jax.random.split(seed_key(3), games))
    total, finished = np.asarray(total), np.asarray(finished)
    assert finished.all()
    expected_return = np.mean([expected(uniform_policy(TREE), player.table()) for player in players])
    assert abs(total.mean() - expected_return) < 4 * total.std() / np.sqrt(games)


@pytest.mark.slow
def test_a_trained_best_response_reaches_the_exact_value(tmp_path):
    player = Always(True)
    response = train_best_response(thespis.train, KUHN, player, 60_000, tmp_path / "reply")

    table = np.asarray(method_probabilities(response.method, response.state, TREE, response.mode))
    best = np.mean([float(best_response_value(TREE, jnp.asarray(player.table()), index)) for index in range(2)])
    assert expected(table, player.table()) > best - 0.1


@pytest.mark.slow
def test_opponents_can_be_named(tmp_path):
    options = {"steps": 128, "envs": 4, "episodes": 2, "settings": ["num_steps=16", "hidden_sizes=8", "num_epochs=1"]}
    thespis.train("ppo", "pgx:kuhn_poker", out=tmp_path / "a", **options)
    opponents = f"{tmp_path}/a,bot:random"
    run = thespis.train("ppo", "pgx:kuhn_poker", curriculum=opponents, out=tmp_path / "b", **options)
    assert from_config(run.config["curriculum"]) == FixedOpponents((f"{tmp_path}/a", "bot:random"))
    resumed = thespis.resume(tmp_path / "b")
    assert resumed.evaluate(episodes=2)["greedy"]["iqm"] <= 2
    assert from_config(to_config(FixedOpponents(("bot:random",)))) == FixedOpponents(("bot:random",))


def test_invalid_opponents_are_refused():
    with pytest.raises(UserError, match="bots are"):
        FixedOpponents(("bot:clever",)).make_env(KUHN, thespis.PPO())
    with pytest.raises(UserError, match="not a turn-based game"):
        _ = FixedOpponentEnv(CREW, (UniformRandomPlayer.from_spec(CREW.spec),)).spec
