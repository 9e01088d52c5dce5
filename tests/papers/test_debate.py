"""Debate: a judge who knows more than chance, verdicts that follow from what was shown, and who may show what."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.actors.positions import GameModel
from thespis.actors.search import GumbelSearch
from thespis.core.conformance import check_environment
from thespis.core.keys import key_of
from thespis.envs.games.debate import Adviser, Debate, Question
from thespis.envs.games.digits import LABELS, PIXELS, accuracy, digits, drawn, judge_of
from thespis.envs.games.everyone import Everyone
from thespis.evidence.debating import questions

TWO = Debate(2)


def verdicts(question: Question, first: int) -> np.ndarray:
    """By numpy alone: who wins if the second player answers ``first`` with each of the pixels, 1 or -1."""
    judge, image, claims = judge_of(2), np.asarray(question.image), np.asarray(question.claims)
    won = []
    for second in range(PIXELS):
        seen = np.zeros((2, PIXELS))
        seen[0, [first, second]], seen[1, [first, second]] = image[[first, second]], 1
        logits = judge.last @ np.maximum(judge.first @ seen.reshape(-1) + judge.bias, 0)
        won.append(1 if logits[claims[0]] > logits[claims[1]] else -1)
    return np.array(won)


@pytest.mark.slow
def test_verdicts_are_those_of_the_judge_and_a_search_finds_the_last_word():
    begun = [jax.tree.map(lambda x, row=row: x[row], questions(0, 2)) for row in (0, 4, 9, 15)]
    firsts = [int(np.argmax(np.asarray(question.image))) for question in begun]
    places = [TWO.play(q, jnp.int32(first), key_of(0)) for q, first in zip(begun, firsts, strict=True)]
    position = jax.tree.map(lambda *x: jnp.stack(x), *places)
    all_ways = jax.vmap(jax.vmap(TWO.play, in_axes=(None, 0, None)), in_axes=(0, None, None))
    ends = all_ways(position, jnp.arange(PIXELS), key_of(0))
    found = np.asarray(jax.vmap(jax.vmap(TWO.payoff))(ends))
    legal = np.asarray(jax.vmap(TWO.legal)(position))
    expected = np.stack([verdicts(q, first) for q, first in zip(begun, firsts, strict=True)])
    assert (found[..., 0] == expected)[legal].all() and (found[..., 0] == -found[..., 1])[legal].all()

    model = GameModel(TWO, lambda seen: (jnp.zeros(PIXELS), jnp.zeros(())))
    search = GumbelSearch(1.0, 0.0, simulations=PIXELS, considered=PIXELS)
    move = np.asarray(search(model, model.look(position), jnp.asarray(legal), key_of(1)).action)
    best = np.where(legal, -expected, -2).max(axis=1)
    assert (-expected[np.arange(4), move] == best).all() and set(best) == {1}


@pytest.mark.slow
def test_a_judge_tells_more_than_chance_and_from_what_is_shown_alone():
    judge, unseen = judge_of(2), digits(seen=False)
    assert 0.25 < accuracy(judge, 2, unseen, key_of(0)) < 0.4, "two pixels of 64 tell little, but not nothing"
    image = jnp.asarray(unseen.images[0])
    shown = drawn(image, 5, key_of(2))
    assert shown.sum() == 5 and (image > 0)[shown].all()
    hidden = jnp.where(shown, image, 1.0 - image)
    assert (judge(image, shown) == judge(hidden, shown)).all()


@pytest.mark.slow
def test_who_speaks_and_what_may_be_shown():
    position = TWO.start(key_of(3))
    assert position.claims[0] != position.claims[1] and (TWO.legal(position) == (position.image > 0)).all()
    mine, theirs = (TWO.observe(position, jnp.int32(player))["claims"].reshape(2, LABELS) for player in (0, 1))
    assert (mine == theirs[::-1]).all() and mine[0, position.claims[0]] == 1
    pixel = int(jnp.argmax(position.image))
    once = TWO.play(position, jnp.int32(pixel), key_of(0))
    assert not TWO.legal(once)[pixel] and not TWO.over(once) and (TWO.payoff(once) == 0).all()
    assert [int(game.player(p)) for game in (TWO, Debate(2, Adviser())) for p in (position, once)] == [0, 1, 0, 0]
    over = TWO.play(once, jnp.argmax(TWO.legal(once)).astype("int32"), key_of(0))
    assert TWO.over(over) and (TWO.play(over, jnp.int32(0), key_of(0)).shown == over.shown).all()


def test_truth_is_told_about_as_often_by_either_player():
    data = digits(seen=True)
    begun = jax.vmap(TWO.start)(jax.random.split(key_of(4), 200))
    which = jnp.argmax((begun.image[:, None] == data.images).all(axis=-1), axis=1)
    first, second = (begun.claims == jnp.asarray(data.labels)[which][:, None]).T
    assert (first ^ second).all() and 70 < first.sum() < 130
    asked = questions(1, 3)
    assert (asked.claims[:, 1].reshape(3, 9) == digits(seen=False).labels[:3, None]).all()
    assert all(len(set(row)) == 9 for row in np.asarray(asked.claims[:, 0].reshape(3, 9)))


@pytest.mark.slow
@pytest.mark.parametrize("speakers", [TWO.speakers, Adviser()])
def test_a_debate_is_a_world(speakers):
    check_environment(Everyone(Debate(2, speakers)))
