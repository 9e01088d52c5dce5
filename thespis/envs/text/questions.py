"""Questions: an animal is thought of, and the agent asks what it is like before it guesses.

``ask >`` is answered by ``is it furry <end>``, then by ``yes >`` or ``no >``; ``guess cat <end>`` ends all and earns 1
if it is right, else ``no >`` is heard. What is neither is answered ``what >``. Each costs one of the turns, and these
are too few to try one animal after the other.

The demonstrator knows which animals are still possible and asks what divides them most evenly, but ``wandering`` of
what it says are any questions and guesses. After Guess My City and Twenty Questions of LMRL-Gym (Abdulhai et al.,
2023); differs: 40 animals told apart by 10 properties in place of free text, 9 turns, reward for the animal alone.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from thespis.core.keys import fold
from thespis.core.vocabulary import END, closed
from thespis.envs.text.reading import before_end
from thespis.envs.text.task import ASK, Heard, Manners, message

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
"""What each animal is like; no two are alike."""
PROPERTIES = tuple(sorted({name for like in ANIMALS.values() for name in like.split()}))
"""All that may be asked."""
_TRUE = np.array([[name in like.split() for name in PROPERTIES] for like in ANIMALS.values()])


class Thought(eqx.Module):
    """The animal, those that no answer has ruled out, and the turns so far."""

    animal: Int[Array, "*episodes"]
    possible: Bool[Array, "*episodes animal"]
    turn: Int[Array, "*episodes"]


class Questions(eqx.Module):
    """``turns``: questions and guesses together; ``wandering``: how many of the demonstrator's are any; ``animals``:
    how many may be thought of, the first of all.
    """

    turns: int = eqx.field(static=True, default=9)
    wandering: float = 0.5
    animals: int = eqx.field(static=True, default=len(ANIMALS))

    @property
    def manners(self) -> Manners:
        """Animals, their properties and eight words more."""
        words = (ASK, "ask", "is", "it", "guess", "yes", "no", "what", *PROPERTIES, *ANIMALS)
        return Manners("text:questions", closed(words), self.turns, utterance=4, opening=2, answer=2)

    def begin(self, key: Key[Array, ""]) -> tuple[Thought, Int[Array, " opening"]]:
        """Any animal."""
        animal = jax.random.randint(fold(key, "animal"), (), 0, self.animals)
        thought = Thought(animal, jnp.ones(self.animals, bool), jnp.zeros((), "int32"))
        return thought, jnp.asarray(self.manners.ids(f"ask {ASK}"))

    def hear(self, state: Thought, said: Int[Array, " utterance"], key: Key[Array, ""]) -> tuple[Thought, Heard]:
        """Whether a question is to be answered with yes, or a guess is right."""
        told, true = self.manners, jnp.asarray(_TRUE[: self.animals])
        spoken, length = before_end(told, said)
        asked = spoken[2] - told.id(PROPERTIES[0])
        asks = (length == 3) & (spoken[:2] == told.ids("is it")).all() & (asked >= 0) & (asked < len(PROPERTIES))
        asked = jnp.clip(asked, 0, len(PROPERTIES) - 1)
        guess = spoken[1] - told.id(next(iter(ANIMALS)))
        guesses = (length == 2) & (spoken[0] == told.id("guess")) & (guess >= 0) & (guess < len(ANIMALS))
        right, turn = guesses & (guess == state.animal), state.turn + 1
        over = right | (turn >= self.turns)
        yes = asks & true[state.animal, asked]
        word = jnp.where(yes, told.id("yes"), jnp.where(asks | guesses, told.id("no"), told.id("what")))
        others = jnp.where(guesses, jnp.arange(self.animals) != guess, True)
        possible = state.possible & jnp.where(asks, true[:, asked] == yes, others)
        answer = jnp.where(over, -1, message(told.answer, word, told.ids(ASK)))
        return Thought(state.animal, possible, turn), Heard(answer, right.astype("float32"), over)

    def expert(self, state: Thought, key: Key[Array, ""]) -> Int[Array, " utterance"]:
        """What divides the possible animals most evenly; a guess if two are left or one. Or anything."""
        told, possible = self.manners, state.possible
        left = possible.sum()
        uneven = jnp.abs(2 * (possible[:, None] & _TRUE[: self.animals]).sum(axis=0) - left)
        wanders = jax.random.uniform(fold(key, "wander")) < self.wandering
        lot = jax.random.randint(fold(key, "property"), (), 0, len(PROPERTIES))
        any_ = jax.random.randint(fold(key, "animal"), (), 0, self.animals)
        asked = jnp.where(wanders, lot, jnp.argmin(uneven))
        guess = jnp.where(wanders, any_, jnp.argmax(possible))
        guesses = jnp.where(wanders, jax.random.bernoulli(fold(key, "guess")), left <= 2)
        question = message(told.utterance, told.ids("is it"), told.id(PROPERTIES[0]) + asked, told.ids(END))
        named = message(told.utterance, told.ids("guess"), told.id(next(iter(ANIMALS))) + guess, told.ids(END))
        return jnp.where(guesses, named, question)

    def hidden(self, state: Thought) -> Int[Array, " word"]:
        """The animal's name."""
        return (self.manners.id(next(iter(ANIMALS))) + state.animal)[None]
