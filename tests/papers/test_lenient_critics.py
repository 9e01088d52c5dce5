"""Lenient critics of derivations, and the scripted critic of their bench against sums in plain Python."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.records import View
from thespis.envs.text.derivation import Chain, read_verdict, write_values
from thespis.evidence.benches.trained_critics import CRITIQUED_SUMS, TASK, ScriptedCritic
from thespis.papers.rl4f.envs import LenientDerivation
from thespis.runtime.keys import indexed_keys, seed_key


def critiques_of(task, value, count=2_000):
    """Verdicts of the demonstrator on ``1 + 1 = value``: 0 for the step, 1 for right."""
    chain = Chain(jnp.int32(1), jnp.zeros(1, "int32"), jnp.ones(1, "int32"), 2)
    answer = write_values(task.task_spec, jnp.array([value]))
    critiques = jax.jit(jax.vmap(lambda key: task.demonstrator_critique(chain, answer, key)))
    verdicts = jax.vmap(lambda words: read_verdict(task.task_spec, words, 1))
    return np.asarray(verdicts(critiques(indexed_keys(seed_key(0), count))))


def test_lenient_critiques_let_a_share_of_the_errors_pass():
    task = LenientDerivation(num_steps=1, base=2, leniency=0.6)
    assert (critiques_of(task, 0) == 1).all()
    np.testing.assert_allclose(critiques_of(task, 1).mean(), 0.6, atol=0.04)
    noisy = LenientDerivation(num_steps=1, base=2, leniency=0.25, critic_noise=0.5)
    np.testing.assert_allclose(critiques_of(noisy, 0).mean(), 0.25 + 0.75 * 0.75, atol=0.04)


@pytest.mark.parametrize("critiques", ["exact", "random"])
def test_the_scripted_critic_checks_every_sum(critiques):
    rules: Any = CRITIQUED_SUMS.rules
    cases = list(itertools.product(range(2), repeat=4))
    texts, known = [], []
    for start, subtracts, operand, value in cases:
        chain = Chain(jnp.int32(start), jnp.array([subtracts]), jnp.array([operand]), 2)
        opening = jnp.concatenate([chain.tokens(TASK.task_spec), jnp.asarray(TASK.task_spec.encode(">"))])
        answer = write_values(TASK.task_spec, jnp.array([value]))
        texts.append(rules.init_from_answer(chain, opening, answer, seed_key(0))[1]["critic"])
        known.append((start - operand if subtracts else start + operand) % 2 == value)
    text = jnp.tile(jnp.stack(texts), (100, 1))
    words = ScriptedCritic(critiques).act(jnp.zeros(()), (), View(text), seed_key(1))[0]
    verdicts = np.asarray(jax.vmap(lambda each: read_verdict(TASK.task_spec, each, 1))(words)).reshape(100, -1)
    if critiques == "exact":
        np.testing.assert_array_equal(verdicts, np.tile(known, (100, 1)))
    else:
        assert set(verdicts.ravel().tolist()) == {0, 1} and 0.45 < verdicts.mean() < 0.55
        assert 0.4 < (verdicts == np.array(known)).mean() < 0.6
