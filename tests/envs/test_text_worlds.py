"""The built-in conversations against a second telling of their rules, on strings, and against the best there is."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from text_rules import RULES, WRITTEN

from thespis.core.conformance import check_environment
from thespis.core.keys import fold, key_of, per_index
from thespis.core.samples import random_value
from thespis.envs.text import naming
from thespis.envs.text.calculator import Calculator
from thespis.envs.text.correction import Correction
from thespis.envs.text.countdown import Countdown, expressions
from thespis.envs.text.household import Household
from thespis.envs.text.kuhn import Hand, Kuhn
from thespis.envs.text.questions import ANIMALS, Questions
from thespis.envs.text.task import Spoken
from thespis.envs.text.tictactoe import Tictactoe, best_cells
from thespis.envs.text.wordle import COLOURS, WORDS, Wordle, coloured
from thespis.language.tokens import words

MIXED = {
    "wordle": Wordle(wandering=0.7),
    "questions": Questions(wandering=0.5),
    "countdown": Countdown(wandering=0.7),
    "calculator": Calculator(wandering=0.2),
    "household": Household(wandering=0.3),
    "household of four places": Household(wandering=0.8, places=4),
    "household that hints": Household(wandering=0.8, places=4, hints=0.25),
    "household of three homes that hints": Household(wandering=0.8, places=4, homes=3, hints=0.25),
    "household of three homes": Household(wandering=0.8, places=4, homes=3),
    "correction": Correction(wandering=0.4, bonus=0.5),
    "kuhn": Kuhn(wandering=0.8),
    "tictactoe": Tictactoe(wandering=0.5),
}
"""Demonstrators of whom some succeed and some do not."""
CHANCE = {"kuhn": lambda: 11 / 24, "tictactoe": lambda: best_of_tictactoe()}
"""Worlds that need luck, and what the best may expect."""
PERFECT, SCRIPTED, SPOILT, GARBAGE, BY_HAND = range(5)


class Compiled(NamedTuple):
    """Functions of a world, for many episodes."""

    reset: Any
    step: Any
    say: Any


@functools.cache
def compiled(name: str, rows: int) -> Compiled:
    world = Spoken(MIXED[name])
    return Compiled(
        jax.jit(lambda key: jax.vmap(world.reset, in_axes=(None, 0))(None, per_index(key, rows))),
        jax.jit(lambda state, said, key: jax.vmap(world.step)(state, said, per_index(key, rows))),
        jax.jit(lambda world, state, key: jax.vmap(world.demonstrated)(state, per_index(key, rows))),
    )


def utterances(kind: int, space: Any, scripted: Any, rng: np.random.Generator) -> np.ndarray:
    """What the demonstrator says, that with one id changed, lost or added in half of the rows, or any ids at all."""
    said = np.array(scripted)
    if kind == GARBAGE:
        return np.asarray(random_value(space, rng, said.shape[:1]))
    for i in np.flatnonzero(rng.uniform(size=len(said)) < 0.5) if kind == SPOILT else ():
        ids = said[i][said[i] >= 0].tolist()
        at, lost, added = rng.integers(len(ids)), rng.integers(2), rng.integers(2)
        ids[at : at + lost] = rng.integers(0, space.vocabulary.size, added).tolist()
        ids = (ids or [0])[: said.shape[1]]
        said[i] = ids + [-1] * (said.shape[1] - len(ids))
    return said


def by_hand(name: str, told: list[Any], tokens: Any, width: int, rng: np.random.Generator) -> np.ndarray:
    """Some of the written utterances."""
    lines = rng.choice(WRITTEN[name.split()[0]], len(told))
    said = [tokens.encode(line.format(r=rules)) for line, rules in zip(lines, told, strict=True)]
    return np.array([[*ids, *[-1] * (width - len(ids))] for ids in said], "int32")


def played(name: str, rows: int, kind: int, seed: int) -> np.ndarray:
    """What each episode earned; every step of it has been compared."""
    reset, step, say = compiled(name, rows)
    world = Spoken(dataclasses.replace(MIXED[name], wandering=0.0) if kind == PERFECT else MIXED[name])
    tokens, limit = words(world.spec.action.vocabulary.words), world.spec.time_limit
    rng, root = np.random.default_rng(seed), key_of(seed)
    state, now = reset(fold(root, "reset"))
    drawn = jax.tree.map(np.asarray, state.task)
    told = [RULES[name.split()[0]](MIXED[name], jax.tree.map(lambda x, i=i: x[i], drawn)) for i in range(rows)]
    texts, returns, alive = [rules.opening for rules in told], np.zeros(rows), np.ones(rows, bool)
    for turn in range(1, limit + 1):
        if kind == BY_HAND:
            said = by_hand(name, told, tokens, world.spec.action.length, rng)
        else:
            said = utterances(kind, world.spec.action, say(world, state, fold(root, "say", turn)), rng)
        state, now = step(state, said, fold(root, "step", turn))
        reward, over, cut = (np.asarray(x) for x in (now.reward, now.terminated, now.truncated))
        seen = np.asarray(now.observation)
        for i in np.flatnonzero(alive):
            spoken, text = tokens.decode(said[i]), tokens.decode(seen[i])
            so_far = f"{texts[i]} {spoken}" + ("" if "<end>" in spoken.split() else " <end>")
            ways = {
                (f"{so_far} {answer}".strip(), np.float32(earned), end or turn == limit)
                for answer, earned, end in told[i].say(spoken)
            }
            assert (text, reward[i], over[i]) in ways
            assert tokens.encode(text) == seen[i][seen[i] >= 0].tolist()
            assert not cut[i]
            if not over[i]:
                told[i].follow(text[len(so_far) + 1 :].removesuffix(" >"))
            texts[i] = text
        returns += np.where(alive, reward, 0.0)
        alive &= ~over
    assert not alive.any()
    return returns


MANY_SIDED = "household of three homes that hints"
"""All of this task's settings at once: each of them alone is left to the slow tests."""


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[pytest.mark.slow] if "household " in name and name != MANY_SIDED else [])
    for name in MIXED
])  # fmt: skip
def test_every_conversation_is_as_told(name):
    perfect, scripted, spoilt, garbage, _ = (played(name, 24, kind, kind) for kind in range(5))
    worth = {1.25, 1.5} if name.endswith("that hints") else {1}
    assert name in CHANCE or set(perfect) == worth
    assert scripted.max() >= 1 and scripted.min() < 1
    assert len(set(spoilt)) > 1
    assert garbage.mean() < 0.25


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_many_conversations_are_as_told(name):
    perfect, scripted, spoilt, garbage, _ = (
        np.concatenate([played(name, 256, kind, 10 * kind + seed) for seed in range(3)]) for kind in range(5)
    )
    worth = CHANCE[name]() if name in CHANCE else 1.0
    assert abs(perfect.mean() - worth) <= 4 * perfect.std() / len(perfect) ** 0.5
    assert spoilt.mean() < scripted.mean() < perfect.mean()
    assert garbage.mean() < (0.05 if name in CHANCE else 0.01)


