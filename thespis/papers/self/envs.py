"""Article task: nouns and their articles, which many get wrong off-hand and few when they read; and its refinement.

``noun7 noun30 noun2 >`` is answered by ``der das die <end>``, and is right if all articles are. A critique marks every
article, ``good bad good <end>``; the refined answer changes what is marked as bad.

Each noun has a popular wrong article, which the demonstrator gives in a share of its answers: most of them for some
nouns, few for others. It marks articles better than it gives them. So a model that is pretrained on it is often wrong
where it could know better.
"""

from __future__ import annotations

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key, PyTree

from thespis.core.spaces import END, word_vocabulary
from thespis.envs.text.task import RESPONSE_CUE, TaskSpec, TaskStep, cut_at_eos, pack_tokens
from thespis.runtime.keys import fold

ARTICLES = ("der", "die", "das")
GOOD, BAD = "good", "bad"
"""The marks of a critique."""


@functools.lru_cache
def lexicon(num_nouns: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each noun its article, its popular wrong one, and whether most get it wrong: random, but always the same."""
    rng = np.random.default_rng(0)
    right = rng.integers(0, len(ARTICLES), num_nouns)
    wrong = (right + rng.integers(1, len(ARTICLES), num_nouns)) % len(ARTICLES)
    is_hard = rng.permutation(num_nouns) < num_nouns // 2
    return right, wrong, is_hard


class Articles(eqx.Module):
    """Article task: each noun of a list is answered by its article; 1 if all are right.

    ``list_length``: nouns of a list, of ``num_nouns``. ``habit_shares``: how often the demonstrator gives the popular
    wrong article of easy and of hard nouns, of which there are equally many; ``demonstrator_noise`` multiplies that.
    ``critic_noise``: the share of its marks that are random. ``revision_noise``: of what is marked as bad, the share
    that it replaces by any other article; the rest is put right.
    """

    list_length: int = eqx.field(static=True, default=3)
    num_nouns: int = eqx.field(static=True, default=48)
    habit_shares: tuple[float, float] = eqx.field(static=True, default=(0.2, 0.7))
    demonstrator_noise: float = 1.0
    critic_noise: float = 0.0
    revision_noise: float = 0.0

    @property
    def task_spec(self) -> TaskSpec:
        """Nouns, articles and marks."""
        nouns = tuple(f"noun{i}" for i in range(self.num_nouns))
        words = word_vocabulary((RESPONSE_CUE, GOOD, BAD, *ARTICLES, *nouns))
        count = self.list_length + 1
        return TaskSpec(
            "text:articles", words, 1, max_response_tokens=count, max_opening_tokens=count, max_message_tokens=1
        )

    def init(self, key: Key[Array, ""]) -> tuple[Int[Array, " noun"], Int[Array, " opening"]]:
        """Different random nouns as the prompt."""
        spec = self.task_spec
        nouns = jax.random.choice(fold(key, "nouns"), self.num_nouns, (self.list_length,), replace=False)
        opening = pack_tokens(spec.max_opening_tokens, nouns + spec.encode_word("noun0"), spec.encode(RESPONSE_CUE))
        return nouns.astype("int32"), opening

    def step(
        self, state: Int[Array, " noun"], response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[Int[Array, " noun"], TaskStep]:
        """The end, and 1 if all articles are right."""
        is_right = (self.read_articles(response) == self.right_articles(state)).all()
        return state, TaskStep(-jnp.ones(1, "int32"), is_right.astype("float32"), jnp.ones((), bool))

    def right_articles(self, nouns: Int[Array, " noun"]) -> Int[Array, " noun"]:
        """The article of each noun."""
        return jnp.asarray(lexicon(self.num_nouns)[0], "int32")[nouns]

    def demonstrator_response(self, state: Int[Array, " noun"], key: Key[Array, ""]) -> Int[Array, " response"]:
        """The articles that people give off-hand."""
        right, wrong, is_hard = (jnp.asarray(x)[state] for x in lexicon(self.num_nouns))
        share = jnp.where(is_hard, *self.habit_shares[::-1]) * self.demonstrator_noise
        errs = jax.random.uniform(fold(key, "wander"), state.shape) < share
        return self._write(jnp.where(errs, wrong, right), ARTICLES[0])

    def demonstrator_critique(
        self, state: Int[Array, " noun"], answer: Int[Array, " response"], key: Key[Array, ""]
    ) -> Int[Array, " critique"]:
        """A mark for each article, a share of them random."""
        is_bad = self.read_articles(answer) != self.right_articles(state)
        is_random = jax.random.uniform(fold(key, "wander"), is_bad.shape) < self.critic_noise
        marks = jnp.where(is_random, jax.random.bernoulli(fold(key, "mark"), 0.5, is_bad.shape), is_bad)
        return self._write(marks.astype("int32"), GOOD)

    def demonstrator_revision(
        self,
        state: Int[Array, " noun"],
        answer: Int[Array, " response"],
        critique: Int[Array, " critique"],
        key: Key[Array, ""],
    ) -> Int[Array, " response"]:
        """The answer with the right article, or with another one, wherever there is a bad mark or none at all."""
        articles = self.read_articles(answer)
        marks = cut_at_eos(self.task_spec, critique)[0][: self.list_length]
        is_random = jax.random.uniform(fold(key, "wander"), state.shape) < self.revision_noise
        other = (articles + jax.random.randint(fold(key, "other"), state.shape, 1, len(ARTICLES))) % len(ARTICLES)
        changed = jnp.where(is_random, other, self.right_articles(state))
        keeps = (marks == self.task_spec.encode_word(GOOD)) & (articles >= 0)
        return self._write(jnp.where(keeps, articles, changed), ARTICLES[0])

    def critique_judgment(self, critique: Int[Array, " critique"]) -> Int[Array, ""]:
        """What a critique says of an answer: 1 that all articles are good, 0 that some are bad, -1 if neither."""
        spec = self.task_spec
        marks, length = cut_at_eos(spec, critique)
        is_good = marks[: self.list_length] == spec.encode_word(GOOD)
        is_bad = marks[: self.list_length] == spec.encode_word(BAD)
        is_valid = (is_good | is_bad).all() & (length == self.list_length)
        return jnp.where(is_valid, is_good.all().astype("int32"), -1)

    def read_articles(self, response: Int[Array, " response"]) -> Int[Array, " noun"]:
        """The articles of an answer by number; -1 where there is none, everywhere if there are too many."""
        tokens, length = cut_at_eos(self.task_spec, response)
        articles = tokens[: self.list_length] - self.task_spec.encode_word(ARTICLES[0])
        is_valid = (articles >= 0) & (articles < len(ARTICLES)) & (length == self.list_length)
        return jnp.where(is_valid, articles, -1)

    def _write(self, values: Int[Array, " noun"], first_word: str) -> Int[Array, " response"]:
        """Words by their number, counted from one of them, and the end token."""
        spec = self.task_spec
        return pack_tokens(spec.max_response_tokens, values + spec.encode_word(first_word), spec.encode(END))


class RefinementState(eqx.Module):
    """State of one episode: the task's state, the turn, the first answer and the critique of it."""

    task_state: PyTree
    turn: Int[Array, "*episodes"]
    answer: Int[Array, "*episodes response"]
    critique: Int[Array, "*episodes response"]


class SelfRefinement(eqx.Module):
    """Self-refinement of a task of one turn: an answer, the own critique of it, and a refined answer.

    The environment says ``>`` between them and nothing else. A right first answer earns ``first_reward``, a right
    refined one ``refined_reward``.
    """

    task: Articles = Articles()
    first_reward: float = 1.0
    refined_reward: float = 1.0

    @property
    def task_spec(self) -> TaskSpec:
        """The task's, with three turns."""
        spec = self.task.task_spec
        return dataclasses.replace(spec, name=f"text:self-refined-{spec.name.removeprefix('text:')}", max_turns=3)

    def init(self, key: Key[Array, ""]) -> tuple[RefinementState, Int[Array, " opening"]]:
        """The first message of the task."""
        task_state, opening = self.task.init(key)
        empty = jnp.full(self.task_spec.max_response_tokens, -1, "int32")
        return RefinementState(task_state, jnp.zeros((), "int32"), empty, empty), opening

    def step(
        self, state: RefinementState, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[RefinementState, TaskStep]:
        """What the answer earns; the end after the refined one."""
        is_right = self.task.step(state.task_state, response, key)[1].reward
        weights = jnp.stack([jnp.asarray(x, "float32") for x in (self.first_reward, 0.0, self.refined_reward)])
        is_last = state.turn == 2
        message = jnp.where(is_last, -1, jnp.asarray(self.task_spec.encode(RESPONSE_CUE)))
        tokens = response.astype("int32")
        next_state = RefinementState(
            state.task_state,
            state.turn + 1,
            jnp.where(state.turn == 0, tokens, state.answer),
            jnp.where(state.turn == 1, tokens, state.critique),
        )
        return next_state, TaskStep(message.astype("int32"), is_right * weights[state.turn], is_last)

    def demonstrator_response(self, state: RefinementState, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The task's demonstrator in all turns."""
        task, task_state = self.task, state.task_state
        responses = (
            task.demonstrator_response(task_state, fold(key, "answer")),
            task.demonstrator_critique(task_state, state.answer, fold(key, "critique")),
            task.demonstrator_revision(task_state, state.answer, state.critique, fold(key, "revision")),
        )
        return jnp.stack(responses)[state.turn].astype("int32")
