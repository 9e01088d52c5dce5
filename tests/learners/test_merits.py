"""A critic that is told more than the actor: its loss, what only it can learn, and the pairs that it makes."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import made_up
import numpy as np
import pytest
from reading import logits_of

from thespis.core.feeds import Pairs
from thespis.core.keys import key_of
from thespis.core.records import Batch
from thespis.data.logged import source_for
from thespis.envs.text.questions import ANIMALS, Questions
from thespis.envs.text.task import Spoken
from thespis.language.sampling import Sampling
from thespis.learners.merits import Merits
from thespis.learners.schooling import Lesson
from thespis.learners.transcripts import Told, answers, as_critics_read, per_row
from thespis.loops.parts import with_array_leaves
from thespis.methods.language.sweet import SWEET
from thespis.sources import shown_in

GUESS = Spoken(Questions(turns=1, animals=2, wandering=1.0), told=True)
TALK = Spoken(Questions(turns=3, animals=4), told=True)
SMALL = {"model": "blank", "layers": 1, "width": 32}
FIRST = TALK.task.manners.id(next(iter(ANIMALS)))


@pytest.fixture(scope="module")
def drawn():
    return source_for(Pairs(batch=3), shown_in(TALK, 60).steps).draw(key_of(3))


def begun(method, world=TALK):
    """A method whose model, reference and critic all differ."""
    method = with_array_leaves(method)
    state = made_up.begun(method, world.spec, 1)
    model, judge = (jax.tree.map(lambda x, by=by: by * x, state.model) for by in (1.2, 0.8))
    return method, dataclasses.replace(state, model=model, critic=(judge, state.critic[1]))


def log_ratio(model, reference, before, said):
    """Summed over ids, and how many these are, by the plain decoder: no padding, one conversation."""
    before, said = ([int(i) for i in x if i >= 0] for x in (before, said))
    whole = jnp.asarray(before + said)

    def logs(decoder):
        scores = jax.nn.log_softmax(logits_of(decoder, whole))
        return sum(float(scores[len(before) - 1 + i, token]) for i, token in enumerate(said))

    return logs(model) - logs(reference), len(said)


@pytest.mark.slow
def test_the_critic_explains_which_conversation_returned_more(drawn):
    steps, mask = drawn
    part, (_, state) = Merits(beta=0.7), begun(SWEET(**SMALL))
    judge, reference = state.critic[0], state.reference
    read = Told.of(as_critics_read(steps), mask)
    scores = []
    for row in range(mask.shape[1]):
        mean = 0.0
        for t in np.flatnonzero(np.asarray(mask[:, row])):
            total, count = log_ratio(judge, reference, steps.privileged[t, row], steps.action[t, row])
            mean += total / count
        scores.append(mean)
    np.testing.assert_allclose(part.merit(judge, reference, read).sum(axis=0), scores, rtol=1e-3, atol=1e-4)
    margin = 0.7 * (np.array(scores[0::2]) - np.array(scores[1::2]))
    *_, told = part.learn(state.critic, reference, read, (), jnp.int32(0))
    assert float(told["critic_loss"]) == pytest.approx(np.mean(np.log1p(np.exp(-margin))), rel=1e-3)


def test_pairs_are_of_the_same_secret(drawn):
    steps, mask = drawn
    secret = np.asarray(steps.privileged[0, :, 0])
    np.testing.assert_array_equal(secret[0::2], secret[1::2])
    assert len(set(secret)) > 1 and (secret >= FIRST).all()
    returns = np.asarray(jnp.where(mask, steps.reward, 0.0).sum(axis=0))
    assert (returns[0::2] > returns[1::2]).all()


@pytest.mark.slow
def test_one_of_the_better_half_is_preferred_to_one_of_the_worse(drawn):
    steps, mask = jax.tree.map(lambda x: x[:, :2], drawn)
    method, state = begun(SWEET(**SMALL, candidates=5, likelihood=0.2))
    judge, reference = state.critic[0], state.reference
    told = Told.of(steps, mask)
    lesson = Lesson(told, jnp.zeros(told.said.shape), judge, steps, state.talking, reference, key_of(5))
    before, turn, rows = lesson.any_turn()
    said, merit = jax.jit(lambda *given: method.ranked(lesson, *given))(before, turn, rows)
    assert said.shape[:2] == (len(rows), 5) and (np.diff(merit, axis=1) >= 0).all()
    for row in range(len(rows)):
        seen = np.asarray(steps.privileged[turn[row], row])
        np.testing.assert_array_equal(seen[1:], before[row])  # the critic reads a word before the conversation
        for place in range(5):
            total, count = log_ratio(judge, reference, seen, said[row, place])
            assert float(merit[row, place]) == pytest.approx(total / count, rel=1e-3, abs=1e-4)

    def each(row, place):
        """Log-ratio of the model that learns, by what the actor reads, and its log-probability by id."""
        h, count = log_ratio(state.model, reference, before[row], said[row, place])
        one = answers(before[row][None], said[row, place][None], jnp.ones(1, bool))
        return h, float(per_row(one.log_probs_by(state.model, Sampling())[0], one.real)[0]), count

    found = [[each(row, place) for place in range(5)] for row in range(len(rows))]
    loss, noted = jax.jit(lambda model: method.lost(model, lesson))(state.model)
    gap, pairs = float(noted["merit_gap"]), []
    for lots in np.ndindex(*[6] * len(rows)):  # which pairs were drawn is known by the gap of their merits
        places = [(lot % 2, 2 + lot // 2) for lot in lots]
        gaps = [float(merit[row, high] - merit[row, low]) for row, (low, high) in enumerate(places)]
        if np.mean(gaps) == pytest.approx(gap, abs=1e-6):
            margin = np.array([found[r][high][0] - found[r][low][0] for r, (low, high) in enumerate(places)])
            logs, ids = (sum(found[r][high][k] for r, (_, high) in enumerate(places)) for k in (1, 2))
            pairs.append(np.mean(np.log1p(np.exp(-0.1 * margin))) - 0.2 * logs / ids)
    assert pairs and min(abs(float(loss) - wanted) for wanted in pairs) < 1e-3 * abs(float(loss))


@pytest.mark.slow
def test_the_critic_learns_first_and_then_the_actor(drawn):
    method, state = begun(SWEET(**SMALL, critic=Merits(first=2), candidates=2))
    update = jax.jit(lambda *given: method.update(*given))

    def moved(a, b):
        return any((x != y).any() for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))

    for index in range(4):
        new, _ = update(state, Batch(*drawn, (), jnp.int32(index)), key_of(index))
        assert moved(state.critic, new.critic) == (index < 2) and moved(state.model, new.model) == (index >= 2)
        state = new


@pytest.mark.slow
@pytest.mark.parametrize("informed", [True, False])
def test_who_is_told_the_secret_knows_a_right_guess_from_a_wrong_one(informed):
    """Of two animals, guessed at without a question: no other critic can do better than to toss a coin."""
    method, state = begun(SWEET(**SMALL, informed=informed, critic=Merits(1.0, 10_000, 3e-3)), GUESS)
    source = source_for(Pairs(batch=16), shown_in(GUESS, 300).steps)
    update = jax.jit(lambda *given: method.update(*given))
    for index in range(80):
        state, _ = update(state, Batch(*source.draw(key_of(index)), (), jnp.int32(index)), key_of(index))
    guess = GUESS.task.manners.ids("guess")[0]
    before, secret = GUESS.task.manners.ids("ask >"), [FIRST, FIRST + 1]
    right = []
    for hidden in secret:
        read = np.concatenate([[hidden], before]) if informed else before
        said = [[guess, animal, GUESS.spec.action.vocabulary.stop[0]] for animal in secret]
        merits = [log_ratio(state.critic[0], state.reference, read, words)[0] for words in said]
        right.append(secret[int(np.argmax(merits))] == hidden)
    assert sum(right) == (2 if informed else 1), right
