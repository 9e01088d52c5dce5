"""pgx games: the environment contract, the order of players, and games against opponents, against pgx itself."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from synthetic_batches import ScriptedMethod

from thespis.core.errors import UserError
from thespis.core.laws.components import check_environment
from thespis.envs import registry
from thespis.envs.games.opponents import OpponentEnv
from thespis.envs.games.pgx import GAME_NAMES, Pgx
from thespis.runtime.keys import seed_key


class FixedPreference(ScriptedMethod):
    """Takes the legal move of highest preference. Nothing is learned, so little is compiled."""

    name = "fixed_preference"

    def init(self, spec, key):
        return jnp.zeros(spec.action_space.n)

    def act(self, policy, memory, view, key):
        return jnp.argmax(jnp.where(view.action_mask, policy, -1.0), axis=-1).astype("int32"), memory, {}


OPPONENT = FixedPreference()


@pytest.mark.long
@pytest.mark.parametrize("name", ["tic_tac_toe", "kuhn_poker", "2048"])
def test_contract(name):
    check_environment(registry.make_compiled(f"pgx:{name}"), num_steps=12)


@pytest.mark.slow
@pytest.mark.parametrize("name", GAME_NAMES)
def test_contract_of_every_game(name):
    check_environment(registry.make_compiled(f"pgx:{name}"), num_steps=24)


@pytest.mark.long
@pytest.mark.parametrize("name", ["tic_tac_toe", pytest.param("kuhn_poker", marks=pytest.mark.slow)])
def test_contract_against_opponents(name):
    check_environment(OpponentEnv(Pgx(name), OPPONENT), num_steps=12)


def random_game(name, seed):
    """A random game in our adapter: the first pgx state, and player, action, payoffs, observations of each move."""
    game, rng = Pgx(name), np.random.default_rng(seed)
    state = game.init(seed_key(seed))
    game_step, first_state = jax.jit(game.step), state.pgx_state
    moves = []
    while not bool(game.is_terminal(state)):
        player = int(game.current_player(state))
        action = int(rng.choice(np.nonzero(np.asarray(game.action_mask(state)))[0]))
        observations = [np.asarray(game.observe(state, jnp.int32(p))["seen"]) for p in range(game.spec.num_players)]
        state = game_step(state, jnp.int32(action), seed_key(len(moves)))
        moves.append((player, action, np.asarray(game.rewards(state)), observations))
    return first_state, moves


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tic_tac_toe", "leduc_holdem"])
def test_games_match_pgx_whoever_starts(name):
    import pgx

    pgx_env = pgx.make(name)
    starters = set()
    for seed in range(6):
        state, moves = random_game(name, seed)
        first = int(state.current_player)
        starters.add(first)
        assert moves[0][0] == 0, "player 0 starts"
        for player, action, payoff, observations in moves:
            assert (player + first) % 2 == int(state.current_player)
            for observer in range(2):
                np.testing.assert_array_equal(
                    observations[observer], pgx_env._observe(state, (observer + first) % 2).astype("float32")
                )
            state = pgx_env.step(state, action)
            np.testing.assert_array_equal(payoff, np.roll(np.asarray(state.rewards), -first))
        assert bool(state.terminated)
    assert starters == {0, 1}


def test_card_games_observe_the_move_history():
    game = Pgx("kuhn_poker")

    @jax.jit
    def move_histories():
        state = game.init(seed_key(0))
        for action in (1, 0):
            state = game.step(state, jnp.int32(action), seed_key(0))
        return [game.observe(state, jnp.int32(player))["moves"] for player in range(2)]

    for moves in move_histories():
        np.testing.assert_array_equal(moves, [[0, 1], [1, 0], [0, 0]])


def test_only_the_current_player_acts():
    env = registry.make_compiled("pgx:tic_tac_toe")

    @jax.jit
    def step_env(state, turn):
        # the waiting player's action, an occupied square, is ignored
        return env.step(state, {"seats": jnp.broadcast_to(8 - turn, (2,))}, seed_key(0))

    state, step = jax.jit(env.reset)((), seed_key(0))
    for turn in range(4):
        np.testing.assert_array_equal(step.alive["seats"], [turn % 2 == 0, turn % 2 == 1])
        waiting = np.asarray(step.action_mask["seats"])[(turn + 1) % 2]
        np.testing.assert_array_equal(waiting, np.arange(9) == 0)
        state, step = step_env(state, np.int32(turn))
        assert not bool(step.terminated)


def test_opponent_moves_until_the_learners_turn():
    reset, params = jitted_reset()
    players = set()
    for seed in range(8):
        state, step = reset(params, seed_key(seed))
        players.add(int(state.seat))
        stones = int(np.asarray(step.observation["seen"]).sum())
        assert stones == int(state.seat), "the second player observes one stone"
    assert players == {0, 1}


@functools.cache
def jitted_reset():
    """The reset of a game against a policy, and its default parameters."""
    env = OpponentEnv(Pgx("tic_tac_toe"), OPPONENT)
    return jax.jit(env.reset), env.spec.params


def test_opponent_plays_its_own_policy():
    """Its first move is the one that its policy prefers."""
    reset, params = jitted_reset()
    center = jnp.asarray(np.arange(9) == 4, "float32")
    params = eqx.tree_at(
        lambda p: (p.policy, p.random_policy, p.seat), params, (center, jnp.asarray(False), jnp.int32(1))
    )
    _, step = reset(params, seed_key(0))
    assert not bool(step.action_mask[4]), "it takes the center"


def test_unknown_game_suggests_the_nearest():
    with pytest.raises(UserError, match="pgx:connect_four"):
        registry.make_compiled("pgx:connect_fuor")
