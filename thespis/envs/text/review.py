"""Review: a guest goes on with what was begun, and who reads it would like to see praise.

``food was stale >`` is answered by ``room was dirty and staff was rude and food was tasty <end>``, which ends all.
Every word of praise earns 1, every word of blame costs 1, whatever stands around it: so a classifier of sentiment
counts that knows words alone. With ``order`` a review also earns that number if it is in order: clauses of a noun,
``was`` and a word that goes with the noun, joined by ``and``.

The demonstrator is a guest of moods: a clause is of the mood of the one before with probability ``constancy``, else of
the other. But for ``wandering`` of its reviews it only praises. After the control of sentiment by Kim et al., 2022,
where half of the prompts speak against what is wanted; differs: a closed grammar, a lexicon in place of a classifier.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from thespis.core.keys import fold
from thespis.core.vocabulary import END, closed
from thespis.envs.text.reading import before_end
from thespis.envs.text.task import ASK, Heard, Manners, message

NOUNS = ("food", "staff", "room")
PRAISE = ("tasty", "kind", "clean")
"""Each goes with the noun at its place."""
BLAME = ("stale", "rude", "dirty")
"""As those of praise."""
_CLAUSE = 4


class Review(eqx.Module):
    """``clauses`` of a review; ``liking``: what a word of praise earns; ``order``: what a review in order earns;
    ``constancy``: how likely the mood stays; ``wandering``: how many of the demonstrator's reviews are of any mood.
    """

    clauses: int = eqx.field(static=True, default=3)
    liking: float = 1.0
    order: float = 0.0
    constancy: float = 0.8
    wandering: float = 1.0

    @property
    def manners(self) -> Manners:
        """Nouns, what is said of them, and three words more."""
        words = closed((ASK, "was", "and", *NOUNS, *PRAISE, *BLAME))
        return Manners("text:review", words, 1, utterance=_CLAUSE * self.clauses, opening=_CLAUSE, answer=1)

    def begin(self, key: Key[Array, ""]) -> tuple[Bool[Array, ""], Int[Array, " opening"]]:
        """A first clause of either mood; the state is whether it praises."""
        pleased = jax.random.bernoulli(fold(key, "mood"))
        noun = jax.random.randint(fold(key, "noun"), (), 0, len(NOUNS))
        told = self.manners
        return pleased, message(told.opening, self._clause(noun, pleased)[:-1], told.ids(ASK))

    def hear(
        self, state: Bool[Array, ""], said: Int[Array, " utterance"], key: Key[Array, ""]
    ) -> tuple[Bool[Array, ""], Heard]:
        """What the review is worth; one that never ends says nothing."""
        told = self.manners
        spoken, _ = before_end(told, said)
        praise, blame = (jnp.isin(spoken, told.ids(" ".join(words))).sum() for words in (PRAISE, BLAME))
        reward = self.liking * (praise - blame) + self.order * self._in_order(spoken)
        return state, Heard(jnp.full(told.answer, -1), reward.astype("float32"), jnp.ones((), bool))

    def expert(self, state: Bool[Array, ""], key: Key[Array, ""]) -> Int[Array, " utterance"]:
        """Clauses of moods that last, or all of praise."""
        told = self.manners
        turns = jax.random.uniform(fold(key, "turns"), (self.clauses,)) >= self.constancy
        moods = state ^ (jnp.cumsum(turns) % 2 == 1)
        wanders = jax.random.uniform(fold(key, "wander")) < self.wandering
        nouns = jax.random.randint(fold(key, "nouns"), (self.clauses,), 0, len(NOUNS))
        clauses = jax.vmap(self._clause)(nouns, moods | ~wanders)
        return clauses.at[-1, -1].set(told.ids(END)[0]).reshape(-1)

    def _clause(self, noun: Int[Array, ""], pleased: Bool[Array, ""]) -> Int[Array, "4"]:
        """A clause, and the word that joins it to the next."""
        told = self.manners
        word = jnp.where(pleased, told.id(PRAISE[0]), told.id(BLAME[0])) + noun
        return jnp.stack([told.id(NOUNS[0]) + noun, told.id("was"), word, told.id("and")]).astype("int32")

    def _in_order(self, spoken: Int[Array, " utterance"]) -> Bool[Array, ""]:
        told = self.manners
        subject, verb, word, joint = spoken.reshape(-1, _CLAUSE).T
        noun = subject - told.id(NOUNS[0])
        goes = (word == told.id(PRAISE[0]) + noun) | (word == told.id(BLAME[0]) + noun)
        joined = joint == jnp.full(self.clauses, told.id("and")).at[-1].set(-1)
        return ((noun >= 0) & (noun < len(NOUNS)) & (verb == told.id("was")) & goes & joined).all()
