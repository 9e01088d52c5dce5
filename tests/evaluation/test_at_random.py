"""Games against a player at random, all counted: as many as rules written again on strings come to."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import PyTree
from made_up import ScriptedMethod

from thespis.actors.language import say
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.keys import key_of
from thespis.envs.games.everyone import SEATS, Everyone
from thespis.envs.games.naming import game
from thespis.envs.text.naming import world as named
from thespis.envs.text.tictactoe import best_cells
from thespis.evaluation.at_random import against_random
from thespis.language.sampling import Sampling
from thespis.language.tokens import words
from thespis.learners.crowd import EachAlone
from thespis.methods.language.spiral import Spiral
from thespis.methods.online.a2c import A2C
from thespis.tiny import prepared

DUEL = "text:tictactoe-duel"
LINES = ["123", "456", "789", "147", "258", "369", "159", "357"]


class BestCells(ScriptedMethod):
    """Plays the cells that are worth most against a player at random, from either seat. Nothing is learnt."""

    name = "best-cells"

    def act(self, policy, memory, view, key):
        seen = view.observation[SEATS]["seen"]  # [game, seat, row, column, whose]
        marks = seen.reshape(*seen.shape[:2], 9, 2).astype("int32")
        cells = marks[..., 0] + 2 * marks[..., 1]
        return {SEATS: jnp.asarray(best_cells())[(cells * 3 ** np.arange(9)).sum(axis=-1)]}, memory, {}


def on_strings(answer, said: str, marks: dict[str, int]) -> np.ndarray:
    """What the games after ``said`` come to, won, drawn and lost, where ``answer`` is what the agent says."""
    spoken = answer(said)
    cell = spoken.split()[0]
    if spoken != f"{cell} <end>" or cell not in "123456789" or cell in marks:
        return np.array([0.0, 0.0, 1.0])
    marks = marks | {cell: 0}
    if any(all(marks.get(c) == 0 for c in line) for line in LINES):
        return np.array([1.0, 0.0, 0.0])
    free = [c for c in "123456789" if c not in marks]
    if not free:
        return np.array([0.0, 1.0, 0.0])
    total = np.zeros(3)
    for other in free:
        after = marks | {other: 1}
        if any(all(after.get(c) == 1 for c in line) for line in LINES):
            total[2] += 1
        elif len(after) == 9:
            total[1] += 1
        else:
            total += on_strings(answer, f"{said} {spoken} {other} >", after)
    return total / len(free)


def counted_games(answer, seat: int) -> np.ndarray:
    """From all beginnings of a seat."""
    begins = [("start >", {})] if seat == 0 else [(f"{c} >", {c: 1}) for c in "123456789"]
    return np.mean([on_strings(answer, *begin) for begin in begins], axis=0)


@pytest.mark.parametrize("seat", [0, 1])
def test_the_best_reply_to_chance(seat):
    def answer(said: str) -> str:
        cells = [word for word in said.split() if word in set("123456789")]
        own = cells[seat::2]
        board = sum((1 if cell in own else 2) * 3 ** (int(cell) - 1) for cell in cells)
        return f"{best_cells()[board] + 1} <end>"

    found, counted = against_random(BestCells(), (), Everyone(game("tic_tac_toe")), seat), counted_games(answer, seat)
    np.testing.assert_allclose([found.won, found.drawn, found.lost], counted, atol=1e-6)
    assert counted[0] > 0.9 and counted.sum() == pytest.approx(1)


@functools.cache
def taught() -> tuple[EachAlone, PyTree]:
    """A model that was taught some cells, and what it knows."""
    method = EachAlone(prepared(Spiral(model="tiny", layers=1, width=32, lesson=300, roles=2), DUEL))
    return method, jax.jit(lambda: method.init(named("tictactoe-duel").spec, key_of(0)))()


@functools.cache
def speaker():
    """What it says after an utterance; transcripts are read whole, one by one."""
    (method, state), world = taught(), named("tictactoe-duel")
    (mind,) = [each.mind for each in state.of.values()]
    talking = method.policy(state, Mode.EXPLOIT).of[SEATS].talking
    tokenizer = words(dict(world.spec.action.parts)[SEATS].vocabulary.words)
    speak = jax.jit(lambda text: say(mind.model, Sampling(temperature=0.0), talking, text, key_of(0)))

    def answer(said: str) -> str:
        ids = tokenizer.encode(said)
        row = np.full((1, talking.length), -1, "int32")
        row[0, : len(ids)] = ids
        return tokenizer.decode([int(i) for i in np.asarray(speak(row))[0] if i >= 0])

    return answer


@pytest.mark.parametrize("seat", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_who_speaks_is_followed_through_all_games(seat):
    """A taught model's utterances; some of them are no cells."""
    counted = counted_games(speaker(), seat)
    found = against_random(*taught(), named("tictactoe-duel"), seat)
    np.testing.assert_allclose([found.won, found.drawn, found.lost], counted, atol=1e-6)
    assert counted[0] > 0 and counted[2] > 0


def test_games_with_chance_are_refused():
    world = Everyone(game("kuhn_poker"))
    method = EachAlone(A2C(hidden=(8,)))
    with pytest.raises(UserError, match="always begins alike"):
        against_random(method, (), world, 0)
