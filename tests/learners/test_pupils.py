"""Which ids are learnt by likelihood: what the world answers, then what was said, told apart word by word."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import made_up
import numpy as np
import pytest

from thespis.branches import branches_in
from thespis.core.feeds import LoggedEpisodes
from thespis.core.keys import key_of
from thespis.core.records import Batch
from thespis.data.logged import source_for
from thespis.envs.text.maze import Maze
from thespis.envs.text.task import Spoken
from thespis.learners.pupils import AnswersFirst
from thespis.learners.schooling import Lesson
from thespis.learners.transcripts import Told
from thespis.learners.utterances import OverAnswers, OverTokens
from thespis.loops.parts import with_array_leaves
from thespis.methods.language.sft import SFT

WORLD = Spoken(Maze(size=2, turns=4, lost=1.0))
WORDS = WORLD.spec.action.vocabulary.words
UNTIL = 3


@pytest.fixture(scope="module")
def drawn():
    return source_for(LoggedEpisodes(batch=8), branches_in(WORLD, 6, 3).steps).draw(key_of(4))


def parted(ids):
    """Numbers of the places of the world's answers, one list each, and of all utterances."""
    answers, said, mine, heard = [], [], False, []
    for place, i in enumerate(ids):
        (said if mine else heard).append(place)
        if WORDS[i] == (">", "<end>")[mine]:
            mine = not mine
            if mine:
                answers.append(heard)
            else:
                heard = []
    if heard and not mine:
        answers.append(heard)
    return answers[1:], said


def learnt_by_hand(model, steps, mask, index, least):
    """Log-probabilities of what is learnt, by row, each row alone and without padding."""
    found = []
    for row in range(mask.shape[1]):
        last = int(np.flatnonzero(mask[:, row])[-1])
        ids = np.asarray([i for i in steps.next_view.observation[last, row] if i >= 0], "int32")
        over = bool(steps.terminated[last, row])
        answers, said = parted(ids)
        arrived = float(steps.reward[last, row]) > 0 and bool(mask[last, row])
        if index < UNTIL:
            kept = [place for ids_ in answers for place in ids_] if over else ([] if arrived else answers[-1])
        else:
            kept = said if over and float(jnp.where(mask, steps.reward, 0.0)[:, row].sum()) >= least else []
        logs = jax.nn.log_softmax(model.logits(model(jnp.asarray(ids), jnp.arange(len(ids)))), axis=-1)
        found.append(jnp.stack([logs[p - 1, ids[p]] for p in kept]) if kept else jnp.zeros(0))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("index", [UNTIL - 1, UNTIL])
@pytest.mark.parametrize("divisor", [pytest.param(OverTokens(), marks=pytest.mark.slow), OverAnswers()])
def test_answers_come_first_and_then_what_was_said_in_whole_conversations(drawn, index, divisor):
    steps, mask = drawn
    cut = np.asarray((steps.truncated & mask).any(axis=0))
    assert cut.any() and not cut.all()
    method = with_array_leaves(
        SFT(model="blank", layers=2, width=32, divisor=divisor, least=0.5, learnt=AnswersFirst(UNTIL))
    )
    state = made_up.begun(method, WORLD.spec, 1)
    told = Told.of(steps, mask)
    lesson = Lesson(told, jnp.zeros(told.real.shape), (), steps, state.talking, (), key_of(5), jnp.int32(index))

    def by_hand(model):
        rows = [x for x in learnt_by_hand(model, steps, mask, index, 0.5) if len(x)]
        assert len(rows) > 1
        if isinstance(divisor, OverTokens):
            return -jnp.concatenate(rows).mean()
        return -jnp.stack([x.mean() for x in rows]).mean()

    loss, slope = jax.jit(jax.value_and_grad(lambda model: method.lost(model, lesson)[0]))(state.model)
    wanted, by = jax.value_and_grad(by_hand)(state.model)
    assert float(loss) == pytest.approx(float(wanted), rel=1e-4)
    for a, b in zip(jax.tree.leaves(slope), jax.tree.leaves(by), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-4 * max(1.0, float(jnp.abs(b).max())))


def test_the_update_counts_updates(drawn):
    """What is learnt changes with the batch's number alone."""
    steps, mask = drawn
    method = with_array_leaves(SFT(model="blank", layers=1, width=32, learnt=AnswersFirst(UNTIL)))
    state, update = method.init(WORLD.spec, key_of(1)), jax.jit(lambda *given: method.update(*given)[1].metrics)
    lost = [
        float(update(state, Batch(steps, mask, (), jnp.int32(i)), key_of(0))["policy_loss"])
        for i in (0, UNTIL - 1, UNTIL, 2 * UNTIL)
    ]
    assert lost[0] == lost[1] != lost[2] == lost[3]
