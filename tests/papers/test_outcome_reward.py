"""The labels of the reward model of noisy outcomes, and the reference of PPO that moves."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.feeds import DatasetSampler
from thespis.core.records import Batch
from thespis.data.feeds import PreferencePairs
from thespis.evidence.benches.rated_words import LABELS, LABELS_ENV, MODEL, TASK, UTILITIES, UTILITIES_ENV
from thespis.methods.language.dpo import DPO
from thespis.papers.dpo_vs_ppo_study.feedback import OutcomeReward
from thespis.papers.dpo_vs_ppo_study.method import MovingReferencePPO
from thespis.runtime.keys import indexed_keys, seed_key
from thespis.training.components import with_array_leaves
from thespis.training.data_sources import build_dataset

BLANK: dict[str, Any] = MODEL | {"model": "blank"}
_FIRST, _END = TASK.task_spec.encode_word("a"), TASK.task_spec.vocabulary.eos_tokens[0]


def test_labels_are_choices_of_bradley_and_terry_by_utilities():
    texts = jnp.array([[_FIRST, _END], [_FIRST + 1, _END]])
    label = OutcomeReward().label
    keys = indexed_keys(seed_key(0), 4_000)
    labels = jax.jit(jax.vmap(lambda key: label(LABELS.task, jnp.int32(2), texts, key)))(keys)
    gap = TASK.utilities[2, 0] - TASK.utilities[2, 1]
    np.testing.assert_allclose(labels.sum(axis=1), 1.0)
    assert labels[:, 0].mean() == pytest.approx(1 / (1 + np.exp(-gap)), abs=0.03)
    same = label(TASK, jnp.int32(2), texts[jnp.zeros(2, int)], seed_key(0))
    np.testing.assert_allclose(same, 0.5)


def test_a_moving_reference_goes_a_share_of_the_way_to_the_actor():
    method = with_array_leaves(MovingReferencePPO(**BLANK, minibatch_size=8, reference_step_size=0.25))
    state = method.init(UTILITIES.spec, seed_key(0))
    dataset = build_dataset(f"demonstrations:64:{LABELS_ENV}", UTILITIES_ENV, DPO())
    pairs = PreferencePairs(batch_size=4).make_sampler(dataset.steps)
    assert isinstance(pairs, DatasetSampler)
    steps, mask = pairs.sample(seed_key(1))
    steps = dataclasses.replace(steps, extras=jnp.zeros(steps.action.shape))
    batch = Batch(steps, mask, (), jnp.int32(0))
    after = jax.jit(lambda: method.update(state, batch, seed_key(2))[0])()
    before, reference, actor = (
        jax.tree.leaves(eqx.filter(x, eqx.is_array)) for x in (state.reference, after.reference, after.model.model)
    )
    for x, y, z in zip(before, reference, actor, strict=True):
        np.testing.assert_allclose(y, 0.75 * x + 0.25 * z, atol=1e-6)
    assert any((x != z).any() for x, z in zip(before, actor, strict=True))
