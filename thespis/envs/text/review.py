"""Review-writing task: continue a guest's review; words of praise are rewarded.

``food was stale >`` is answered by ``room was dirty and staff was rude and food was tasty <end>``, which ends the
episode. Every word of praise earns ``praise_reward``, every word of blame costs as much, whatever stands around it:
this is how a sentiment classifier that knows only words would count. A grammatical review also earns
``grammar_reward``: its clauses are a noun, ``was`` and a word that goes with the noun, joined by ``and``.

The demonstrator writes in moods: a clause has the mood of the previous one with probability ``mood_persistence``,
otherwise the opposite. Except in a share ``demonstrator_noise`` of its reviews it only praises. After the sentiment
control of Kim et al., 2022, where half of the prompts have the unwanted sentiment. Differs from it: a closed grammar,
and a lexicon in place of a classifier.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from thespis.core.spaces import END, word_vocabulary
from thespis.envs.text.task import RESPONSE_CUE, TaskSpec, TaskStep, cut_at_eos, pack_tokens
from thespis.runtime.keys import fold

NOUNS = ("food", "staff", "room")
PRAISE = ("tasty", "kind", "clean")
"""Each word goes with the noun at the same index."""
BLAME = ("stale", "rude", "dirty")
"""Each word goes with the noun at the same index."""
_CLAUSE_LENGTH = 4


class Review(eqx.Module):
    """Review-writing task: continue a guest's review; words of praise are rewarded.

    ``num_clauses``: clauses of a review. ``praise_reward``: what a word of praise earns. ``grammar_reward``: what a
    grammatical review earns. ``mood_persistence``: the probability that the mood stays. ``demonstrator_noise``: the
    share of the demonstrator's reviews that are not all praise.
    """

    num_clauses: int = eqx.field(static=True, default=3)
    praise_reward: float = 1.0
    grammar_reward: float = 0.0
    mood_persistence: float = 0.8
    demonstrator_noise: float = 1.0

    @property
    def task_spec(self) -> TaskSpec:
        """Nouns, words of praise and blame, and three more words."""
        words = word_vocabulary((RESPONSE_CUE, "was", "and", *NOUNS, *PRAISE, *BLAME))
        return TaskSpec(
            "text:review",
            words,
            1,
            max_response_tokens=_CLAUSE_LENGTH * self.num_clauses,
            max_opening_tokens=_CLAUSE_LENGTH,
            max_message_tokens=1,
        )

    def init(self, key: Key[Array, ""]) -> tuple[Bool[Array, ""], Int[Array, " opening"]]:
        """A first clause in a random mood; the state is whether it praises."""
        pleased = jax.random.bernoulli(fold(key, "mood"))
        noun = jax.random.randint(fold(key, "noun"), (), 0, len(NOUNS))
        spec = self.task_spec
        return pleased, pack_tokens(
            spec.max_opening_tokens, self._clause(noun, pleased)[:-1], spec.encode(RESPONSE_CUE)
        )

    def step(
        self, state: Bool[Array, ""], response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[Bool[Array, ""], TaskStep]:
        """The reward of the review; one without an end token counts as empty."""
        spec = self.task_spec
        tokens, _ = cut_at_eos(spec, response)
        praise, blame = (jnp.isin(tokens, spec.encode(" ".join(words))).sum() for words in (PRAISE, BLAME))
        reward = self.praise_reward * (praise - blame) + self.grammar_reward * self._is_grammatical(tokens)
        return state, TaskStep(jnp.full(spec.max_message_tokens, -1), reward.astype("float32"), jnp.ones((), bool))

    def demonstrator_response(self, state: Bool[Array, ""], key: Key[Array, ""]) -> Int[Array, " response"]:
        """Clauses in persistent moods, or all praise."""
        spec = self.task_spec
        switches = jax.random.uniform(fold(key, "turns"), (self.num_clauses,)) >= self.mood_persistence
        moods = state ^ (jnp.cumsum(switches) % 2 == 1)
        is_noise = jax.random.uniform(fold(key, "wander")) < self.demonstrator_noise
        nouns = jax.random.randint(fold(key, "nouns"), (self.num_clauses,), 0, len(NOUNS))
        clauses = jax.vmap(self._clause)(nouns, moods | ~is_noise)
        return clauses.at[-1, -1].set(spec.encode(END)[0]).reshape(-1)

    def span_marks(self, prompt: Int[Array, " length"], response: Int[Array, " response"]) -> Int[Array, " response"]:
        """Marks for critics of spans: words of praise are good (1), words of blame bad (-1), all others neither (0)."""
        praise, blame = (jnp.isin(response, self.task_spec.encode(" ".join(words))) for words in (PRAISE, BLAME))
        return praise.astype("int32") - blame

    def _clause(self, noun: Int[Array, ""], pleased: Bool[Array, ""]) -> Int[Array, "4"]:
        """The tokens of a clause and of the word that joins it to the next."""
        spec = self.task_spec
        word = jnp.where(pleased, spec.encode_word(PRAISE[0]), spec.encode_word(BLAME[0])) + noun
        return jnp.stack(
            [spec.encode_word(NOUNS[0]) + noun, spec.encode_word("was"), word, spec.encode_word("and")]
        ).astype("int32")

    def _is_grammatical(self, spoken: Int[Array, " response"]) -> Bool[Array, ""]:
        spec = self.task_spec
        subject, verb, word, conjunction = spoken.reshape(-1, _CLAUSE_LENGTH).T
        noun = subject - spec.encode_word(NOUNS[0])
        word_fits = (word == spec.encode_word(PRAISE[0]) + noun) | (word == spec.encode_word(BLAME[0]) + noun)
        joined = conjunction == jnp.full(self.num_clauses, spec.encode_word("and")).at[-1].set(-1)
        return ((noun >= 0) & (noun < len(NOUNS)) & (verb == spec.encode_word("was")) & word_fits & joined).all()