LAWS = [pytest.param(name, marks=[] if name == "correction" else [pytest.mark.slow]) for name in RULES]


@pytest.mark.parametrize("name", LAWS)
def test_laws_of_built_in_conversations(name):
    world = naming.world(name)
    check_environment(world, rows=3, ticks=world.spec.time_limit + 3)


def test_homes_are_as_many_as_asked_for():
    keys = jax.random.split(key_of(0), 200)

    def beginnings(homes):
        return {tuple(ids) for ids in np.asarray(jax.jit(jax.vmap(Household(homes=homes).begin))(keys)[1]).tolist()}

    few = beginnings(3)
    assert len(few) == 3 and few < beginnings(40)
    assert len(beginnings(0)) > 150


def test_transcripts_are_short():
    for name in RULES:
        spec = naming.world(name).spec
        assert spec.observation.length <= 300 and spec.action.length <= 8, name


def test_colours_of_every_guess():
    for (g, guess), (h, hidden) in itertools.product(enumerate(WORDS), repeat=2):
        rules = RULES["wordle"](None, NamedTuple("Drawn", [("hidden", int)])(h))
        answer, _, _ = rules.heard(" ".join(guess))
        assert answer == " ".join(COLOURS[i] for i in coloured()[g, h]), (guess, hidden)


@pytest.mark.parametrize(
    ("guess", "hidden", "colours"),
    [
        ("sleep", "eagle", "grey yellow yellow yellow grey"),
        ("level", "eagle", "yellow yellow grey yellow grey"),
        ("chess", "ghost", "grey green grey green grey"),
        ("paper", "apple", "yellow yellow green yellow grey"),
        ("queen", "fence", "grey grey yellow yellow yellow"),
    ],
)
def test_colours_of_letters_that_repeat(guess, hidden, colours):
    assert [COLOURS[i] for i in coloured()[WORDS.index(guess), WORDS.index(hidden)]] == colours.split()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "drawn", "turns"), [(Wordle(wandering=0.0), "hidden", 4), (Questions(wandering=0.0), "animal", 9)]
)
def test_everything_hidden_is_found(task, drawn, turns):
    """Not only what was drawn by chance; a word with two guesses to spare."""
    world, count = Spoken(task), len(WORDS if drawn == "hidden" else ANIMALS)
    keys = per_index(key_of(0), count)
    state, _ = jax.jit(jax.vmap(world.reset, in_axes=(None, 0)))(None, keys)
    state = eqx.tree_at(lambda talk: getattr(talk.task, drawn), state, jnp.arange(count))
    found = np.zeros(count, bool)
    step, say = jax.jit(jax.vmap(world.step)), jax.jit(jax.vmap(world.demonstrated))
    for _ in range(turns):
        state, now = step(state, say(state, keys), keys)
        found |= np.asarray(now.reward) == 1
    assert found.all()


def test_no_two_animals_are_alike():
    assert len({frozenset(like.split()) for like in ANIMALS.values()}) == len(ANIMALS) == 40


