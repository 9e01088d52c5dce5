"""One seat against players that do not learn: what they win is what walking through the whole game says."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import CREW, KUHN

import thespis
from thespis.arena.against import Against, Players
from thespis.arena.players import Random
from thespis.arena.replies import reply
from thespis.core.errors import UserError
from thespis.core.game_trees import game_tree
from thespis.core.game_walks import best_response, outcome, uniform
from thespis.core.keys import key_of
from thespis.core.spaces import random_action
from thespis.evaluation.exploitability import ask
from thespis.runs.config import from_config, to_config

TREE = game_tree(KUHN.game)
OUTCOME = jax.jit(lambda policy: outcome(TREE, policy))


class Always:
    """Takes the first legal choice, or the last."""

    def __init__(self, first: bool):
        self.first = first

    def begin(self, n):
        return ()

    def act(self, memory, view, key):
        legal = view.legal["seats"]
        chosen = jnp.argmax(legal, -1) if self.first else legal.shape[-1] - 1 - jnp.argmax(legal[..., ::-1], -1)
        return {"seats": chosen.astype("int32")}, memory

    def table(self):
        place = TREE.legal.argmax(1) if self.first else TREE.legal.shape[1] - 1 - TREE.legal[:, ::-1].argmax(1)
        return np.eye(TREE.legal.shape[1])[place]


def expected(own, other) -> float:
    """What ``own`` wins of ``other``, the mean of both seats, by walking through the game."""
    won = []
    for seat in range(2):
        both = np.where((TREE.owner == seat)[:, None], own, other)
        won.append(float(OUTCOME(both)[seat]))
    return float(np.mean(won))


@pytest.mark.parametrize("players", [(Always(True),), (Always(True), Always(False))], ids=["one", "two by lot"])
def test_random_moves_win_what_they_should(players):
    world = Against(KUHN, players)
    games = 6_000

    def play(key):
        state, told = world.reset((), key)

        def move(carry, here):
            state, told, won = carry
            action = random_action(world.spec.action, here, told.legal)
            after, new = world.step(state, action, here)
            won = won + jnp.where(told.terminated, 0.0, new.reward)
            state, told = jax.tree.map(lambda a, b: jnp.where(told.terminated, a, b), (state, told), (after, new))
            return (state, told, won), None

        begun = state, told, jnp.zeros(())
        (_, told, won), _ = jax.lax.scan(move, begun, jax.random.split(key, 2))  # nobody decides more than twice
        return won, told.terminated

    won, over = jax.jit(jax.vmap(play))(jax.random.split(key_of(3), games))
    won, over = np.asarray(won), np.asarray(over)
    assert over.all()
    wanted = np.mean([expected(uniform(TREE), player.table()) for player in players])
    assert abs(won.mean() - wanted) < 4 * won.std() / np.sqrt(games)


@pytest.mark.slow
def test_a_learned_reply_wins_what_the_best_one_wins(tmp_path):
    player = Always(True)
    learnt = reply(KUHN, player, 60_000, tmp_path / "reply")

    table = np.asarray(ask(learnt.method, learnt.state, TREE, learnt.mode))
    best = np.mean([float(best_response(TREE, jnp.asarray(player.table()), seat)) for seat in range(2)])
    assert expected(table, player.table()) > best - 0.1


@pytest.mark.slow
def test_players_by_name_sit_in_the_other_seats(tmp_path):
    small = {"steps": 128, "envs": 4, "episodes": 2, "settings": ["length=16", "hidden=8", "epochs=1"]}
    thespis.train("ppo", "pgx:kuhn_poker", out=tmp_path / "a", **small)
    who = f"{tmp_path}/a,bot:random"
    run = thespis.train("ppo", "pgx:kuhn_poker", curriculum=who, out=tmp_path / "b", **small)
    assert from_config(run.config["curriculum"]) == Players((f"{tmp_path}/a", "bot:random"))
    again = thespis.resume(tmp_path / "b")
    assert again.evaluate(episodes=2)["greedy"]["iqm"] <= 2
    assert from_config(to_config(Players(("bot:random",)))) == Players(("bot:random",))


def test_mistakes():
    with pytest.raises(UserError, match="bots are"):
        Players(("bot:clever",)).world(KUHN, thespis.PPO())
    with pytest.raises(UserError, match="no game in turn"):
        _ = Against(CREW, (Random.of(CREW.spec),)).spec
