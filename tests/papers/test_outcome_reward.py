"""The labels of the reward model of noisy outcomes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.evidence.benches.rated_words import LABELS, MODEL, TASK
from thespis.papers.dpo_vs_ppo_study.feedback import OutcomeReward
from thespis.runtime.keys import indexed_keys, seed_key

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
