"""Rejection sampling, then GRPO on wrongly judged pairs: both steps against steps written out, and who samples what."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_dialogues import sample_groups
from synthetic_batches import quick_key

from thespis.data.feeds import Episodes
from thespis.envs.text.review import Review
from thespis.envs.text.task import TextEnv
from thespis.learners.language.dialogues import sampled_dialogues
from thespis.learners.optim.optimizers import gradient_step
from thespis.methods.language.grpo import GRPO
from thespis.objectives.statistics import masked_mean
from thespis.papers.unifiedreward_think.method import LessonsThenGRPO
from thespis.training.components import with_array_leaves

ENV = TextEnv(Review(num_clauses=2))
SIZE, PAIRS, GROUPS = 5, 2, 12
ROWS = SIZE * GROUPS
SETTINGS: dict[str, Any] = {"model": "blank", "num_layers": 1, "hidden_size": 32, "learning_rate": 1e-3}


def make(**settings):
    feed = Episodes(max_steps=1, group_size=SIZE, num_envs=ROWS)
    return with_array_leaves(LessonsThenGRPO(**SETTINGS, feed=feed, num_pairs=PAIRS, num_lesson_updates=3, **settings))


def perturbed(tree, scale=0.1):
    return jax.tree.map(lambda x: x + scale * jax.random.normal(quick_key(x.size), x.shape), tree)


@pytest.fixture(scope="module")
def trained():
    """A state whose model has left the cold start, a batch in the second stage, and its returns by group."""
    method = make()
    state = jax.jit(lambda: method.init(ENV.spec, quick_key(0)))()
    state = dataclasses.replace(state, model=perturbed(state.model), reference=perturbed(state.reference, 0.05))
    batch = jax.jit(lambda: sample_groups(ENV, method, state, GROUPS, SIZE, 0.5, 3))()
    return state, batch, np.asarray(batch.steps.reward[0]).reshape(GROUPS, SIZE)


def test_the_first_of_a_group_is_the_initial_models(trained):
    state, batch, _ = trained
    dialogues = sampled_dialogues(batch.steps, batch.mask)
    is_first, mask = np.arange(ROWS) % SIZE == 0, np.asarray(dialogues.response_mask)
    for decoder, rows in ((state.cold_start, is_first), (state.model.model, ~is_first)):
        log_probs = dialogues.response_log_probs(decoder, make().sampler)[0]
        gap = np.where(mask, np.abs(log_probs - dialogues.log_probs), 0.0).max(axis=(0, 2))
        assert gap[rows].max() < 1e-3 < gap[~rows].max()


@pytest.mark.parametrize("pairs", ["wrong", "right", "all"])
def test_groups_are_chosen_by_their_first_dialogue(trained, pairs):
    _, _, returns = trained
    method, chosen = make(pairs=pairs), set()
    for seed in range(80):
        rows, advantages, is_learned = (
            np.asarray(x).reshape(PAIRS, SIZE) for x in method._groups(jnp.asarray(returns), quick_key(seed))
        )
        for group, advantage, learned in zip(rows // SIZE, advantages, is_learned, strict=True):
            index = int(group[0])
            chosen.add(index)
            assert learned.tolist() == [False] + [True] * (SIZE - 1)
            others = returns[index, 1:]
            np.testing.assert_allclose(advantage[1:], (others - others.mean()) / (others.std(ddof=1) + 1e-4), atol=1e-5)
    fits = {"wrong": returns[:, 0] == 0, "right": returns[:, 0] == 1, "all": returns[:, 0] >= 0}[pairs]
    assert chosen == set(np.flatnonzero(fits).tolist())


def test_groups_that_do_not_fit_are_not_learned():
    returns = jnp.ones((GROUPS, SIZE)).at[7, 0].set(0.0)
    rows, _, is_learned = make()._groups(returns, quick_key(0))
    learned = np.asarray(rows)[np.asarray(is_learned)]
    assert learned.tolist() == list(range(7 * SIZE + 1, 8 * SIZE))


def test_a_step_of_the_second_stage_is_one_of_grpo_on_these_groups(trained):
    state, batch, returns = trained
    method = make()
    key = quick_key(5)
    after, _ = jax.jit(lambda *args: method.update(*args))(state, batch, key)
    chosen = np.asarray(method._groups(jnp.asarray(returns), key)[0]).reshape(PAIRS, SIZE)[:, 1:].ravel()
    plain = with_array_leaves(
        GRPO(
            **SETTINGS,
            minibatch_size=PAIRS * (SIZE - 1),
            feed=Episodes(max_steps=1, group_size=SIZE - 1, num_envs=len(chosen)),
        )
    )
    steps, mask = jax.tree.map(lambda x: x[:, chosen], (batch.steps, batch.mask))
    expected, _ = jax.jit(lambda *args: plain.update(*args))(
        state, dataclasses.replace(batch, steps=steps, mask=mask), key
    )
    for new, reference, old in zip(*map(jax.tree.leaves, (after.model, expected.model, state.model)), strict=True):
        np.testing.assert_allclose(new, reference, atol=2e-5)
        assert new.size == 0 or np.abs(new - old).max() > 1e-4 or new.ndim == 0
    assert all(map(np.array_equal, *map(jax.tree.leaves, (after.reference, state.reference))))


@pytest.mark.parametrize(("lessons_by", "member"), [("cold start", 0), ("current model", 1)])
def test_a_step_of_the_first_stage_is_maximum_likelihood_of_right_dialogues(trained, lessons_by, member):
    state, batch, returns = trained
    state = dataclasses.replace(state, reference=state.model.model)  # as after each update of this stage
    method = make(lessons_by=lessons_by)
    after, _ = jax.jit(lambda *args: method.update(*args))(
        state, dataclasses.replace(batch, update_index=jnp.int32(2)), quick_key(5)
    )
    rows = np.array([group * SIZE + member for group in range(PAIRS * SIZE) if returns[group, member] == 1])
    lessons = sampled_dialogues(batch.steps, batch.mask).take_rows(jnp.asarray(rows))

    def loss(model):
        log_probs = lessons.response_log_probs(model.model, method.sampler)[0]
        per_row = jax.vmap(masked_mean, in_axes=1)(log_probs, lessons.response_mask)
        return -per_row.mean(), ()

    step = jax.jit(lambda: gradient_step(method.make_optimizer(), loss, state.model, state.opt_state)[0])
    for new, reference in zip(*map(jax.tree.leaves, (after.model, step())), strict=True):
        np.testing.assert_allclose(new, reference, atol=2e-5)
    assert all(map(np.array_equal, *map(jax.tree.leaves, (after.reference, after.model.model))))
    assert all(map(np.array_equal, *map(jax.tree.leaves, (after.cold_start, state.cold_start))))


def test_too_few_dialogues_are_refused():
    with pytest.raises(ValueError, match="as many groups"):
        LessonsThenGRPO(**SETTINGS, num_pairs=4, feed=Episodes(max_steps=1, group_size=9, num_envs=288))
