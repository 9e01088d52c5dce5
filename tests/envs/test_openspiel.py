"""OpenSpiel adapter: observations, masks, payoffs and ends against OpenSpiel itself."""

import numpy as np
import pyspiel
import pytest

import thespis
from thespis.core.errors import UserError
from thespis.core.laws.components import check_host_environment
from thespis.core.laws.random_samples import random_legal_action
from thespis.core.spaces import Discrete
from thespis.data.feeds import Rollouts
from thespis.envs import registry
from thespis.envs.host.openspiel import GAME_NAMES, PLAYER_GROUP

GAMES = ["leduc_poker(players=3)", "tic_tac_toe", "goofspiel(num_cards=4)", "matrix_pd"]


def random_actions(vector_env, view, rng):
    legal = view.action_mask[PLAYER_GROUP]
    return {PLAYER_GROUP: random_legal_action(Discrete(legal.shape[-1]), legal, rng, legal.shape[:2])}


@pytest.mark.parametrize(
    "name", [GAMES[0], *(pytest.param(name, marks=pytest.mark.slow) for name in (*GAMES[1:], "backgammon"))]
)
def test_contract(name):
    check_host_environment(registry.make_host(f"openspiel:{name}", 2), num_steps=24)


def test_listed_games_exist_in_openspiel():
    assert set(GAME_NAMES) <= set(pyspiel.registered_names())


@pytest.mark.parametrize("name", GAMES)
def test_game_matches_openspiel(name):
    """The same actions in both, with our chance outcomes: observations, legal actions, payoffs and ends."""
    game, vector_env, rng = (
        pyspiel.load_game(name),
        registry.make_host(f"openspiel:{name}", 1),
        np.random.default_rng(0),
    )
    env = vector_env._envs[0]
    view, ends = vector_env.reset([7]).view, 0
    for _ in range(40):
        state = game.deserialize_state(env._state.serialize())
        players = range(game.num_players())
        simultaneous = state.is_simultaneous_node()
        assert view.alive[PLAYER_GROUP][0].tolist() == [
            simultaneous or player == state.current_player() for player in players
        ]
        for player in players:
            perfect_information = name == "tic_tac_toe"  # perfect information: it has no information state tensor
            tensor = state.observation_tensor(player) if perfect_information else state.information_state_tensor(player)
            np.testing.assert_allclose(view.observation[PLAYER_GROUP][0, player].ravel(), tensor, rtol=1e-6)
            expected = state.legal_actions(player) if view.alive[PLAYER_GROUP][0, player] else [0]
            assert np.flatnonzero(view.action_mask[PLAYER_GROUP][0, player]).tolist() == expected
        before, action = np.array(state.returns()), random_actions(vector_env, view, rng)
        player_actions = [int(a) for a in action[PLAYER_GROUP][0]]
        state.apply_actions(player_actions) if simultaneous else state.apply_action(
            player_actions[state.current_player()]
        )
        step, view = vector_env.step(action)
        if not state.is_chance_node():
            np.testing.assert_allclose(step.agent_outcomes[PLAYER_GROUP].reward[0], state.returns() - before, rtol=1e-6)
            assert (
                bool(step.terminated[0])
                == state.is_terminal()
                == bool(step.agent_outcomes[PLAYER_GROUP].terminated.all())
            )
            assert step.reward[0] == step.agent_outcomes[PLAYER_GROUP].reward[0, 0] and not step.truncated.any()
        ends += int(step.terminated[0])
    assert ends >= 3


def test_seed_determines_the_cards():
    vector_env = registry.make_host("openspiel:kuhn_poker", 64)
    first = vector_env.reset(list(range(64))).observation[PLAYER_GROUP][:, 0]
    cards = first[:, 2:5].argmax(axis=1)  # which player, which card
    assert set(np.bincount(cards, minlength=3) > 10) == {True}
    np.testing.assert_array_equal(vector_env.reset(list(range(64))).observation[PLAYER_GROUP][:, 0], first)
    assert (vector_env.reset(list(range(1, 65))).observation[PLAYER_GROUP][:-1, 0] == first[1:]).all()


@pytest.mark.slow
def test_train_every_player(tmp_path):
    method = thespis.PPO(feed=Rollouts(num_steps=16, num_envs=2), minibatch_size=16, num_epochs=1)
    run = thespis.train(method, "openspiel:kuhn_poker", steps=128, out=tmp_path / "run", episodes=2)
    assert run.final_scores["step"] == 128 and np.abs(run.final_scores["sampled"]["scores"]).max() <= 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("kuhn_pocker", "nearest: kuhn_poker"),
        ("kuhn_poker(players=99)", "cannot be made"),
        ("mfg_crowd_modelling", "not supported|no numbers"),
    ],
)
def test_errors_are_one_line(name, message):
    with pytest.raises(UserError, match=message) as caught:
        registry.make_host(f"openspiel:{name}", 1)
    assert "\n" not in str(caught.value)