@pytest.mark.parametrize("numbers", [2, 3, 4])
def test_expressions_are_all_there_are(numbers):
    def trees(leaves):
        if len(leaves) == 1:
            return list(leaves)
        cuts = [(trees(leaves[:i]), trees(leaves[i:])) for i in range(1, len(leaves))]
        return [f"{a} {b} {mark}" for left, right in cuts for a in left for b in right for mark in "+-*"]

    wanted = {text for order in itertools.permutations(map(str, range(numbers))) for text in trees(order)}
    found = [" ".join(str(i) if i < numbers else "+-*"[i - numbers] for i in row) for row in expressions(numbers)]
    assert len(found) == len(set(found)) and set(found) == wanted


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [2, 4])
def test_countdown_of_other_sizes(numbers):
    task = Countdown(numbers=numbers, turns=1, wandering=0.0)
    world = Spoken(task)
    keys = per_index(key_of(0), 32)
    state, _ = jax.jit(jax.vmap(world.reset, in_axes=(None, 0)))(None, keys)
    said = jax.jit(jax.vmap(world.demonstrated))(state, keys)
    _, now = jax.jit(jax.vmap(world.step))(state, said, keys)
    assert (np.asarray(now.reward) == 1).all() and np.asarray(now.terminated).all()


def test_the_bet_of_the_demonstrator_is_the_best():
    """Of all ways to play, by chances written out."""
    deals = list(itertools.permutations(range(3), 2))

    def worth(bets):
        """``bets[card, situation]``: begin, after a pass, after a bet, and after one's own pass and a bet."""
        total = 0.0
        for mine, theirs in deals:
            sign = 1 if mine > theirs else -1
            betting = (1 + 2 * sign) / 2
            begin, passed, faced, again = bets[mine]
            first = betting if begin else sign / 2 + (2 * sign if again else -1) / 2
            second = (betting if passed else sign) / 2 + (2 * sign if faced else -1) / 2
            total += (first + second) / 2
        return total / len(deals)

    rows = list(itertools.product([False, True], repeat=4))
    best = max(worth(bets) for bets in itertools.product(rows, repeat=3))
    task, bet = Kuhn(wandering=0.0), Kuhn().manners.id("bet")
    expert = jax.jit(task.expert)

    def says(card, first, faced):
        hand = Hand(jnp.asarray(np.array([card, 0])), jnp.asarray(first), jnp.asarray(faced))
        return int(np.asarray(expert(hand, key_of(0)))[0]) == bet

    kinds = [(True, False), (False, False), (False, True), (True, True)]
    assert worth([[says(card, *kind) for kind in kinds] for card in range(3)]) == pytest.approx(best) == 11 / 24


class Drawn(NamedTuple):
    """All that the rules of tic-tac-toe read."""

    cells: tuple[int, ...]


@functools.cache
def best(cells: tuple[int, ...]) -> float:
    """What the agent, to move, may expect of an opponent at random."""
    return max(worths(cells).values())


@functools.cache
def worths(cells: tuple[int, ...]) -> dict[int, float]:
    """Each free cell's worth, if it is followed by the best ones."""
    found = {}
    for cell in (i for i in range(9) if cells[i] == 0):
        ways, after = RULES["tictactoe"](None, Drawn(cells)).say(f"{cell + 1} <end>"), [*cells]
        after[cell], found[cell] = 1, 0.0
        for answer, reward, over in ways:
            other = None if over else int(answer.removesuffix(" >")) - 1
            follows = tuple(2 if i == other else mark for i, mark in enumerate(after))
            found[cell] += (reward if over else best(follows)) / len(ways)
    return found


def best_of_tictactoe() -> float:
    second = [best(tuple(2 * (i == j) for j in range(9))) for i in range(9)]
    return (best((0,) * 9) + float(np.mean(second))) / 2


def test_the_cells_of_the_demonstrator_are_the_best():
    """On all boards on which the agent is to move, whatever it did before."""

    def look(cells):
        chosen = int(best_cells()[sum(mark * 3**i for i, mark in enumerate(cells))])
        assert worths(cells)[chosen] == pytest.approx(best(cells)), cells

    assert best_of_tictactoe() == pytest.approx(0.9598, abs=1e-4)
    boards = [cells for cells in itertools.product(range(3), repeat=9) if 0 in cells and playing(cells)]
    for cells in boards:
        look(cells)
    assert len(boards) > 1000


def playing(cells: tuple[int, ...]) -> bool:
    """Whether a board may be met when the agent is to move."""
    rules = RULES["tictactoe"](None, Drawn(cells))
    return cells.count(2) - cells.count(1) in (0, 1) and not (rules.won("x") or rules.won("o"))


def test_first_attempts_are_paid_at_once():
    world = Spoken(Correction(wandering=0.0, first=0.25))

    @jax.jit
    def rewards(more):
        state, _ = world.reset((), key_of(0))
        thought = dataclasses.replace(state.task, terms=state.task.terms.at[0].add(more))
        after, first = world.step(state, world.task.expert(thought, key_of(1)), key_of(2))
        return first.reward, world.step(after, world.task.expert(after.task, key_of(1)), key_of(2))[1].reward

    assert [float(x) for x in rewards(0)] == [0.25, 1.0] and [float(x) for x in rewards(1)] == [0.0, 1.0]
