"""Reviews: what they earn, against the rules once more on strings; and the moods of the demonstrator."""

from __future__ import annotations

import functools
import re

import jax
import numpy as np
import pytest

from thespis.core.conformance import check_environment
from thespis.core.keys import key_of, per_index
from thespis.envs.text import naming
from thespis.envs.text.review import Review
from thespis.envs.text.task import Spoken
from thespis.language.tokens import words

GOES = {"food": "tasty stale", "staff": "kind rude", "room": "clean dirty"}
CLAUSE = "|".join(f"{noun} was ({'|'.join(said.split())})" for noun, said in GOES.items())
ORDER = re.compile(rf"({CLAUSE})( and ({CLAUSE})){{2}}")
LINES = [
    "food was tasty and staff was kind and room was clean <end>",
    "food was tasty and staff was rude and room was dirty <end>",
    "food was tasty and staff was kind <end>",
    "food was kind and staff was kind and room was clean <end>",
    "tasty tasty tasty tasty tasty tasty tasty tasty tasty tasty tasty <end>",
    "tasty tasty tasty tasty tasty tasty tasty tasty tasty tasty tasty tasty",
    "stale <end> tasty tasty tasty",
    "food was tasty and staff was kind and room was clean and",
    "food was tasty and staff was kind and and was clean <end>",
    "food and tasty was staff was kind and room was clean <end>",
    "<end>",
]


def worth(line: str) -> tuple[int, bool]:
    """Praise less blame, and whether all is in order."""
    said, end, _ = f" {line} ".partition(" <end> ")
    said = said.strip() if end else ""
    mood = {word: sign for good, bad in map(str.split, GOES.values()) for word, sign in ((good, 1), (bad, -1))}
    return sum(mood.get(word, 0) for word in said.split()), ORDER.fullmatch(said) is not None


@functools.cache
def heard(liking: float, order: float):
    """What a review of ids comes to, where praise and order earn so much."""
    world = Spoken(Review(liking=liking, order=order))
    return jax.jit(lambda said: world.step(world.reset((), key_of(0))[0], said, key_of(1))[1])


@pytest.mark.parametrize("line", LINES)
def test_reviews_earn_what_they_say(line):
    (liked, in_order), plain = worth(line), Review()
    for liking, order in ((plain.liking, plain.order), (0.5, 2.0)):
        action = Spoken(plain).spec.action
        ids = words(action.vocabulary.words).encode(line)
        step = heard(liking, order)(np.array([*ids, *[-1] * (action.length - len(ids))], "int32"))
        assert step.reward == liking * liked + order * in_order and step.terminated


def test_by_default_praise_is_all_that_is_paid():
    assert (Review().liking, Review().order) == (1.0, 0.0)


def test_lines_are_of_all_kinds():
    found = [worth(line) for line in LINES]
    assert {in_order for _, in_order in found} == {True, False}
    assert {np.sign(liked) for liked, _ in found} == {-1, 0, 1}


@pytest.mark.parametrize(
    ("constancy", "wandering"),
    [(0.8, 1.0), pytest.param(0.5, 1.0, marks=pytest.mark.slow), pytest.param(0.8, 0.0, marks=pytest.mark.slow)],
)
def test_moods_last_as_long_as_they_are_said_to(constancy, wandering):
    world, rows = Spoken(Review(constancy=constancy, wandering=wandering)), 4000
    state, begun = jax.jit(jax.vmap(lambda key: world.reset((), key)))(per_index(key_of(0), rows))
    said = jax.jit(jax.vmap(world.demonstrated))(state, per_index(key_of(1), rows))
    tokens = words(world.spec.action.vocabulary.words)
    told = zip(np.asarray(begun.observation), np.asarray(said), strict=True)
    texts = [f"{tokens.decode(a)} {tokens.decode(b)}" for a, b in told]
    moods = []
    for text in texts:
        opening, _, rest = text.partition(" > ")
        assert re.fullmatch(CLAUSE, opening) and worth(rest)[1], text
        moods.append([any(good in clause for good in ["tasty", "kind", "clean"]) for clause in
                      (opening, *rest.split(" and "))])  # fmt: skip
    moods = np.array(moods)
    assert moods[:, 0].mean() == pytest.approx(0.5, abs=0.03)
    if wandering:
        for i in range(3):
            assert (moods[:, i] == moods[:, i + 1]).mean() == pytest.approx(constancy, abs=0.03)
    else:
        assert moods[:, 1:].all()


def test_laws_of_reviews():
    world = naming.world("review")
    assert isinstance(world, Spoken) and world.spec.name == "text:review"
    check_environment(world, rows=3, ticks=4)
