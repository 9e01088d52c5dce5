"""The rule that ranks critiques: it pays what they say of the errors of an answer, and nothing for what follows."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from thespis.envs.text.derivation import Chain, write_values, write_verdict
from thespis.envs.text.task import pack_tokens
from thespis.papers.critic_v.envs import RANKED_SUMS
from thespis.runtime.keys import seed_key


def test_the_rule_is_the_jaccard_index_of_the_errors_that_are_named_and_there():
    """With one step the sets of errors are empty or the step; the index of two empty sets is 1."""
    rules: Any = RANKED_SUMS.rules
    task, spec = rules.task, rules.task.task_spec

    @jax.jit
    def critic_rewards(value, verdict, revision):
        chain = Chain(jnp.int32(1), jnp.zeros(1, "int32"), jnp.ones(1, "int32"), 2)  # 1 + 1 = 0
        opening = jnp.concatenate([chain.tokens(spec), jnp.asarray(spec.encode(">"))])
        state, _ = rules.init_from_answer(chain, opening, write_values(spec, value[None]), seed_key(0))
        critique = pack_tokens(3, write_verdict(spec, verdict, task.num_steps), spec.encode("<end>"))
        state, first = rules.step(state, jnp.int32(0), critique, seed_key(1))
        _, second = rules.step(state, jnp.int32(1), write_values(spec, revision[None]), seed_key(2))
        return first.rewards["critic"], second.rewards["critic"]

    for value, verdict, revision in itertools.product(range(2), repeat=3):
        errors, named = {0} if value != 0 else set(), {0} if verdict == 0 else set()
        union = errors | named
        index = len(errors & named) / len(union) if union else 1.0
        rewards = critic_rewards(*(jnp.int32(x) for x in (value, verdict, revision)))
        np.testing.assert_array_equal(rewards, [index, 0.0])
