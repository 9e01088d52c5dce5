"""Recall task: an answer from uncertain memory, a critique by one who knows more or less, and a second answer.

``4 4 7 >`` are three recollections of a hidden answer, each right in a share of the cases. The response is a digit,
``4 <end>``. Then a critic says something: ``again >`` and nothing else; ``no >`` or ``yes >`` without knowledge; ``no 7
>`` from a memory of its own; or ``no 7 source >`` with evidence, which it says that it has looked up. The second answer
ends the episode, and earns 1 if it is the hidden one. What a constructive critic knows is right the more often the
better its source is. A misleading critic knows the answer: it contradicts right answers, names a wrong one in their
place, in the same words, and agrees to wrong ones.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from thespis.core.spaces import END, word_vocabulary
from thespis.envs.text.task import DIGITS, RESPONSE_CUE, Task, TaskSpec, TaskStep, TextEnv, cut_at_eos
from thespis.runtime.keys import fold

SILENT, IGNORANT, PARAMETRIC, GROUNDED = range(4)
"""What a critic has to say: nothing, a verdict at random, its own memory, or evidence."""
ANY = -1
"""Any of the four, with equal odds."""


class RecallState(eqx.Module):
    """State of an episode: the hidden answer and what the solver and the critic know of it.

    ``decoy``: the wrong answer that the critic names if it errs or misleads. ``knowledge``: from :data:`SILENT` to
    :data:`GROUNDED`. ``is_informed``: whether a constructive critic is right. ``coin``: the verdict of one without
    knowledge. ``first_answer``: -1 before the first response, or if that was no answer.
    """

    truth: Int[Array, "*episodes"]
    decoy: Int[Array, "*episodes"]
    recollections: Int[Array, "*episodes recollection"]
    knowledge: Int[Array, "*episodes"]
    is_informed: Bool[Array, "*episodes"]
    misleads: Bool[Array, "*episodes"]
    coin: Bool[Array, "*episodes"]
    first_answer: Int[Array, "*episodes"]
    turn: Int[Array, "*episodes"]


class Recall(eqx.Module):
    """Recall task: an answer from three recollections, a critique, and a second answer, which earns 1 if it is right.

    ``num_answers``: digits that can be the answer. ``recall``: the share of recollections that are right; others are
    any wrong answer. ``knowledge``: what the critic has, from :data:`SILENT` (0) to :data:`GROUNDED` (3), or
    :data:`ANY` of it (-1). ``misleading_share``: the share of critics that mislead. ``parametric_accuracy`` and
    ``grounded_accuracy``: how often a constructive critic's answer is right, without evidence and with it.
    ``first_reward``: what a right first answer earns. The demonstrator answers by the most frequent recollection (the
    first of equally frequent ones), follows half of the critiques that name another answer, and a share
    ``demonstrator_noise`` of its answers is random.
    """

    num_answers: int = eqx.field(static=True, default=5)
    recall: float = 0.6
    knowledge: int = ANY
    misleading_share: float = 0.0
    parametric_accuracy: float = 0.75
    grounded_accuracy: float = 0.95
    first_reward: float = 0.0
    demonstrator_noise: float = 0.1

    @property
    def task_spec(self) -> TaskSpec:
        """Verdicts, the word for evidence, the answers and the response cue."""
        words = word_vocabulary((RESPONSE_CUE, "yes", "no", "again", "source", *DIGITS[: self.num_answers]))
        return TaskSpec("text:recall", words, 2, 2, max_opening_tokens=4, max_message_tokens=4)

    def init(self, key: Key[Array, ""]) -> tuple[RecallState, Int[Array, " opening"]]:
        """A hidden answer, three recollections of it as the prompt, and a critic."""
        spec = self.task_spec

        def other(name: str, shape: tuple[int, ...] = ()) -> Array:
            return (truth + jax.random.randint(fold(key, name), shape, 1, self.num_answers)) % self.num_answers

        truth = jax.random.randint(fold(key, "truth"), (), 0, self.num_answers)
        is_recalled = jax.random.uniform(fold(key, "recall"), (3,)) < self.recall
        recollections = jnp.where(is_recalled, truth, other("recollections", (3,)))
        any_knowledge = jax.random.randint(fold(key, "knowledge"), (), 0, GROUNDED + 1)
        knowledge = jnp.where(jnp.asarray(self.knowledge) == ANY, any_knowledge, self.knowledge)
        accuracy = jnp.where(knowledge == GROUNDED, self.grounded_accuracy, self.parametric_accuracy)
        is_informed = jax.random.uniform(fold(key, "informed")) < accuracy
        misleads = jax.random.uniform(fold(key, "intent")) < self.misleading_share
        coin = jax.random.bernoulli(fold(key, "coin"))
        state = RecallState(
            truth,
            other("decoy"),
            recollections,
            knowledge,
            is_informed,
            misleads,
            coin,
            jnp.full((), -1, "int32"),
            jnp.zeros((), "int32"),
        )
        return state, jnp.concatenate([recollections + spec.encode_word("0"), spec.encode(RESPONSE_CUE)])

    def step(
        self, state: RecallState, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[RecallState, TaskStep]:
        """The critique of the first answer; the end after the second one."""
        answer, is_last = self.read_answer(response), state.turn > 0
        reward = (answer == state.truth) * jnp.where(is_last, 1.0, self.first_reward)
        first = jnp.where(is_last, state.first_answer, answer)
        message = jnp.where(is_last, -1, self.critique(state, answer))
        state = eqx.tree_at(lambda x: (x.first_answer, x.turn), state, (first, state.turn + 1))
        return state, TaskStep(message, reward.astype("float32"), is_last)

    def read_answer(self, response: Int[Array, " response"]) -> Int[Array, ""]:
        """The digit of a response of one word; -1 if it is none."""
        words, length = cut_at_eos(self.task_spec, response)
        digit = words[0] - self.task_spec.encode_word("0")
        return jnp.where((length == 1) & (digit >= 0) & (digit < self.num_answers), digit, -1).astype("int32")

    def critique(self, state: RecallState, answer: Int[Array, ""]) -> Int[Array, " message"]:
        """What the critic says of an answer."""
        spec = self.task_spec
        is_right, level = answer == state.truth, state.knowledge
        belief = jnp.where(state.misleads | ~state.is_informed, state.decoy, state.truth)
        objects = jnp.where(state.misleads, is_right, belief != answer)
        objects = jnp.where((level == IGNORANT) & ~state.misleads, state.coin, objects)
        verdict = jnp.where(objects, spec.encode_word("no"), spec.encode_word("yes"))
        verdict = jnp.where(level == SILENT, spec.encode_word("again"), verdict)
        names, cites = objects & (level >= PARAMETRIC), level == GROUNDED
        named, source, cue = spec.encode_word("0") + belief, spec.encode_word("source"), spec.encode_word(RESPONSE_CUE)
        second = jnp.where(names, named, jnp.where(cites, source, cue))
        third = jnp.where(names & cites, source, jnp.where(names | cites, cue, -1))
        return jnp.stack([verdict, second, third, jnp.where(names & cites, cue, -1)]).astype("int32")

    def demonstrator_response(self, state: RecallState, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The most frequent recollection; after a critique often what it names; at times any answer."""
        spec = self.task_spec
        zero, end = spec.encode_word("0"), spec.encode_word(END)
        counts = (state.recollections[:, None] == state.recollections[None]).sum(axis=1)
        critique = self.critique(state, state.first_answer)
        named = critique[1] - zero
        follows = (state.turn > 0) & (critique[0] == spec.encode_word("no")) & (named >= 0)
        follows &= (named < self.num_answers) & jax.random.bernoulli(fold(key, "follows"))
        own = jnp.where(state.turn > 0, state.first_answer, state.recollections[jnp.argmax(counts)])
        answer = jnp.where(follows, named, own)
        is_random = (jax.random.uniform(fold(key, "wander")) < self.demonstrator_noise) | (answer < 0)
        answer = jnp.where(is_random, jax.random.randint(fold(key, "answer"), (), 0, self.num_answers), answer)
        return jnp.stack([zero + answer, end]).astype("int32")


class ExaminedEnv(TextEnv):
    """Environment of a text task with an examination: the task in which a finished run is measured.

    Runs that differ in the examination alone are the same trainings.
    """

    examination: Task = eqx.field(kw_only=True)
