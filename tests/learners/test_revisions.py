"""Revised conversations: said again in their world they are, id by id, what it says; else they are left alone."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.actors.language import Talking
from thespis.core.keys import fold, key_of, per_index
from thespis.envs.text.maze import Maze
from thespis.envs.text.take_back import TakeBack
from thespis.envs.text.task import Spoken
from thespis.learners.baselines import Alone
from thespis.learners.conversations import Conversations
from thespis.learners.credit import Turns, Whole
from thespis.learners.revisions import Chosen, Revisions, revised
from thespis.nets.decoder import Shape, decoder

WORLD = Spoken(TakeBack(Maze(size=2, turns=4), more=5))
TURNS, GROUP, GROUPS = 9, 8, 6
WORDS = WORLD.spec.action.vocabulary.words
STOP = WORLD.spec.action.vocabulary.stop[0]
KEY = key_of(3)
MODEL = decoder(Shape(len(WORDS), 32, 1, 1, 1, 32, 96), key_of(0))


def say(key):
    """A way, mostly: sometimes nothing, sometimes what has no end."""
    ways = jnp.array([WORDS.index(way) for way in ("up", "right", "down", "left")])
    way = ways[jax.random.randint(fold(key, "way"), (), 0, 4)]
    lot = jax.random.uniform(fold(key, "lot"))
    ended = jnp.stack([way, jnp.array(STOP)])
    return jnp.where(lot < 0.1, jnp.array([STOP, -1]), jnp.where(lot < 0.2, jnp.stack([way, way]), ended))


@pytest.fixture(scope="module")
def played():
    """Groups that begin alike and then say anything."""
    rows = GROUP * GROUPS
    begin = per_index(key_of(0), GROUPS)[jnp.arange(rows) // GROUP]
    state, seen = jax.vmap(WORLD.reset, in_axes=(None, 0))((), begin)
    seen, step = seen.observation, jax.jit(jax.vmap(WORLD.step))
    going, kept = np.ones(rows, bool), []
    transcript = np.asarray(seen)
    for t in range(TURNS):
        said = np.where(going[:, None], jax.vmap(say)(per_index(fold(KEY, "say", t), rows)), -1)
        begins = (transcript >= 0).sum(axis=1)
        state, heard = step(state, jnp.asarray(said), per_index(KEY, rows))
        transcript = np.where(going[:, None], heard.observation, transcript)
        kept.append((begins, said, going.copy(), np.where(going, heard.reward, 0.0)))
        going &= ~np.asarray(heard.terminated)
    starts, said, alive, reward = (np.stack(x) for x in zip(*kept, strict=True))
    starts = np.concatenate([starts, (transcript >= 0).sum(axis=1)[None]])
    logs = np.random.default_rng(0).normal(size=said.shape)
    given = transcript, starts, said, alive, reward.astype("float32"), np.zeros(rows, bool), logs.astype("float32")
    return Conversations(*map(jnp.asarray, given))


def again(talk, row, beginning):
    """What the world answers to all utterances of a row; the transcript in the end, and what was earned."""
    state, step = WORLD.reset((), beginning)
    seen, earned = step.observation, []
    for t in range(TURNS):
        if (talk.said[t, row] < 0).all():
            break
        assert int(talk.starts[t, row]) == int((seen >= 0).sum())
        state, step = WORLD.step(state, talk.said[t, row], KEY)
        seen = step.observation
        earned.append(float(step.reward))
    assert int(talk.starts[-1, row]) == int((seen >= 0).sum())
    return np.asarray(seen), earned


@pytest.mark.slow
def test_what_is_spliced_is_what_the_world_says(played):
    """Every bad row with every good one of its group."""
    good = np.flatnonzero(np.asarray(played.returns) >= 0.5)
    pairs = [(i, j) for j in good for i in range(j // GROUP * GROUP, (j // GROUP + 1) * GROUP) if played.returns[i] < 1]
    bad, guide = (jnp.array(x) for x in zip(*pairs, strict=True))
    found, fits = revised(played.rows(bad), played.rows(guide), jnp.array(STOP))
    assert 5 < fits.sum() < len(pairs)
    for n in np.flatnonzero(np.asarray(fits)):
        i, j = pairs[n]
        beginning = per_index(key_of(0), GROUPS)[i // GROUP]
        seen, earned = again(found, n, beginning)
        np.testing.assert_array_equal(seen, found.transcript[n])
        assert earned[-1] == 1.0 and sum(earned) == 1.0
        own = np.flatnonzero(np.asarray(found.alive[:, n]))
        pause = own[0]
        assert found.said[pause, n].tolist() == [STOP, -1]
        apart = int(np.flatnonzero(np.asarray((played.said[:, i] != played.said[:, j]).any(axis=1)))[0])
        assert pause == apart + 1, "timely: right behind the first utterance that differs"
        np.testing.assert_array_equal(found.said[:pause, n], played.said[:pause, i])
        count = int(played.alive[:, j].sum())
        assert own.tolist() == list(range(pause, pause + 1 + count - apart))
        np.testing.assert_array_equal(found.said[pause + 1 : own[-1] + 1, n], played.said[apart:count, j])
        np.testing.assert_array_equal(found.log_probs[pause + 1 : own[-1] + 1, n], played.log_probs[apart:count, j])


@pytest.mark.slow
def test_what_cannot_be_taken_back_is_left_alone(played):
    """Each reason for which two conversations do not fit, looked for by reading them."""
    good = np.flatnonzero(np.asarray(played.returns) >= 0.5)
    pairs = [(i, j) for j in good for i in range(j // GROUP * GROUP, (j // GROUP + 1) * GROUP) if played.returns[i] < 1]
    bad, guide = (jnp.array(x) for x in zip(*pairs, strict=True))
    _, fits = revised(played.rows(bad), played.rows(guide), jnp.array(STOP))
    said, alive = np.asarray(played.said), np.asarray(played.alive)
    for (i, j), fit in zip(pairs, np.asarray(fits), strict=True):
        apart = int(np.flatnonzero((said[:, i] != said[:, j]).any(axis=1))[0])
        ends, taken = apart + 1 >= alive[:, i].sum(), STOP in (said[apart, i, 0], said[apart, j, 0])
        assert fit == (not ends and not taken and alive[:, j].sum() + 2 <= TURNS)
    other = (jnp.array([0]), jnp.array([GROUP]))  # of another beginning, unless both are alike
    if (played.transcript[0, :10] != played.transcript[GROUP, :10]).any():
        assert not revised(played.rows(other[0]), played.rows(other[1]), jnp.array(STOP))[1].any()


@pytest.mark.parametrize("part", [Chosen(), pytest.param(Revisions(), marks=pytest.mark.slow)])
def test_likelihood_of_what_is_learnt_and_of_nothing_else(played, part):
    talking = Talking.of(WORLD.spec)
    kept, learnt, told = jax.jit(lambda talks: part(part.init(MODEL, talking, TURNS, KEY), talks, GROUP, KEY))(played)
    won = np.asarray(played.returns) >= 0.5
    assert 0 < won.sum() < len(won) and float(told["chosen"]) == pytest.approx(won.mean())
    turns = Turns(learnt.reward, learnt.alive, learnt.cut, learnt.real, GROUP)
    advantage = np.asarray(Whole(Alone())(turns, None).advantage)
    np.testing.assert_array_equal(advantage, np.asarray(learnt.real, "float32"))
    any_won = won.reshape(-1, GROUP).any(axis=1).repeat(GROUP)
    some = np.asarray(learnt.alive.any(axis=0))
    for row in np.flatnonzero(won):
        assert (learnt.said[:, row] == played.said[:, row]).all() and (
            learnt.alive[:, row] == played.alive[:, row]
        ).all()
    revise = some & ~won
    assert not some[~any_won].any() and not (isinstance(part, Chosen) and revise.any())
    if isinstance(part, Revisions):
        assert float(told["revised"]) == pytest.approx(revise.mean()) and revise.sum() > 3
        for row in np.flatnonzero(revise):
            seen, earned = again(learnt, row, per_index(key_of(0), GROUPS)[row // GROUP])
            assert (seen == np.asarray(learnt.transcript[row])).all() and sum(earned) == 1.0
            pause = int(np.flatnonzero(np.asarray(learnt.alive[:, row]))[0])
            same = [
                other
                for other in range(row // GROUP * GROUP, (row // GROUP + 1) * GROUP)
                if won[other] and (played.said[:pause, other] == played.said[:pause, row]).all()
            ]
            assert not same, "nobody who said the same up to the error went well"
        strict = dataclasses.replace(part, gap=1.5)
        assert float(strict(kept, played, GROUP, KEY)[2]["revised"]) == 0.0
    again_ = jax.tree.leaves(learnt)
    assert all(a.shape == b.shape and a.dtype == b.dtype for a, b in zip(again_, jax.tree.leaves(played), strict=True))
