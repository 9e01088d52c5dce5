"""Hidden-rule task whose demonstrator does not know the rule: it reflects on all that it has tried."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from thespis.core.spaces import END
from thespis.envs.text.hidden_rule import RULES, HiddenRule, HiddenRuleState
from thespis.envs.text.task import TaskSpec, pack_tokens
from thespis.runtime.keys import fold


class TriedRules(HiddenRule):
    """Hidden-rule task whose demonstrator finds the rule by trying.

    At first it names the digit that a random rule picks. Its reflection names a rule at random among those that agree
    with all that was said of its failed attempts, and its next attempt is the digit that this rule picks. So it solves
    a task in as many tries as Thompson sampling needs. ``lesson_noise``: the share of its reflections that are any
    rule's name.
    """

    lesson_noise: float = eqx.field(default=0.0)

    @property
    def task_spec(self) -> TaskSpec:
        """The spec of the hidden-rule task, with another name."""
        return dataclasses.replace(super().task_spec, name="text:tried-rules")

    def possible_rules(self, state: HiddenRuleState, answers: Int[Array, "attempt response"]) -> Bool[Array, " rule"]:
        """Whether each rule agrees with what was said of all attempts so far; those without a digit say nothing."""
        picked = self.picked_digits(state.digits)
        right = picked[state.rule]
        tried = jax.vmap(self.read_answer)(answers)[:, None]
        agrees = jnp.where(tried == right, picked == tried, jnp.sign(picked - tried) == jnp.sign(right - tried))
        return (agrees | (tried < 0)).all(axis=0)

    def demonstrator_response(self, state: HiddenRuleState, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The digit that a random rule picks."""
        rule = jax.random.randint(fold(key, "rule"), (), 0, len(RULES))
        return self._write_digit(self.picked_digits(state.digits)[rule])

    def demonstrator_reflection(
        self, state: HiddenRuleState, answers: Int[Array, "attempt response"], key: Key[Array, ""]
    ) -> Int[Array, " hint"]:
        """The name of a rule that agrees with all failed attempts, at times of any rule."""
        spec = self.task_spec
        is_noise = jax.random.uniform(fold(key, "wander")) < self.lesson_noise
        is_possible = self.possible_rules(state, answers) | is_noise
        rule = jax.random.categorical(fold(key, "rule"), jnp.where(is_possible, 0.0, -jnp.inf))
        return pack_tokens(2, spec.encode_word(RULES[0]) + rule, spec.encode(END))
