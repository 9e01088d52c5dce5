"""Reviews: what they earn, against the rules once more on strings; and the moods of the demonstrator."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
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


@pytest.mark.parametrize("line", LINES)
def test_reviews_earn_what_they_say(line):
    liked, in_order = worth(line)
    for task, wanted in ((Review(), liked), (Review(liking=0.5, order=2.0), 0.5 * liked + 2.0 * in_order)):
        world = Spoken(task)
        tokens = words(world.spec.action.vocabulary.words)
        ids = tokens.encode(line)
        said = jnp.array([*ids, *[-1] * (world.spec.action.length - len(ids))])
        state, _ = world.reset((), key_of(0))
        _, step = world.step(state, said, key_of(1))
        assert step.reward == wanted and step.terminated


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
    texts = [f"{tokens.decode(a)} {tokens.decode(b)}" for a, b in zip(np.array(begun.observation), said, strict=True)]
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
