"""Twenty-questions task: the agent asks about the properties of a hidden animal before it guesses which one it is.

``ask >`` is answered by ``is it furry <end>``, then by ``yes >`` or ``no >``; ``guess cat <end>`` ends the episode and
earns 1 if it is right, otherwise the answer is ``no >``. Anything else is answered by ``what >``. Each response costs
one turn, and there are too few turns to try one animal after the other.

The demonstrator knows which animals are still possible and asks the question that divides them most evenly, but a share
``demonstrator_noise`` of its responses are random questions and guesses. After Guess My City and Twenty Questions of
LMRL-Gym (Abdulhai et al., 2023). Differs from them: 40 animals with 10 properties in place of free text, 9 turns, and
reward for the right animal alone.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from thespis.core.spaces import END, word_vocabulary
from thespis.envs.text.task import RESPONSE_CUE, TaskSpec, TaskStep, cut_at_eos, pack_tokens
from thespis.runtime.keys import fold

ANIMALS: dict[str, str] = {
    "bat": "furry winged",
    "bear": "big climbing furry hunting",
    "beaver": "furry swimming",
    "bee": "patterned winged",
    "cat": "climbing furry hunting tame",
    "chicken": "tame winged",
    "cow": "big furry horned tame",
    "crocodile": "african big hunting swimming",
    "deer": "furry horned",
    "dog": "furry hunting tame",
    "duck": "swimming tame winged",
    "eagle": "hunting winged",
    "elephant": "african big",
    "frog": "swimming",
    "giraffe": "african big furry horned patterned",
    "goat": "climbing furry horned tame",
    "hippo": "african big swimming",
    "horse": "big furry tame",
    "leopard": "african climbing furry hunting patterned",
    "lion": "african big furry hunting",
    "lizard": "climbing",
    "monkey": "african climbing furry",
    "moose": "big furry horned",
    "mouse": "climbing furry",
    "ostrich": "african big winged",
    "otter": "furry hunting swimming",
    "parrot": "climbing tame winged",
    "penguin": "hunting swimming winged",
    "pig": "big tame",
    "rabbit": "furry",
    "rhino": "african big horned",
    "seal": "big furry hunting swimming",
    "shark": "big hunting swimming",
    "sheep": "furry tame",
    "snake": "hunting patterned",
    "tiger": "big furry hunting patterned swimming",
    "turtle": "patterned swimming",
    "whale": "big swimming",
    "wolf": "furry hunting",
    "zebra": "african big furry patterned",
}
"""The properties of each animal; no two animals have the same."""
PROPERTIES = tuple(sorted({name for like in ANIMALS.values() for name in like.split()}))
"""All properties that can be asked about."""
_PROPERTY_TABLE = np.array([[name in like.split() for name in PROPERTIES] for like in ANIMALS.values()])


class QuestionsState(eqx.Module):
    """State of one episode: the hidden animal, the animals that no answer has ruled out, and the number of turns."""

    animal: Int[Array, "*episodes"]
    candidates: Bool[Array, "*episodes animal"]
    turn: Int[Array, "*episodes"]


class Questions(eqx.Module):
    """Twenty-questions task: ask about the properties of a hidden animal, then guess which one it is.

    ``max_turns``: questions and guesses together. ``demonstrator_noise``: the share of the demonstrator's responses
    that are random. ``num_animals``: how many animals may be hidden, the first ones of :data:`ANIMALS`.
    """

    max_turns: int = eqx.field(static=True, default=9)
    demonstrator_noise: float = 0.5
    num_animals: int = eqx.field(static=True, default=len(ANIMALS))

    @property
    def task_spec(self) -> TaskSpec:
        """Animals, their properties and eight more words."""
        words = (RESPONSE_CUE, "ask", "is", "it", "guess", "yes", "no", "what", *PROPERTIES, *ANIMALS)
        return TaskSpec(
            "text:questions",
            word_vocabulary(words),
            self.max_turns,
            max_response_tokens=4,
            max_opening_tokens=2,
            max_message_tokens=2,
        )

    def init(self, key: Key[Array, ""]) -> tuple[QuestionsState, Int[Array, " opening"]]:
        """Start of a task: an animal is drawn at random."""
        animal = jax.random.randint(fold(key, "animal"), (), 0, self.num_animals)
        state = QuestionsState(animal, jnp.ones(self.num_animals, bool), jnp.zeros((), "int32"))
        return state, jnp.asarray(self.task_spec.encode(f"ask {RESPONSE_CUE}"))

    def step(
        self, state: QuestionsState, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[QuestionsState, TaskStep]:
        """Answer a question, or check a guess."""
        spec, properties = self.task_spec, jnp.asarray(_PROPERTY_TABLE[: self.num_animals])
        tokens, length = cut_at_eos(spec, response)
        property = tokens[2] - spec.encode_word(PROPERTIES[0])
        is_question = (
            (length == 3) & (tokens[:2] == spec.encode("is it")).all() & (property >= 0) & (property < len(PROPERTIES))
        )
        property = jnp.clip(property, 0, len(PROPERTIES) - 1)
        guess = tokens[1] - spec.encode_word(next(iter(ANIMALS)))
        is_guess = (length == 2) & (tokens[0] == spec.encode_word("guess")) & (guess >= 0) & (guess < len(ANIMALS))
        correct, turn = is_guess & (guess == state.animal), state.turn + 1
        done = correct | (turn >= self.max_turns)
        yes = is_question & properties[state.animal, property]
        word = jnp.where(
            yes,
            spec.encode_word("yes"),
            jnp.where(is_question | is_guess, spec.encode_word("no"), spec.encode_word("what")),
        )
        remaining = jnp.where(is_guess, jnp.arange(self.num_animals) != guess, True)
        possible = state.candidates & jnp.where(is_question, properties[:, property] == yes, remaining)
        message = jnp.where(done, -1, pack_tokens(spec.max_message_tokens, word, spec.encode(RESPONSE_CUE)))
        return QuestionsState(state.animal, possible, turn), TaskStep(message, correct.astype("float32"), done)

    def demonstrator_response(self, state: QuestionsState, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The most even question, or a guess if at most two animals are left; or a random response."""
        spec, possible = self.task_spec, state.candidates
        num_left = possible.sum()
        imbalance = jnp.abs(2 * (possible[:, None] & _PROPERTY_TABLE[: self.num_animals]).sum(axis=0) - num_left)
        is_noise = jax.random.uniform(fold(key, "wander")) < self.demonstrator_noise
        random_property = jax.random.randint(fold(key, "property"), (), 0, len(PROPERTIES))
        random_animal = jax.random.randint(fold(key, "animal"), (), 0, self.num_animals)
        property = jnp.where(is_noise, random_property, jnp.argmin(imbalance))
        guess = jnp.where(is_noise, random_animal, jnp.argmax(possible))
        is_guess = jnp.where(is_noise, jax.random.bernoulli(fold(key, "guess")), num_left <= 2)
        question = pack_tokens(
            spec.max_response_tokens, spec.encode("is it"), spec.encode_word(PROPERTIES[0]) + property, spec.encode(END)
        )
        naming = pack_tokens(
            spec.max_response_tokens,
            spec.encode("guess"),
            spec.encode_word(next(iter(ANIMALS))) + guess,
            spec.encode(END),
        )
        return jnp.where(is_guess, naming, question)

    def hidden_tokens(self, state: QuestionsState) -> Int[Array, " word"]:
        """Tokens that only critics see: the name of the animal."""
        return (self.task_spec.encode_word(next(iter(ANIMALS))) + state.animal)[None]
