"""Games of pgx: the contract, seats, and games against others."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from made_up import ScriptedMethod

from thespis.core.conformance import check_environment
from thespis.core.errors import UserError
from thespis.core.keys import key_of
from thespis.envs import registry
from thespis.envs.games.pgx import NAMES, Pgx
from thespis.envs.games.versus import Versus


class Liking(ScriptedMethod):
    """Takes the legal move that it likes best. Nothing is learnt, so that little is to be compiled."""

    name = "liking"

    def init(self, spec, key):
        return jnp.zeros(spec.action.n)

    def act(self, policy, memory, view, key):
        return jnp.argmax(jnp.where(view.legal, policy, -1.0), axis=-1).astype("int32"), memory, {}


RIVAL = Liking()


@pytest.mark.parametrize("name", ["tic_tac_toe", "kuhn_poker", "2048"])
def test_the_contract(name):
    check_environment(registry.compiled(f"pgx:{name}"), ticks=12)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_contract_of_all(name):
    check_environment(registry.compiled(f"pgx:{name}"), ticks=24)


@pytest.mark.parametrize("name", ["tic_tac_toe", pytest.param("kuhn_poker", marks=pytest.mark.slow)])
def test_the_contract_against_others(name):
    check_environment(Versus(Pgx(name), RIVAL), ticks=12)


def played(name, seed):
    """A random game: players, actions, payoffs, observations, by our adapter."""
    game, rng = Pgx(name), np.random.default_rng(seed)
    position = game.start(key_of(seed))
    play, first = jax.jit(game.play), position.inner
    moves = []
    while not bool(game.over(position)):
        player = int(game.player(position))
        action = int(rng.choice(np.nonzero(np.asarray(game.legal(position)))[0]))
        seen = [np.asarray(game.observe(position, jnp.int32(p))["seen"]) for p in range(game.rules.players)]
        position = play(position, jnp.int32(action), key_of(len(moves)))
        moves.append((player, action, np.asarray(game.payoff(position)), seen))
    return first, moves


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tic_tac_toe", "leduc_holdem"])
def test_it_plays_as_pgx_does_whoever_begins(name):
    import pgx

    theirs = pgx.make(name)
    began = set()
    for seed in range(6):
        state, moves = played(name, seed)
        first = int(state.current_player)
        began.add(first)
        assert moves[0][0] == 0, "player 0 begins"
        for player, action, payoff, seen in moves:
            assert (player + first) % 2 == int(state.current_player)
            for p in range(2):
                np.testing.assert_array_equal(seen[p], theirs._observe(state, (p + first) % 2).astype("float32"))
            state = theirs.step(state, action)
            np.testing.assert_array_equal(payoff, np.roll(np.asarray(state.rewards), -first))
        assert bool(state.terminated)
    assert began == {0, 1}


def test_cards_show_the_moves():
    game = Pgx("kuhn_poker")

    @jax.jit
    def shown():
        position = game.start(key_of(0))
        for action in (1, 0):
            position = game.play(position, jnp.int32(action), key_of(0))
        return [game.observe(position, jnp.int32(player))["moves"] for player in range(2)]

    for moves in shown():
        np.testing.assert_array_equal(moves, [[0, 1], [1, 0], [0, 0]])


def test_only_the_one_whose_turn_it_is_decides():
    world = registry.compiled("pgx:tic_tac_toe")

    @jax.jit
    def stepped(state, turn):
        # the waiting one asks for a square that is taken, which means nothing
        return world.step(state, {"seats": jnp.broadcast_to(8 - turn, (2,))}, key_of(0))

    state, step = jax.jit(world.reset)((), key_of(0))
    for turn in range(4):
        np.testing.assert_array_equal(step.alive["seats"], [turn % 2 == 0, turn % 2 == 1])
        waiting = np.asarray(step.legal["seats"])[(turn + 1) % 2]
        np.testing.assert_array_equal(waiting, np.arange(9) == 0)
        state, step = stepped(state, np.int32(turn))
        assert not bool(step.terminated)


def test_an_opponent_moves_until_it_is_the_learners_turn():
    reset, params = beginning()
    seats = set()
    for seed in range(8):
        state, step = reset(params, key_of(seed))
        seats.add(int(state.seat))
        stones = int(np.asarray(step.observation["seen"]).sum())
        assert stones == int(state.seat), "who sits second sees one stone"
    assert seats == {0, 1}


@functools.cache
def beginning():
    """How a game against a policy begins, and the parameters that it has by default."""
    world = Versus(Pgx("tic_tac_toe"), RIVAL)
    return jax.jit(world.reset), world.spec.params


def test_a_policy_is_played_against_as_it_would_play():
    """The opponent's first move is that of its own policy."""
    reset, params = beginning()
    middle = jnp.asarray(np.arange(9) == 4, "float32")
    params = eqx.tree_at(lambda p: (p.policy, p.uniform, p.seat), params, (middle, jnp.asarray(False), jnp.int32(1)))
    _, step = reset(params, key_of(0))
    assert not bool(step.legal[4]), "it takes the middle"


def test_unknown_games_are_named():
    with pytest.raises(UserError, match="pgx:connect_four"):
        registry.compiled("pgx:connect_fuor")
