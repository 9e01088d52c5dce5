"""Count-based exploration bonus: against counts of cells in a dictionary."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.errors import UserError
from thespis.core.records import Batch, EnvSpec, Transition, View
from thespis.core.spaces import Box, Discrete, dict_space
from thespis.evaluation.run_view import train_command
from thespis.feedback.count_bonus import CountBonus
from thespis.runs.config import to_config
from thespis.training.run_config import make_feedback

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
SPACE = dict_space(place=Box((3,)), which=Discrete(4))


def random_batch(time=6, rows=5):
    obs = {
        "place": jnp.asarray(RNG.normal(size=(time, rows, 3)), "float32"),
        "which": jnp.asarray(RNG.integers(0, 4, (time, rows)), "int32"),
    }
    false, reward = jnp.zeros((time, rows), bool), jnp.asarray(RNG.normal(size=(time, rows)), "float32")
    constant_view = View(jax.tree.map(jnp.zeros_like, obs))  # observations before the step are not counted
    steps = Transition(constant_view, jnp.zeros((time, rows), "int32"), reward, false, false, View(obs), false)
    return Batch(steps, jnp.asarray(RNG.uniform(size=(time, rows)) < 0.8), (), jnp.int32(0))


@pytest.mark.parametrize("numbers", [(), (0, 2), (3,)], ids=["all", "two", "one"])
def test_bonus_matches_counts_in_a_dictionary(numbers):
    feedback, visits = CountBonus(0.5, cell_size=0.7, obs_indices=numbers), collections.Counter()
    state = feedback.init(EnvSpec("made", SPACE, Discrete(2)), KEY)
    score, update = jax.jit(feedback.score), jax.jit(feedback.update)

    def cell(observation, t, i):
        place, which = np.asarray(observation["place"])[t, i], int(observation["which"][t, i])
        cells = [*(int(np.floor(np.float32(x) / np.float32(0.7))) for x in place), which]
        return tuple(cells[k] for k in numbers) if numbers else tuple(cells)

    for _ in range(4):
        batch = random_batch()
        obs, indices = batch.steps.next_view.observation, [(t, i) for t in range(6) for i in range(5)]
        expected = [0.5 / np.sqrt(1 + visits[cell(obs, t, i)]) for t, i in indices]
        bonus = np.asarray(score(state, batch, KEY).total - batch.steps.reward)
        np.testing.assert_allclose(bonus.ravel(), expected, atol=1e-5)
        visits.update(cell(obs, t, i) for t, i in indices if batch.mask[t, i])
        state, report = update(state, batch, None, KEY)
        assert float(report.metrics["cells"]) == len(visits)
    assert max(visits.values()) > 2


def test_small_hash_table_counts_every_visit():
    feedback = CountBonus(hash_bits=2)
    state, batch = feedback.init(EnvSpec("made", SPACE, Discrete(2)), KEY), random_batch()
    state, _ = feedback.update(state, batch, None, KEY)
    assert (
        state.visit_counts.shape == (4,)
        and state.visit_counts.sum() == batch.mask.sum()
        and (state.visit_counts > 0).all()
    )


def test_name_settings_and_errors():
    assert make_feedback("counts") == CountBonus()
    assert "--feedback counts" in train_command({"feedback": to_config(CountBonus())})
    with pytest.raises(UserError, match="indices 0 to 3"):
        CountBonus(obs_indices=(4,)).init(EnvSpec("made", SPACE, Discrete(2)), KEY)
    with pytest.raises(UserError, match="unknown feedback 'count'; did you mean counts"):
        make_feedback("count")
