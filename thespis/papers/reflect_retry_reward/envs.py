"""Hidden-rule task whose hints name an answer: reflections and answers are then words of the same kind."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from thespis.envs.text.hidden_rule import HiddenRule, HiddenRuleState
from thespis.envs.text.task import TaskSpec
from thespis.runtime.keys import fold


class AnswerHints(HiddenRule):
    """Hidden-rule task whose demonstrator hints at a digit, in place of the rule that picks it.

    The hint after ``4 2 7 > 4 <end> more >`` is ``7 <end>``, and the second answer repeats it. So a hint is worth as
    much as the rule would be, but it is written as an answer is.
    """

    @property
    def task_spec(self) -> TaskSpec:
        """The spec of the hidden-rule task, with another name."""
        return dataclasses.replace(super().task_spec, name="text:answer-hints")

    def demonstrator_critique(
        self, state: HiddenRuleState, answer: Int[Array, " response"], key: Key[Array, ""]
    ) -> Int[Array, " hint"]:
        """The digit that the hinted rule picks, which is at times any rule."""
        rule = super().demonstrator_critique(state, answer, fold(key, "rule"))
        return super().demonstrator_revision(state, answer, rule, fold(key, "digit"))

    def demonstrator_revision(
        self, state: HiddenRuleState, answer: Int[Array, " response"], critique: PyTree, key: Key[Array, ""]
    ) -> Int[Array, " response"]:
        """The digit of the hint; without one that of a random rule."""
        guess = super().demonstrator_revision(state, answer, critique, key)  # no rule in it: a random one
        return jnp.where(self.read_answer(critique) >= 0, critique, guess)
