r"""Persona task: answer a question as a character, of whom the prompt says a few facts.

``judge pen early rome fox boat chess tea jazz work >`` is answered by ``judge pen early <end>``, which ends the
episode.
Each fact is a word, a value of one attribute: this character is a judge, not a baker, a pilot or a nurse. The question
names a topic, and the facts about it are the relevant ones. A response is a list of words, and each fact

- *entails* it if the fact is among them, and no other value of its attribute is;
- *contradicts* it if another value of its attribute is;
- is neutral otherwise.

A faithful response is entailed by the relevant facts and not contradicted by any other. The number of facts of which
this is true is the Active-Passive-Constraint (APC) score (Peng and Shang, 2024), and the reward is its difference from
that of a response about nothing, divided by the number of relevant facts: 1 at best, 0 for saying nothing, less than 0
where the character is contradicted.

The demonstrator says the relevant facts, or, in a share ``demonstrator_noise``, what is typical of characters: the
first value of an attribute, whatever the facts say. So it is often wrong in the same way, and the most likely word of a
model that has learned from it is not the right one.

Source: Peng and Shang, 2024, arXiv:2405.07726, equations 1 to 6. Differs: facts are words, so that relevance and
entailment are known exactly.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.core.spaces import END, word_vocabulary
from thespis.envs.text.task import RESPONSE_CUE, TaskSpec, TaskStep, cut_at_eos, pack_tokens
from thespis.runtime.keys import fold

TOPICS = {
    "work": (
        ("baker", "pilot", "nurse", "judge"),
        ("pen", "drill", "phone", "brush"),
        ("early", "late", "daily", "weekly"),
    ),
    "home": (("rome", "oslo", "lima", "cairo"), ("cat", "dog", "owl", "fox"), ("flat", "cabin", "tower", "boat")),
    "leisure": (
        ("chess", "golf", "judo", "rowing"),
        ("tea", "milk", "cola", "wine"),
        ("jazz", "folk", "opera", "blues"),
    ),
    "youth": (
        ("farm", "ship", "palace", "camp"),
        ("queen", "monk", "knight", "clown"),
        ("fire", "water", "ghosts", "crowds"),
    ),
}
"""Attributes of each topic, as their values; the first value is what is typical."""
NUM_VALUES = 4
"""Values of an attribute."""
FACTS_PER_TOPIC = 3
"""Attributes of a topic: as many facts are relevant to a question."""
CONTRADICTION, NEUTRAL, ENTAILMENT = range(3)
"""Labels of natural language inference."""


def constraint_satisfaction(
    relevance: Float[Array, "*facts"], entailment: Float[Array, "*facts"], contradiction: Float[Array, "*facts"]
) -> Float[Array, "*facts"]:
    r"""The probability :math:`P_g P_e + (1 - P_g) (1 - P_c)` that a fact's constraint is satisfied; their sum is APC.

    ``relevance``: probability that the fact is relevant to the question; ``entailment`` and ``contradiction``: that it
    entails, or contradicts, the response.
    """
    return relevance * entailment + (1.0 - relevance) * (1.0 - contradiction)


class PersonaState(eqx.Module):
    """State of one episode: the value of each attribute, the order of attributes in the prompt, and the topic."""

    values: Int[Array, "*episodes attribute"]
    order: Int[Array, "*episodes attribute"]
    topic: Int[Array, "*episodes"]


class Persona(eqx.Module):
    """Persona task: answer a question as a character, faithful to the facts that the prompt says of it.

    ``num_topics``: topics of which a character has three facts each, 2 to 4. ``is_shuffled``: whether prompts say the
    facts in any order, which is harder to learn, in place of always the same. ``max_words``: words of the longest
    response, at least 3. ``passive_weight``: weight of the contradicted facts about other topics in the reward; with 0
    it is the share of relevant facts that entail the response. ``demonstrator_noise``: the share of the demonstrator's
    words that are typical ones.
    """

    num_topics: int = eqx.field(static=True, default=3)
    is_shuffled: bool = eqx.field(static=True, default=False)
    max_words: int = eqx.field(static=True, default=4)
    passive_weight: float = 1.0
    demonstrator_noise: float = 0.6

    def __check_init__(self):
        """Raise ``ValueError`` for numbers of topics or words out of range."""
        if not 2 <= self.num_topics <= len(TOPICS):
            raise ValueError(f"num_topics={self.num_topics}: 2 to {len(TOPICS)}")
        if self.max_words < FACTS_PER_TOPIC:
            raise ValueError(f"max_words={self.max_words}: at least {FACTS_PER_TOPIC}, as many facts are relevant")

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of questions."""
        return tuple(TOPICS)[: self.num_topics]

    @property
    def num_facts(self) -> int:
        """Facts of a character."""
        return self.num_topics * FACTS_PER_TOPIC

    @property
    def fact_words(self) -> tuple[str, ...]:
        """All values of all attributes, :data:`NUM_VALUES` of each."""
        return tuple(word for topic in self.topics for values in TOPICS[topic] for word in values)

    @property
    def task_spec(self) -> TaskSpec:
        """Topics and values; one response."""
        return TaskSpec(
            "text:persona",
            word_vocabulary((RESPONSE_CUE, *self.topics, *self.fact_words)),
            1,
            max_response_tokens=self.max_words + 1,
            max_opening_tokens=self.num_facts + 2,
            max_message_tokens=1,
        )

    def init(self, key: Key[Array, ""]) -> tuple[PersonaState, Int[Array, " opening"]]:
        """A character with any facts, and any topic."""
        spec = self.task_spec
        values = jax.random.randint(fold(key, "values"), (self.num_facts,), 0, NUM_VALUES)
        topic = jax.random.randint(fold(key, "topic"), (), 0, self.num_topics)
        order = jnp.arange(self.num_facts)
        if self.is_shuffled:
            order = jax.random.permutation(fold(key, "order"), self.num_facts)
        prompt = self.fact_tokens(values)[order], spec.encode_word(self.topics[0]) + topic, spec.encode(RESPONSE_CUE)
        return PersonaState(values, order, topic), pack_tokens(spec.max_opening_tokens, *prompt)

    def step(
        self, state: PersonaState, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[PersonaState, TaskStep]:
        """The faithfulness of the response; the episode ends."""
        relevance, labels = self.relevance(state.topic), self.inference_labels(state.values, response)
        is_entailed, is_contradicted = labels == ENTAILMENT, labels == CONTRADICTION
        active = jnp.sum(relevance & is_entailed)
        passive = jnp.sum(~relevance & is_contradicted)
        reward = (active - self.passive_weight * passive) / FACTS_PER_TOPIC
        return state, TaskStep(jnp.full(1, -1), reward, jnp.ones((), bool))

    def fact_tokens(self, values: Int[Array, " attribute"]) -> Int[Array, " attribute"]:
        """The words that say which value each attribute has."""
        return self.task_spec.encode_word(self.fact_words[0]) + NUM_VALUES * jnp.arange(self.num_facts) + values

    def relevance(self, topic: Int[Array, ""]) -> Bool[Array, " attribute"]:
        """Which facts are relevant to a question about the topic."""
        return jnp.arange(self.num_facts) // FACTS_PER_TOPIC == topic

    def inference_labels(
        self, values: Int[Array, " attribute"], response: Int[Array, " response"]
    ) -> Int[Array, " attribute"]:
        """Whether each fact contradicts a response (0), is neutral to it (1), or entails it (2).

        A response without an end is empty; words that are no facts are ignored.
        """
        tokens, _ = cut_at_eos(self.task_spec, response)
        index = tokens - self.task_spec.encode_word(self.fact_words[0])
        table = index[None, None] == jnp.arange(self.num_facts * NUM_VALUES).reshape(self.num_facts, NUM_VALUES, 1)
        is_said = table.any(axis=-1)
        is_own = jnp.arange(NUM_VALUES) == values[:, None]
        says_own, says_other = (is_said & is_own).any(axis=1), (is_said & ~is_own).any(axis=1)
        return jnp.where(says_other, CONTRADICTION, jnp.where(says_own, ENTAILMENT, NEUTRAL))

    def demonstrator_response(self, state: PersonaState, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The relevant facts; in a share of the words, what is typical, of which a third is about another topic.

        A typical word about another topic may follow them.
        """
        spec, first = self.task_spec, self.task_spec.encode_word(self.fact_words[0])
        own = state.topic * FACTS_PER_TOPIC + jnp.arange(FACTS_PER_TOPIC)
        others = jax.random.randint(fold(key, "others"), (FACTS_PER_TOPIC + 1,), 0, self.num_facts - FACTS_PER_TOPIC)
        others = jnp.where(others >= state.topic * FACTS_PER_TOPIC, others + FACTS_PER_TOPIC, others)
        typical = first + NUM_VALUES * jnp.arange(self.num_facts)
        is_noise = jax.random.uniform(fold(key, "wander"), (FACTS_PER_TOPIC + 1,)) < self.demonstrator_noise
        is_other = jax.random.uniform(fold(key, "topic"), (FACTS_PER_TOPIC + 1,)) < 1 / 3
        noise = jnp.where(is_other[:-1], typical[others[:-1]], typical[own])
        words = jnp.where(is_noise[:-1], noise, self.fact_tokens(state.values)[own])
        last = jnp.where(is_noise[-1] & is_other[-1] & (self.max_words > FACTS_PER_TOPIC), typical[others[-1]], -1)
        return pack_tokens(spec.max_response_tokens, words, last, spec.encode(END))
