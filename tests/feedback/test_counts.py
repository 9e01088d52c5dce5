"""Counting against a dictionary."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.errors import UserError
from thespis.core.records import Batch, EnvSpec, Transition, View
from thespis.core.spaces import Box, Discrete, dict_space
from thespis.evaluation.view import command
from thespis.feedback.counts import Counts
from thespis.parts import feedback_from
from thespis.runs.config import to_config

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
SPACE = dict_space(place=Box((3,)), which=Discrete(4))


def batch(time=6, rows=5):
    seen = {
        "place": jnp.asarray(RNG.normal(size=(time, rows, 3)), "float32"),
        "which": jnp.asarray(RNG.integers(0, 4, (time, rows)), "int32"),
    }
    no, reward = jnp.zeros((time, rows), bool), jnp.asarray(RNG.normal(size=(time, rows)), "float32")
    elsewhere = View(jax.tree.map(jnp.zeros_like, seen))  # what was seen before the step does not count
    steps = Transition(elsewhere, jnp.zeros((time, rows), "int32"), reward, no, no, View(seen), no)
    return Batch(steps, jnp.asarray(RNG.uniform(size=(time, rows)) < 0.8), (), jnp.int32(0))


@pytest.mark.parametrize("numbers", [(), (0, 2), (3,)], ids=["all", "two", "one"])
def test_the_bonus_is_that_of_a_dictionary_of_cells(numbers):
    feedback, visits = Counts(0.5, width=0.7, numbers=numbers), collections.Counter()
    state = feedback.init(EnvSpec("made", SPACE, Discrete(2)), KEY)
    score, update = jax.jit(feedback.score), jax.jit(feedback.update)

    def cell(observation, t, i):
        place, which = np.asarray(observation["place"])[t, i], int(observation["which"][t, i])
        whole = [*(int(np.floor(np.float32(x) / np.float32(0.7))) for x in place), which]
        return tuple(whole[k] for k in numbers) if numbers else tuple(whole)

    for _ in range(4):
        made = batch()
        seen, where = made.steps.next_view.observation, [(t, i) for t in range(6) for i in range(5)]
        wanted = [0.5 / np.sqrt(1 + visits[cell(seen, t, i)]) for t, i in where]
        bonus = np.asarray(score(state, made.steps) - made.steps.reward)
        np.testing.assert_allclose(bonus.ravel(), wanted, atol=1e-5)
        visits.update(cell(seen, t, i) for t, i in where if made.mask[t, i])
        state, report = update(state, made, KEY)
        assert float(report.metrics["cells"]) == len(visits)
    assert max(visits.values()) > 2


def test_a_small_table_loses_no_visit():
    feedback = Counts(bits=2)
    state, made = feedback.init(EnvSpec("made", SPACE, Discrete(2)), KEY), batch()
    state, _ = feedback.update(state, made, KEY)
    assert state.visits.shape == (4,) and state.visits.sum() == made.mask.sum() and (state.visits > 0).all()


def test_it_goes_by_its_name_and_knows_what_is_there():
    assert feedback_from("counts") == Counts()
    assert "--feedback counts" in command({"feedback": to_config(Counts())})
    with pytest.raises(UserError, match="numbers 0 to 3"):
        Counts(numbers=(4,)).init(EnvSpec("made", SPACE, Discrete(2)), KEY)
    with pytest.raises(UserError, match="environment, rnd or counts"):
        feedback_from("count")
