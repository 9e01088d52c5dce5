"""Dialogue revision (Agent-R): revised transcripts against a replay in the environment; which dialogues are used."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.actors.lm_policy import DialogueSpec
from thespis.core.errors import UserError
from thespis.envs.text.maze import Maze
from thespis.envs.text.task import TextEnv
from thespis.learners.language.advantage_estimators import NoBaseline, TrajectoryReturn, TurnBatch
from thespis.learners.language.dialogues import SampledDialogues
from thespis.learners.language.revisions import (
    RejectionSampling,
    SecondAttempts,
    TrajectoryRevision,
    revise_dialogues,
)
from thespis.nets.decoder import DecoderConfig, init_decoder
from thespis.papers.agent_r.envs import UndoTask
from thespis.runtime.keys import fold, indexed_keys, seed_key

ENV = TextEnv(UndoTask(Maze(size=2, max_turns=4), extra_turns=5))
TURNS, GROUP, GROUPS = 9, 8, 6
WORDS = ENV.spec.action_space.vocabulary.words
STOP = ENV.spec.action_space.vocabulary.eos_tokens[0]
KEY = seed_key(3)
MODEL = init_decoder(DecoderConfig(len(WORDS), 32, 1, 1, 1, 32, 96), seed_key(0))


def random_response(key):
    """A random direction; sometimes an empty response, sometimes one without an end token."""
    directions = jnp.array([WORDS.index(direction) for direction in ("up", "right", "down", "left")])
    direction = directions[jax.random.randint(fold(key, "way"), (), 0, 4)]
    u = jax.random.uniform(fold(key, "lot"))
    with_stop = jnp.stack([direction, jnp.array(STOP)])
    return jnp.where(u < 0.1, jnp.array([STOP, -1]), jnp.where(u < 0.2, jnp.stack([direction, direction]), with_stop))


@pytest.fixture(scope="module")
def dialogues():
    """Groups of dialogues with the same prompt and random responses."""
    rows = GROUP * GROUPS
    keys = indexed_keys(seed_key(0), GROUPS)[jnp.arange(rows) // GROUP]
    state, reset_step = jax.vmap(ENV.reset, in_axes=(None, 0))((), keys)
    obs, step = reset_step.observation, jax.jit(jax.vmap(ENV.step))
    active, turns = np.ones(rows, bool), []
    transcript = np.asarray(obs)
    for t in range(TURNS):
        responses = np.where(active[:, None], jax.vmap(random_response)(indexed_keys(fold(KEY, "say", t), rows)), -1)
        start = (transcript >= 0).sum(axis=1)
        state, step_result = step(state, jnp.asarray(responses), indexed_keys(KEY, rows))
        transcript = np.where(active[:, None], step_result.observation, transcript)
        turns.append((start, responses, active.copy(), np.where(active, step_result.reward, 0.0)))
        active &= ~np.asarray(step_result.terminated)
    starts, responses, alive, reward = (np.stack(x) for x in zip(*turns, strict=True))
    starts = np.concatenate([starts, (transcript >= 0).sum(axis=1)[None]])
    log_probs = np.random.default_rng(0).normal(size=responses.shape)
    fields = (
        transcript,
        starts,
        responses,
        alive,
        reward.astype("float32"),
        np.zeros(rows, bool),
        log_probs.astype("float32"),
    )
    return SampledDialogues(*map(jnp.asarray, fields))


def replay(dialogues, row, key):
    """Replay all responses of a row in the environment; return the final transcript and the rewards."""
    state, step = ENV.reset((), key)
    obs, rewards = step.observation, []
    for t in range(TURNS):
        if (dialogues.responses[t, row] < 0).all():
            break
        assert int(dialogues.response_starts[t, row]) == int((obs >= 0).sum())
        state, step = ENV.step(state, dialogues.responses[t, row], KEY)
        obs = step.observation
        rewards.append(float(step.reward))
    assert int(dialogues.response_starts[-1, row]) == int((obs >= 0).sum())
    return np.asarray(obs), rewards


@pytest.mark.slow
def test_revised_dialogues_replay_in_the_environment(dialogues):
    """Every failed row is combined with every success of its group."""
    good = np.flatnonzero(np.asarray(dialogues.returns) >= 0.5)
    pairs = [
        (i, j) for j in good for i in range(j // GROUP * GROUP, (j // GROUP + 1) * GROUP) if dialogues.returns[i] < 1
    ]
    bad, guide = (jnp.array(x) for x in zip(*pairs, strict=True))
    revised, is_revised = revise_dialogues(dialogues.take_rows(bad), dialogues.take_rows(guide), jnp.array(STOP))
    assert 5 < is_revised.sum() < len(pairs)
    for n in np.flatnonzero(np.asarray(is_revised)):
        i, j = pairs[n]
        key = indexed_keys(seed_key(0), GROUPS)[i // GROUP]
        transcript, rewards = replay(revised, n, key)
        np.testing.assert_array_equal(transcript, revised.transcript[n])
        assert rewards[-1] == 1.0 and sum(rewards) == 1.0
        own_turns = np.flatnonzero(np.asarray(revised.alive[:, n]))
        first_turn = own_turns[0]
        assert revised.responses[first_turn, n].tolist() == [STOP, -1]
        fork = int(np.flatnonzero(np.asarray((dialogues.responses[:, i] != dialogues.responses[:, j]).any(axis=1)))[0])
        assert first_turn == fork + 1, "the revision starts right after the first response that differs"
        np.testing.assert_array_equal(revised.responses[:first_turn, n], dialogues.responses[:first_turn, i])
        count = int(dialogues.alive[:, j].sum())
        assert own_turns.tolist() == list(range(first_turn, first_turn + 1 + count - fork))
        np.testing.assert_array_equal(
            revised.responses[first_turn + 1 : own_turns[-1] + 1, n], dialogues.responses[fork:count, j]
        )
        np.testing.assert_array_equal(
            revised.log_probs[first_turn + 1 : own_turns[-1] + 1, n], dialogues.log_probs[fork:count, j]
        )


@pytest.mark.slow
def test_dialogues_that_do_not_fit_are_not_revised(dialogues):
    """Each reason for which two dialogues cannot be combined, checked in numpy."""
    good = np.flatnonzero(np.asarray(dialogues.returns) >= 0.5)
    pairs = [
        (i, j) for j in good for i in range(j // GROUP * GROUP, (j // GROUP + 1) * GROUP) if dialogues.returns[i] < 1
    ]
    bad, guide = (jnp.array(x) for x in zip(*pairs, strict=True))
    _, is_revised = revise_dialogues(dialogues.take_rows(bad), dialogues.take_rows(guide), jnp.array(STOP))
    responses, alive = np.asarray(dialogues.responses), np.asarray(dialogues.alive)
    for (i, j), revised in zip(pairs, np.asarray(is_revised), strict=True):
        fork = int(np.flatnonzero((responses[:, i] != responses[:, j]).any(axis=1))[0])
        at_end, has_stop = fork + 1 >= alive[:, i].sum(), STOP in (responses[fork, i, 0], responses[fork, j, 0])
        assert revised == (not at_end and not has_stop and alive[:, j].sum() + 2 <= TURNS)
    other_prompt = (jnp.array([0]), jnp.array([GROUP]))  # another prompt, unless both are equal
    if (dialogues.transcript[0, :10] != dialogues.transcript[GROUP, :10]).any():
        assert not revise_dialogues(
            dialogues.take_rows(other_prompt[0]), dialogues.take_rows(other_prompt[1]), jnp.array(STOP)
        )[1].any()


@pytest.mark.long
@pytest.mark.parametrize("transform", [RejectionSampling(), pytest.param(TrajectoryRevision(), marks=pytest.mark.slow)])
def test_only_successes_and_revisions_are_trained_on(dialogues, transform):
    spec = DialogueSpec.from_spec(ENV.spec)
    state, trained, metrics = jax.jit(
        lambda dialogues: transform(transform.init(MODEL, spec, TURNS, KEY), dialogues, GROUP, KEY)
    )(dialogues)
    success = np.asarray(dialogues.returns) >= 0.5
    assert 0 < success.sum() < len(success) and float(metrics["chosen"]) == pytest.approx(success.mean())
    turns = TurnBatch(trained.reward, trained.alive, trained.truncated, trained.response_mask, GROUP)
    advantage = np.asarray(TrajectoryReturn(NoBaseline())(turns, None).advantage)
    np.testing.assert_array_equal(advantage, np.asarray(trained.response_mask, "float32"))
    any_won = success.reshape(-1, GROUP).any(axis=1).repeat(GROUP)
    is_trained = np.asarray(trained.alive.any(axis=0))
    for row in np.flatnonzero(success):
        assert (trained.responses[:, row] == dialogues.responses[:, row]).all() and (
            trained.alive[:, row] == dialogues.alive[:, row]
        ).all()
    is_revised = is_trained & ~success
    assert not is_trained[~any_won].any() and not (isinstance(transform, RejectionSampling) and is_revised.any())
    if isinstance(transform, TrajectoryRevision):
        assert float(metrics["revised"]) == pytest.approx(is_revised.mean()) and is_revised.sum() > 3
        for row in np.flatnonzero(is_revised):
            transcript, rewards = replay(trained, row, indexed_keys(seed_key(0), GROUPS)[row // GROUP])
            assert (transcript == np.asarray(trained.transcript[row])).all() and sum(rewards) == 1.0
            first_turn = int(np.flatnonzero(np.asarray(trained.alive[:, row]))[0])
            same_prefix = [
                other
                for other in range(row // GROUP * GROUP, (row // GROUP + 1) * GROUP)
                if success[other]
                and (dialogues.responses[:first_turn, other] == dialogues.responses[:first_turn, row]).all()
            ]
            assert not same_prefix, "no success has the same responses up to the error"
        strict_transform = dataclasses.replace(transform, min_return_gap=1.5)
        assert float(strict_transform(state, dialogues, GROUP, KEY)[2]["revised"]) == 0.0
    leaves = jax.tree.leaves(trained)
    assert all(
        a.shape == b.shape and a.dtype == b.dtype for a, b in zip(leaves, jax.tree.leaves(dialogues), strict=True)
    )


ROWS, LENGTH, WIDTH = 40, 14, 3


def random_attempts():
    """Prompts of two to four tokens; half of the first attempts fail, and half of the second ones after them."""
    rng = np.random.default_rng(0)
    transcript, starts = np.full((ROWS, LENGTH), -1), np.zeros((3, ROWS), int)
    responses, alive, reward = np.full((2, ROWS, WIDTH), -1), np.zeros((2, ROWS), bool), np.zeros((2, ROWS))
    for row in range(ROWS):
        tokens = rng.integers(0, 5, rng.integers(2, 5)).tolist()
        for turn in range(2):
            starts[turn:, row] = len(tokens)
            words = rng.integers(5, 8, rng.integers(1, WIDTH + 1)).tolist()
            responses[turn, row, : len(words)], alive[turn, row] = words, True
            reward[turn, row] = float(rng.random() < 0.5)
            tokens += words
            if turn == 0 and not reward[0, row]:
                tokens += [9, 8]
            starts[turn + 1 :, row] = len(tokens)
            if reward[turn, row]:
                break
        transcript[row, : len(tokens)] = tokens
    fields = (transcript, starts, responses, alive, reward, np.zeros(ROWS, bool), rng.normal(size=responses.shape))
    kinds = {"b": "bool", "i": "int32", "f": "float32"}
    return SampledDialogues(*(jnp.asarray(x, kinds[x.dtype.kind]) for x in fields))


@pytest.mark.parametrize("settings", [{}, {"learn_revisions": True}])
def test_second_attempts_row_by_row(settings):
    dialogues = random_attempts()
    transform = SecondAttempts(**settings)
    _, learned, metrics = jax.jit(lambda x: transform((), x, 4, KEY))(dialogues)
    reward = np.asarray(dialogues.reward)
    for row in range(ROWS):
        turn = int(not reward[0, row] and reward[1, row])
        start, words = int(dialogues.response_starts[0, row]), [x for x in dialogues.responses[turn, row] if x >= 0]
        expected = [*dialogues.transcript[row, :start], *words]
        assert [int(x) for x in learned.transcript[row] if x >= 0] == list(map(int, expected))
        assert learned.response_starts[:2, row].tolist() == [start, len(expected)]
        np.testing.assert_array_equal(learned.responses[0, row], dialogues.responses[turn, row])
        np.testing.assert_array_equal(learned.log_probs[0, row], dialogues.log_probs[turn, row])
        success = bool(reward[:, row].any())
        assert learned.returns[row] == success
        assert learned.alive[:, row].tolist()[:1] == [success]
        assert not learned.alive[1:, row].any()
        if "learn_revisions" in settings:
            revision = learned.take_rows(jnp.asarray([ROWS + row]))
            assert revision.alive[:, 0].tolist() == [False, bool(turn)] and revision.returns[0] == turn
            np.testing.assert_array_equal(revision.transcript[0], dialogues.transcript[row])
            np.testing.assert_array_equal(revision.response_starts[:, 0], dialogues.response_starts[:, row])
    assert learned.alive.shape == ((2, 2 * ROWS) if "learn_revisions" in settings else (1, ROWS))
    assert metrics["first_success"] == pytest.approx(reward[0].mean())
    assert metrics["second_success"] == pytest.approx(reward[1][reward[0] == 0].mean())
    assert metrics["chosen"] == pytest.approx(reward.max(axis=0).mean())
    assert 0 < reward[1].sum() < (reward[0] == 0).sum()


def test_first_attempts_alone_are_learned_as_they_are():
    first = random_attempts()._map_fields(lambda _, x: x, lambda name, x: x[: 2 if name == "response_starts" else 1])
    _, learned, metrics = SecondAttempts()((), first, 4, KEY)
    np.testing.assert_array_equal(learned.returns, first.returns)
    np.testing.assert_array_equal(learned.responses, first.responses)
    assert learned.alive.sum() == first.returns.sum() and "second_success" not in metrics


def test_second_attempts_are_for_two_turns():
    with pytest.raises(UserError, match="not for 3 turns"):
        SecondAttempts().init(MODEL, DialogueSpec(30, 8, 2, 3, (1,)), 3, KEY)
