"""OpenSpiel's games against OpenSpiel."""

import numpy as np
import pyspiel
import pytest

import thespis
from thespis.core.conformance import check_host_environment
from thespis.core.errors import UserError
from thespis.core.feeds import Rollouts
from thespis.core.samples import legal_action
from thespis.core.spaces import Discrete
from thespis.envs import registry
from thespis.envs.host.openspiel import NAMES, SEATS

PLAYED = ["leduc_poker(players=3)", "tic_tac_toe", "goofspiel(num_cards=4)", "matrix_pd"]


def moves(worlds, view, rng):
    legal = view.legal[SEATS]
    return {SEATS: legal_action(Discrete(legal.shape[-1]), legal, rng, legal.shape[:2])}


@pytest.mark.parametrize(
    "name", [PLAYED[0], *(pytest.param(name, marks=pytest.mark.slow) for name in (*PLAYED[1:], "backgammon"))]
)
def test_the_laws_hold(name):
    check_host_environment(registry.host(f"openspiel:{name}", 2), ticks=24)


def test_every_listed_game_is_openspiels():
    assert set(NAMES) <= set(pyspiel.registered_names())


@pytest.mark.parametrize("name", PLAYED)
def test_a_game_is_openspiels_own(name):
    """The same moves in both, chance's as ours drew them: what is seen, what may be done, what is won."""
    game, worlds, rng = pyspiel.load_game(name), registry.host(f"openspiel:{name}", 1), np.random.default_rng(0)
    world = worlds._worlds[0]
    view, ends = worlds.start([7]).view, 0
    for _ in range(40):
        theirs = game.deserialize_state(world._state.serialize())
        seats = range(game.num_players())
        together = theirs.is_simultaneous_node()
        assert view.alive[SEATS][0].tolist() == [together or seat == theirs.current_player() for seat in seats]
        for seat in seats:
            open_to_all = name == "tic_tac_toe"  # there is no information state to tell
            tensor = theirs.observation_tensor(seat) if open_to_all else theirs.information_state_tensor(seat)
            np.testing.assert_allclose(view.observation[SEATS][0, seat].ravel(), tensor, rtol=1e-6)
            wanted = theirs.legal_actions(seat) if view.alive[SEATS][0, seat] else [0]
            assert np.flatnonzero(view.legal[SEATS][0, seat]).tolist() == wanted
        before, action = np.array(theirs.returns()), moves(worlds, view, rng)
        mine = [int(a) for a in action[SEATS][0]]
        theirs.apply_actions(mine) if together else theirs.apply_action(mine[theirs.current_player()])
        step, view = worlds.step(action)
        if not theirs.is_chance_node():
            np.testing.assert_allclose(step.each[SEATS].reward[0], theirs.returns() - before, rtol=1e-6)
            assert bool(step.terminated[0]) == theirs.is_terminal() == bool(step.each[SEATS].gone.all())
            assert step.reward[0] == step.each[SEATS].reward[0, 0] and not step.truncated.any()
        ends += int(step.terminated[0])
    assert ends >= 3


def test_cards_are_dealt_by_the_seed():
    worlds = registry.host("openspiel:kuhn_poker", 64)
    first = worlds.start(list(range(64))).observation[SEATS][:, 0]
    cards = first[:, 2:5].argmax(axis=1)  # which player, which card
    assert set(np.bincount(cards, minlength=3) > 10) == {True}
    np.testing.assert_array_equal(worlds.start(list(range(64))).observation[SEATS][:, 0], first)
    assert (worlds.start(list(range(1, 65))).observation[SEATS][:-1, 0] == first[1:]).all()


@pytest.mark.slow
def test_all_seats_learn(tmp_path):
    method = thespis.PPO(feed=Rollouts(length=16, envs=2), minibatch=16, epochs=1)
    run = thespis.train(method, "openspiel:kuhn_poker", steps=128, out=tmp_path / "run", episodes=2)
    assert run.final["step"] == 128 and np.abs(run.final["sampled"]["scores"]).max() <= 2


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("kuhn_pocker", "nearest: kuhn_poker"),
        ("kuhn_poker(players=99)", "cannot be made"),
        ("mfg_crowd_modelling", "not supported|no numbers"),
    ],
)
def test_mistakes_are_one_clear_line(name, said):
    with pytest.raises(UserError, match=said) as caught:
        registry.host(f"openspiel:{name}", 1)
    assert "\n" not in str(caught.value)
