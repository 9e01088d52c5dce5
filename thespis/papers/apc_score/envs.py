"""Persona task whose reward is a coarse grade: one number for the whole response, in place of the APC score.

It is the scheme of the paper's human raters (appendix E), by which the paper also asks GPT-4 for a coarse score
(appendix J), as a rule that counts facts.

Source: Peng and Shang, 2024. Differs: 0 is for a response that says no fact at all, in theirs for another character.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from thespis.envs.text.persona import CONTRADICTION, ENTAILMENT, FACTS_PER_TOPIC, Persona, PersonaState
from thespis.envs.text.task import TaskStep

GRADES = np.arange(0, 11, 2)
"""Grades of the human raters."""


class GradedPersona(Persona):
    """Persona task whose reward is the coarse grade, divided by 10."""

    def step(
        self, state: PersonaState, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[PersonaState, TaskStep]:
        """The grade of the response; the episode ends."""
        grade = jnp.asarray(GRADES, "float32")[self.grade_index(state, response)] / GRADES[-1]
        return state, TaskStep(jnp.full(1, -1), grade, jnp.ones((), bool))

    def grade_index(self, state: PersonaState, response: Int[Array, " response"]) -> Int[Array, ""]:
        """Index of the grade of a response.

        0: no fact at all. 2: only wrong ones. 4: at least as many wrong as right ones. 6: fewer wrong than right ones,
        or at most half of the relevant ones. 8: no wrong one, and more than half of the relevant ones. 10: no wrong
        one, and all relevant ones.
        """
        labels, relevance = self.inference_labels(state.values, response), self.relevance(state.topic)
        right, wrong = jnp.sum(labels == ENTAILMENT), jnp.sum(labels == CONTRADICTION)
        active = jnp.sum(relevance & (labels == ENTAILMENT))
        conditions = [
            right + wrong == 0,
            right == 0,
            wrong >= right,
            (wrong > 0) | (2 * active <= FACTS_PER_TOPIC),
            active < FACTS_PER_TOPIC,
        ]
        return jnp.select(conditions, list(range(5)), 5)
