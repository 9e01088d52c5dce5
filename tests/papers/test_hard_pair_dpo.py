"""DPO on the groups whose first dialogue fails: which groups, and a step against one of DPO on their pairs."""

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
from thespis.learners.language.preference_losses import RPOLoss, SigmoidLoss
from thespis.methods.language.online_dpo import ReferenceSampledDPO
from thespis.papers.general_ability_judge.method import HardPairDPO
from thespis.training.components import with_array_leaves

ENV = TextEnv(Review(num_clauses=2))
SIZE, PAIRS, GROUPS = 4, 3, 16
ROWS = SIZE * GROUPS
SETTINGS: dict[str, Any] = {"model": "blank", "num_layers": 1, "hidden_size": 32, "learning_rate": 1e-3}


def make(**settings):
    feed = Episodes(max_steps=1, group_size=SIZE, num_envs=ROWS)
    return with_array_leaves(HardPairDPO(**SETTINGS, feed=feed, num_pairs=PAIRS, **settings))


def perturbed(tree):
    return jax.tree.map(lambda x: x + 0.1 * jax.random.normal(quick_key(x.size), x.shape), tree)


@pytest.fixture(scope="module")
def trained():
    """A state whose model has left the reference, and a batch of the reference's dialogues with drawn rewards."""
    method = make()
    state = jax.jit(lambda: method.init(ENV.spec, quick_key(0)))()
    state = dataclasses.replace(state, model=perturbed(state.model))
    return state, jax.jit(lambda: sample_groups(ENV, method, state, GROUPS, SIZE, 0.6, 3))()


def test_the_initial_model_samples(trained):
    state, batch = trained
    dialogues = sampled_dialogues(batch.steps, batch.mask)
    log_probs = dialogues.response_log_probs(state.reference, make().sampler)[0]
    np.testing.assert_allclose(np.where(dialogues.response_mask, log_probs - dialogues.log_probs, 0.0), 0.0, atol=1e-3)


@pytest.mark.parametrize("groups", ["failed", "mixed"])
def test_groups_are_chosen_by_their_first_dialogue(trained, groups):
    returns = np.asarray(trained[1].steps.reward[0]).reshape(GROUPS, SIZE)
    is_mixed = (returns.min(axis=1) == 0) & (returns.max(axis=1) == 1)
    fits = {"failed": is_mixed & (returns[:, 0] == 0), "mixed": is_mixed}[groups]
    assert PAIRS < fits.sum() < GROUPS
    method, chosen = make(groups=groups), set()
    for seed in range(60):
        rows, is_learned = (
            np.asarray(x).reshape(PAIRS, SIZE) for x in method._rows(jnp.asarray(returns), quick_key(seed))
        )
        assert is_learned.all() and len(set((rows // SIZE).ravel())) == PAIRS
        chosen |= set((rows[:, 0] // SIZE).tolist())
    assert chosen == set(np.flatnonzero(fits).tolist())


@pytest.mark.parametrize("loss", [SigmoidLoss(0.3), RPOLoss(SigmoidLoss(0.3), 0.5)])
def test_a_step_is_one_of_dpo_on_a_right_and_a_wrong_dialogue_of_each_group(trained, loss):
    state, batch = trained
    method, key = make(loss_type=loss), quick_key(5)
    after, report = jax.jit(lambda *args: method.update(*args))(state, batch, key)
    returns = np.asarray(batch.steps.reward[0])
    rows = np.asarray(method._rows(jnp.asarray(returns.reshape(GROUPS, SIZE)), key)[0]).reshape(PAIRS, SIZE)
    pairs = np.array([(group[returns[group].argmax()], group[returns[group].argmin()]) for group in rows]).ravel()
    assert returns[pairs].tolist() == [1.0, 0.0] * PAIRS
    plain = with_array_leaves(
        ReferenceSampledDPO(**SETTINGS, loss_type=loss, feed=Episodes(max_steps=1, group_size=2, num_envs=2 * PAIRS))
    )
    steps, mask = jax.tree.map(lambda x: x[:, pairs], (batch.steps, batch.mask))
    expected, _ = jax.jit(lambda *args: plain.update(*args))(
        state, dataclasses.replace(batch, steps=steps, mask=mask), key
    )
    for new, reference in zip(*map(jax.tree.leaves, (after, expected)), strict=True):
        np.testing.assert_allclose(new, reference, atol=2e-5)
    assert report.metrics["failed"] == np.mean(returns.reshape(GROUPS, SIZE)[:, 0] == 0)
    assert report.metrics["learned"] == 1


def test_without_a_failure_nothing_is_learned(trained):
    state, batch = trained
    steps = dataclasses.replace(batch.steps, reward=jnp.ones_like(batch.steps.reward))
    method = make(loss_type=RPOLoss(SigmoidLoss(0.3), 0.5))
    after, report = jax.jit(lambda *args: method.update(*args))(
        state, dataclasses.replace(batch, steps=steps), quick_key(5)
    )
    assert report.metrics["learned"] == 0
    assert all(map(np.array_equal, *map(jax.tree.leaves, (after.model, state.model))))


def test_too_few_dialogues_are_refused():
    with pytest.raises(ValueError, match="fewer than num_pairs=4 groups"):
        HardPairDPO(**SETTINGS, num_pairs=4, feed=Episodes(max_steps=1, group_size=8, num_envs=24))
