"""Order task: an agent fills in a form for somebody who knows what is wanted, and may ask about it first.

``order >`` is answered by a question, such as ``colour <end>``, or by an entry, such as ``red <end>``. A question is
answered by the value that is wanted, ``blue >``, an entry by ``ok >``. An attribute is entered once: what is entered
stays, right or wrong, and ``no >`` answers a second entry and anything else. When all attributes are entered, or the
turns are used up, the dialogue ends and earns the share of the attributes whose entries are right.

After the backend tasks of ColBench (Zhou et al., 2025), whose reward is the share of hidden tests that the final
program passes. Differs from them: a form of ``num_attributes`` words in place of a program, entered one by one, and a
scripted partner, who answers one question at a time.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from thespis.core.spaces import END, word_vocabulary
from thespis.envs.text.task import RESPONSE_CUE, TaskSpec, TaskStep, TextEnv, pack_tokens
from thespis.runtime.keys import fold

ATTRIBUTES: dict[str, tuple[str, str, str, str]] = {
    "colour": ("red", "blue", "green", "white"),
    "shape": ("round", "square", "oval", "flat"),
    "size": ("tiny", "small", "large", "huge"),
    "stuff": ("wood", "glass", "steel", "stone"),
    "taste": ("sweet", "sour", "salty", "bitter"),
}
"""The attributes of an order, and the values of each."""
NUM_VALUES = 4
OPENING, ENTERED, REFUSED = "order", "ok", "no"


class OrderState(eqx.Module):
    """State of one episode: wanted and entered values (-1: none), which were asked about, and the number of turns."""

    wanted: Int[Array, "*episodes attribute"]
    entered: Int[Array, "*episodes attribute"]
    is_asked: Bool[Array, "*episodes attribute"]
    turn: Int[Array, "*episodes"]


class Order(eqx.Module):
    """Order task: find out and enter ``num_attributes`` (at most 5) wanted values in ``max_turns`` turns.

    The demonstrator enters what it was told and asks about the rest, in random order; a share ``demonstrator_noise`` of
    its responses are random questions and entries.
    """

    num_attributes: int = eqx.field(static=True, default=3)
    max_turns: int = eqx.field(static=True, default=6)
    demonstrator_noise: float = 0.5

    @property
    def task_spec(self) -> TaskSpec:
        """Attributes, their values and the words of the partner."""
        names = list(ATTRIBUTES)[: self.num_attributes]
        values = [value for name in names for value in ATTRIBUTES[name]]
        words = word_vocabulary((RESPONSE_CUE, OPENING, ENTERED, REFUSED, *names, *values))
        return TaskSpec("text:order", words, self.max_turns, 2, max_opening_tokens=2, max_message_tokens=2)

    def init(self, key: Key[Array, ""]) -> tuple[OrderState, Int[Array, " opening"]]:
        """Start of a dialogue: the wanted values are drawn."""
        shape = (self.num_attributes,)
        wanted = jax.random.randint(fold(key, "wanted"), shape, 0, NUM_VALUES, "int32")
        state = OrderState(wanted, jnp.full(shape, -1, "int32"), jnp.zeros(shape, bool), jnp.zeros((), "int32"))
        return state, jnp.asarray(self.task_spec.encode(f"{OPENING} {RESPONSE_CUE}"))

    def step(
        self, state: OrderState, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[OrderState, TaskStep]:
        """Answer a question or take an entry; at the end, pay the share of right entries."""
        spec, size = self.task_spec, self.num_attributes
        first_value = spec.encode_word(ATTRIBUTES["colour"][0])
        asked, value = response[0] - spec.encode_word("colour"), response[0] - first_value
        ends = response[1] == spec.vocabulary.eos_tokens[0]
        is_question = ends & (asked >= 0) & (asked < size)
        place = jnp.clip(value // NUM_VALUES, 0, size - 1)
        is_entry = ends & (value >= 0) & (value < NUM_VALUES * size) & (state.entered[place] < 0)
        asked, everywhere = jnp.clip(asked, 0, size - 1), jnp.arange(size)
        is_asked = state.is_asked | (is_question & (everywhere == asked))
        entered = jnp.where(is_entry & (everywhere == place), value % NUM_VALUES, state.entered)
        answer = jnp.where(
            is_question,
            first_value + NUM_VALUES * asked + state.wanted[asked],
            jnp.where(is_entry, spec.encode_word(ENTERED), spec.encode_word(REFUSED)),
        )
        state = OrderState(state.wanted, entered, is_asked, state.turn + 1)
        done = (entered >= 0).all() | (state.turn >= self.max_turns)
        score = jnp.where(done, jnp.mean(entered == state.wanted, dtype="float32"), 0.0)
        message = jnp.where(done, -1, pack_tokens(spec.max_message_tokens, answer, spec.encode(RESPONSE_CUE)))
        return state, TaskStep(message, score, done)

    def demonstrator_response(self, state: OrderState, key: Key[Array, ""]) -> Int[Array, " response"]:
        """An entry that was told, or a question about what is not entered; or a random response."""
        spec, size = self.task_spec, self.num_attributes
        missing = state.entered < 0
        known = missing & state.is_asked
        choices = jnp.where(known.any(), known, missing)
        place = jax.random.categorical(fold(key, "attribute"), jnp.where(choices, 0.0, -jnp.inf))
        is_noise = jax.random.uniform(fold(key, "noise")) < self.demonstrator_noise
        place = jnp.where(is_noise, jax.random.randint(fold(key, "any"), (), 0, size), place)
        value = jax.random.randint(fold(key, "value"), (), 0, NUM_VALUES, "int32")
        value = jnp.where(is_noise, value, state.wanted[place])
        is_entry = jnp.where(is_noise, jax.random.bernoulli(fold(key, "enter")), known.any())
        entry = spec.encode_word(ATTRIBUTES["colour"][0]) + NUM_VALUES * place + value
        token = jnp.where(is_entry, entry, spec.encode_word("colour") + place)
        return jnp.stack([token, jnp.full((), spec.vocabulary.eos_tokens[0])]).astype("int32")

    def hidden_tokens(self, state: OrderState) -> Int[Array, " attribute"]:
        """Tokens that only critics see: the wanted values."""
        values = NUM_VALUES * jnp.arange(self.num_attributes) + state.wanted
        return self.task_spec.encode_word(ATTRIBUTES["colour"][0]) + values


ORDER = TextEnv(Order(), use_privileged=True)
"""Three attributes in six turns; the critic sees what is wanted."""


def guessed_entries(task: Order, responses: Int[np.ndarray, "turn token"]) -> tuple[int, int]:
    """Number of entries of a dialogue whose attribute was not asked about before, and number of all its entries.

    Second entries of an attribute, and responses that are neither questions nor entries, do not count.
    """
    spec, size = task.task_spec, task.num_attributes
    names, asked, entered, guessed = list(ATTRIBUTES)[:size], set(), set(), 0
    of_value = {value: name for name in names for value in ATTRIBUTES[name]}
    for response in responses:
        word, end = (spec.vocabulary.words[token] if token >= 0 else "" for token in response)
        if end != END:
            continue
        if word in names:
            asked.add(word)
        elif word in of_value and of_value[word] not in entered:
            entered.add(of_value[word])
            guessed += of_value[word] not in asked
    return guessed, len(entered)


def wasted_turns(task: Order, wanted: list[str], responses: Int[np.ndarray, "turn token"]) -> tuple[int, int]:
    """Number of turns of a dialogue that bring it no nearer to a right form, and number of all its turns.

    Of use are the first question about an attribute that is not entered, and the entry of the value that answered it.
    ``wanted``: the values, in the order of the attributes.
    """
    spec, size = task.task_spec, task.num_attributes
    names, asked, entered, wasted = list(ATTRIBUTES)[:size], set(), set(), 0
    of_value = {value: name for name in names for value in ATTRIBUTES[name]}
    for response in responses:
        word, end = (spec.vocabulary.words[token] if token >= 0 else "" for token in response)
        is_useful = False
        if end == END and word in names:
            is_useful = word not in asked | entered
            asked.add(word)
        elif end == END and word in of_value and of_value[word] not in entered:
            is_useful = word in wanted and of_value[word] in asked
            entered.add(of_value[word])
        wasted += not is_useful
    return wasted, len(responses)
