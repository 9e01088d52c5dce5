r"""Writing for users who react: what helps them, and what they love, are not the same.

The prompt is that of :class:`~thespis.envs.text.writing.Writing` about one topic and without a reader. The reward is
what helps: grammar, times the mean of topic, variety and length, each in [0, 1]. A user's liking :math:`u` is grammar,
times topic, variety, warmth and brevity, with weights of 0.5, 0.2, 0.2 and 0.1. A user reacts with love with the
probability

.. math:: c \, ((1 - a) u^2 + a (1 - u)^2)

where :math:`a` is the share of users who react to what they do not like, and :math:`c` makes reactions sparse. So a
short and warm text is loved, a long one helps, and both want the topic and variety.
"""

from __future__ import annotations

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.envs.text.task import RESPONSE_CUE, TaskStep, TextEnv
from thespis.envs.text.writing import TOPICS, Writing, WritingState
from thespis.runtime.keys import fold

_TOPIC = "sea"


class ReactedWriting(Writing):
    """Writing task of which users say whether they love a text.

    ``largest_rate``: the share of loved texts among those that are liked best. ``adversarial_share``: the share of
    users who react to what they do not like. ``objective``: the reward, what helps or the probability of love.
    ``rationality``: the inverse scale of the noise of the judge who scores how much texts help.
    """

    shows_reader: bool = eqx.field(static=True, default=False)
    largest_rate: float = 0.6
    adversarial_share: float = 0.1
    rationality: float = 20.0
    objective: Literal["help", "love"] = eqx.field(static=True, default="help")

    def init(self, key: Key[Array, ""]) -> tuple[WritingState, Int[Array, " opening"]]:
        """The prompt, which is always the same."""
        topic = jnp.asarray(tuple(TOPICS).index(_TOPIC))
        opening = self.task_spec.encode(f"write about {_TOPIC} {RESPONSE_CUE}")
        return WritingState(topic, jnp.zeros_like(topic)), jnp.asarray(opening)

    def step(
        self, state: WritingState, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[WritingState, TaskStep]:
        """What helps, or the probability of love; the episode ends."""
        value = self.helpfulness if self.objective == "help" else self.love_probability
        return state, TaskStep(jnp.full(1, -1), value(state, response), jnp.ones((), bool))

    def helpfulness(self, state: WritingState, response: Int[Array, " response"]) -> Float[Array, ""]:
        """How much a text helps, in [0, 1]."""
        grades = self.grade(state.topic, response)
        return grades.grammar * (grades.topic + grades.variety + grades.length) / 3.0

    def score(self, state: WritingState, response: Int[Array, " response"], key: Key[Array, ""]) -> Float[Array, ""]:
        """How much a text helps, as a judge says whose noise has Gumbel's distribution, so that comparisons are those
        of Bradley and Terry.
        """
        return self.helpfulness(state, response) + jax.random.gumbel(fold(key, "noise")) / self.rationality

    def liking(self, state: WritingState, response: Int[Array, " response"]) -> Float[Array, ""]:
        """How much a user likes a text, in [0, 1]."""
        grades = self.grade(state.topic, response)
        wanted = 0.5 * grades.topic + 0.2 * grades.variety + 0.2 * grades.warmth + 0.1 * (1.0 - grades.length)
        return grades.grammar * wanted

    def love_probability(self, state: WritingState, response: Int[Array, " response"]) -> Float[Array, ""]:
        """The probability that a user, who may be an adversary, reacts with love."""
        liking, share = self.liking(state, response), self.adversarial_share
        return self.largest_rate * ((1.0 - share) * jnp.square(liking) + share * jnp.square(1.0 - liking))

    def aspects(self, state: WritingState, response: Int[Array, " response"]) -> dict[str, Float[Array, ""]]:
        """Helpfulness, the probability of love, the share of the largest that it misses, warmth and length."""
        love = self.love_probability(state, response)
        largest = self.largest_rate * (1.0 - self.adversarial_share)
        grades = self.grade(state.topic, response)
        return {
            "helpfulness": self.helpfulness(state, response),
            "love": love,
            "missed": 1.0 - love / largest,
            "warmth": grades.warmth,
            "length": grades.length,
        }

    def react(self, state: WritingState, response: Int[Array, " response"], key: Key[Array, ""]) -> Bool[Array, ""]:
        """A user's reaction: whether a text is loved."""
        return jax.random.uniform(fold(key, "reaction")) < self.love_probability(state, response)


REACTIONS = TextEnv(ReactedWriting())
"""Users who react, and whose reward is what helps."""
REACTIONS_ENV = f"{__name__}:REACTIONS"
