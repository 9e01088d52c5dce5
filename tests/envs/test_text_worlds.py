"""The built-in conversations against a second telling of their rules, on strings, and against what can be reached."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from text_rules import RULES

from thespis.core.conformance import check_environment
from thespis.core.keys import fold, key_of, per_index
from thespis.core.samples import random_value
from thespis.envs.text import naming, questions, wordle
from thespis.envs.text.calculator import Calculator
from thespis.envs.text.correction import Correction
from thespis.envs.text.countdown import Countdown, expressions
from thespis.envs.text.household import Household
from thespis.envs.text.questions import Questions
from thespis.envs.text.task import Spoken
from thespis.envs.text.wordle import Wordle
from thespis.language.tokens import words
from thespis.tiny import demonstrations

ROWS = 96
MIXED = {
    "wordle": Wordle(wandering=0.7),
    "questions": Questions(wandering=0.5),
    "countdown": Countdown(wandering=0.7),
    "calculator": Calculator(wandering=0.2),
    "household": Household(wandering=0.4),
    "correction": Correction(wandering=0.4, bonus=0.5),
}
"""Demonstrators of whom some succeed and some do not."""
SCRIPTED, SPOILT, GARBAGE = range(3)


class Compiled(NamedTuple):
    """A world, and its functions for many episodes."""

    world: Spoken
    reset: Any
    step: Any
    say: Any


@functools.cache
def compiled(name: str) -> Compiled:
    world = Spoken(MIXED[name])
    reset = jax.jit(lambda key: jax.vmap(world.reset, in_axes=(None, 0))(None, per_index(key, ROWS)))
    step = jax.jit(lambda state, said, key: jax.vmap(world.step)(state, said, per_index(key, ROWS)))
    say = jax.jit(lambda state, key: jax.vmap(world.demonstrated)(state, per_index(key, ROWS)))
    return Compiled(world, reset, step, say)


def utterances(kind: int, world: Spoken, scripted: Any, rng: np.random.Generator) -> np.ndarray:
    """What the demonstrator says, that with an id changed, lost or added, or any ids at all."""
    said = np.array(scripted)
    if kind == GARBAGE:
        return np.asarray(random_value(world.spec.action, rng, (ROWS,)))
    if kind == SPOILT:
        for row in said[rng.uniform(size=ROWS) < 0.5]:
            pass
        for i in np.flatnonzero(rng.uniform(size=ROWS) < 0.5):
            ids = said[i][said[i] >= 0].tolist()
            at = rng.integers(len(ids))
            ids[at : at + rng.integers(2)] = rng.integers(0, world.spec.action.vocabulary.size, rng.integers(2)).tolist()
            ids = (ids or [0])[: said.shape[1]]
            said[i] = ids + [-1] * (said.shape[1] - len(ids))
    return said


@pytest.mark.parametrize("name", RULES)
def test_every_conversation_is_as_told(name):
    world, reset, step, say = compiled(name)
    tokens = words(world.spec.action.vocabulary.words)
    rewards = []
    for seed, kind in enumerate([SCRIPTED, SPOILT, SPOILT, GARBAGE]):
        rng, root = np.random.default_rng(seed), key_of(seed)
        state, now = reset(fold(root, "reset"))
        drawn = [jax.tree.map(lambda x, i=i: np.asarray(x[i]), state.task) for i in range(ROWS)]
        told = [RULES[name](world.task, one) for one in drawn]
        texts = [rules.opening for rules in told]
        alive = np.ones(ROWS, bool)
        for turn in range(1, world.spec.time_limit + 1):
            said = utterances(kind, world, say(state, fold(root, "say", turn)), rng)
            state, now = step(state, said, fold(root, "step", turn))
            reward, over, cut, seen = (np.asarray(x) for x in (now.reward, now.terminated, now.truncated, now.observation))
            for i in np.flatnonzero(alive):
                spoken = tokens.decode(said[i])
                answer, earned, ended = told[i].say(spoken)
                texts[i] = " ".join(f"{texts[i]} {spoken} {'' if '<end>' in spoken.split() else '<end>'} {answer}".split())
                where = f"seed {seed}: {texts[i]}"
                assert tokens.decode(seen[i]) == texts[i], where
                assert tokens.encode(texts[i]) == seen[i][seen[i] >= 0].tolist(), where
                assert reward[i] == np.float32(earned) and over[i] == ended, where
                assert cut[i] == (turn == world.spec.time_limit and not ended), where
                rewards += [(kind, earned)]
            alive &= ~(over | cut)
        assert not alive.any()
    assert any(r > 0 for kind, r in rewards if kind == SPOILT)
    assert np.mean([r for kind, r in rewards if kind == GARBAGE]) < 0.02


@pytest.mark.parametrize("name", RULES)
def test_laws_of_worlds(name):
    check_environment(naming.world(name), ticks=2 * naming.world(name).spec.time_limit + 2)
