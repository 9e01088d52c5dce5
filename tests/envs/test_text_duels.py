"""Games of words in which all seats speak: against rules written again on strings, and judged as the games they are."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis import tiny
from thespis.core.conformance_worlds import check_environment
from thespis.core.contracts import Mode
from thespis.core.feeds import Episodes
from thespis.core.game_trees import game_tree
from thespis.core.keys import fold, key_of
from thespis.core.records import View
from thespis.curricula.fixed import Fixed
from thespis.envs.games.everyone import SEATS
from thespis.envs.games.pgx import Pgx
from thespis.envs.text.naming import world as named
from thespis.evaluation.exploitability import judge, judge_method
from thespis.feedback.environment import EnvironmentReward
from thespis.language.tokens import words
from thespis.learners.crowd import EachAlone, one_of
from thespis.loops.compiled import CompiledLoop
from thespis.loops.parts import Parts
from thespis.methods.language.spiral import Spiral

SMALL = {"model": "blank", "layers": 2, "width": 32, "roles": 2}
LINES = ["123", "456", "789", "147", "258", "369", "159", "357"]


class Kuhn:
    """Poker of two, told again. ``won`` is what the first player wins."""

    def __init__(self, cards: list[int]):
        self.cards, self.moves, self.won = cards, "", None
        self.text = [f"hold {('jack', 'queen', 'king')[card]}" for card in cards]
        self.text[0] += " start >"

    def say(self, said: str) -> None:
        mover = len(self.moves) % 2
        self.text[mover] += " " + said + ("" if "<end>" in said.split() else " <end>")
        if said not in ("bet <end>", "pass <end>"):
            self.won = -2 if mover == 0 else 2
            return
        word = said.split()[0]
        self.moves += word[0]
        high = 1 if self.cards[0] > self.cards[1] else -1
        self.won = {"pp": high, "bp": 1, "pbp": -1, "bb": 2 * high, "pbb": 2 * high}.get(self.moves)
        self.text[1 - mover] += f" {word}" + (" >" if self.won is None else "")


class Noughts:
    """Tic-tac-toe, told again."""

    def __init__(self, _: object):
        self.board, self.won, self.text = {}, None, ["start >", ""]

    def say(self, said: str) -> None:
        mover = len(self.board) % 2
        self.text[mover] = f"{self.text[mover]} {said}".strip() + ("" if "<end>" in said.split() else " <end>")
        cell = said.split()[0]
        if said != f"{cell} <end>" or cell not in "123456789" or cell in self.board:
            self.won = -6 if mover == 0 else 6
            return
        self.board[cell] = mover
        if any(all(self.board.get(c) == mover for c in line) for line in LINES):
            self.won = 1 if mover == 0 else -1
        elif len(self.board) == 9:
            self.won = 0
        self.text[1 - mover] = f"{self.text[1 - mover]} {cell}".strip() + (" >" if self.won is None else "")


@pytest.mark.parametrize(("name", "plain"), [("kuhn-duel", Kuhn), ("tictactoe-duel", Noughts)])
def test_a_duel_does_what_the_plain_game_does(name, plain):
    world, rng = named(name), np.random.default_rng(0)
    known, limit = world.spec.action.parts[0][1].vocabulary.words, world.spec.time_limit
    tokenizer = words(known)

    @jax.jit
    def begun(key):
        state, seen = world.reset((), key)
        return state, seen, [jnp.argmax(world.game.game.observe(state.inner, jnp.int32(i))["seen"][:3]) for i in (0, 1)]

    step, shown = (
        jax.jit(world.step),
        jax.jit(lambda state, key, turn: world.demonstrated(state, fold(key, "say", turn))),
    )
    outcomes = set()
    for episode in range(40):
        key = key_of(episode)
        state, seen, cards = begun(key)
        game = plain([int(card) for card in cards])
        for turn in range(limit):
            seen = jax.tree.map(np.asarray, seen)
            for seat in range(2):
                ids = [int(i) for i in seen.observation[SEATS][seat] if i >= 0]
                assert tokenizer.decode(ids) == game.text[seat]
            mover = int(np.argmax(seen.alive[SEATS]))
            assert mover == turn % 2 and not seen.alive[SEATS][1 - mover]
            said = np.array(shown(state, key, turn)[SEATS])
            assert (said[1 - mover] == -1).all()
            if rng.random() < 0.1:  # what may be no move at all
                said[mover] = rng.integers(0, len(known), 2)
            said[1 - mover] = rng.integers(0, len(known), 2)  # nobody listens
            state, seen = step(state, {SEATS: said}, key)
            game.say(" ".join(known[i] for i in said[mover]))
            paid = np.asarray(seen.each[SEATS].reward)
            first = float(paid[0])
            assert float(paid.sum()) == 0 and first == (game.won or 0) == float(seen.reward)
            assert bool(seen.terminated) == (game.won is not None) and not seen.truncated
            if game.won is not None:
                outcomes.add(game.won)
                break
        assert game.won is not None
    assert len(outcomes) >= 3


def test_a_told_game_is_worth_what_the_game_is():
    told, game = (game_tree(g) for g in (named("kuhn-duel").game, Pgx("kuhn_poker")))
    assert len(told.owner) == len(game.owner) == 12
    even = np.full((12, 2), 0.5)
    a, b = judge(told, even), judge(game, even)
    np.testing.assert_allclose(a.values, b.values, atol=1e-12)
    np.testing.assert_allclose(a.best_responses, b.best_responses, atol=1e-12)


@pytest.mark.slow
def test_what_is_read_of_a_policy_is_how_it_speaks():
    """The share of each listed utterance among all that was sampled, where a bet and a pass are all that count."""
    world = named("kuhn-duel")
    spec, method = one_of(world.spec, world.spec.groups[0]), Spiral(**SMALL)
    state = method.init(spec, key_of(1))
    policy, (_, begun) = method.policy(state, Mode.SAMPLE), world.reset((), key_of(0))
    rows = 60_000
    view = View(jnp.tile(begun.observation[SEATS][:1], (rows, 1)), alive=jnp.ones(rows, bool))
    said = np.asarray(jax.jit(method.act)(policy, method.begin(policy, rows), view, key_of(2))[0])
    bets, passes = ((said == np.array(choice)).all(axis=1).sum() for choice in world.game.choices)
    assert bets + passes > 300
    one = View(view.observation[:1])
    read = np.asarray(method.probabilities(policy, method.begin(policy, 1), one))[0]
    assert abs(read[0] - bets / (bets + passes)) < 4 * (0.25 / (bets + passes)) ** 0.5
    no_bet = View(one.observation, jnp.array([[False, True]]))
    np.testing.assert_array_equal(method.probabilities(policy, method.begin(policy, 1), no_bet)[0], [0, 1])
    (judged,) = judge_method(EachAlone(method), jax.tree.map(lambda x: x[None], _alone(method, world)), world.game)
    assert judged.exploitability > 0


def _alone(method: Spiral, world):
    return EachAlone(method).init(world.spec, key_of(1))


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("tictactoe-duel", 1),
        *(pytest.param(name, 2, marks=pytest.mark.slow) for name in ("tictactoe-duel", "kuhn-duel")),
    ],
)
def test_who_waits_neither_hears_nor_speaks(name, layers):
    """The trainer finds the log-probabilities that were sampled, over all turns of both seats."""
    world = named(name)
    method = EachAlone(
        Spiral(**SMALL | {"layers": layers}, minibatch=64, feed=Episodes(world.spec.time_limit, envs=32))
    )
    loop = CompiledLoop(Parts(method, EnvironmentReward(), Fixed()), world, 32, [0], 10**6)
    _, tally = loop.take_tally(loop.advance(loop.init(), 1))
    assert np.all(np.asarray(tally.metrics["ratio"]) < 1e-5)


def test_demonstrations_are_those_of_every_seat():
    world = named("tictactoe-duel")
    transcripts, starts, said = map(np.asarray, tiny.demonstrated(world, 16)[:3])
    known = words(world.spec.action.parts[0][1].vocabulary.words)
    begun = {known.decode([int(i) for i in row if i >= 0]).split()[0] for row in transcripts}
    assert transcripts.shape[0] == 32 and "start" in begun and len(begun) > 3
    rows = np.arange(32)
    for t in range(starts.shape[0]):
        for i in range(said.shape[2]):
            spoken = said[t, :, i] >= 0
            np.testing.assert_array_equal(transcripts[rows, starts[t] + i][spoken], said[t, :, i][spoken])
    assert (said[:, ::2] >= 0).any(axis=(0, 2)).all() and (said[:, 1::2] >= 0).any(axis=(0, 2)).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kuhn-duel", "tictactoe-duel"])
def test_contract(name):
    check_environment(named(name))
