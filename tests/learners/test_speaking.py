"""Conversations learnt from: what a sampler said is what the trainer sees, and what must change nothing does not."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.actors.language import features_of, log_probs_of
from thespis.core.contracts import Mode
from thespis.core.feeds import Episodes
from thespis.core.keys import fold, key_of
from thespis.core.records import Batch
from thespis.curricula.fixed import Fixed
from thespis.data.stores import first_episodes
from thespis.envs.text.maze import Maze
from thespis.envs.text.task import Spoken
from thespis.feedback.environment import EnvironmentReward
from thespis.language.sampling import Sampling
from thespis.learners.credit import ToGo, TokenCritic, TurnCritic
from thespis.loops.compiled import CompiledLoop
from thespis.loops.parts import Parts, with_array_leaves
from thespis.methods.language.grpo import GRPO
from thespis.methods.language.ppo_lm import LanguagePPO
from thespis.methods.language.rloo import RLOO

TURNS, ROWS = 4, 6
WORLD = Spoken(Maze(size=2, turns=TURNS))
SMALL = {"model": "blank", "layers": 1, "width": 32, "minibatch": 3, "feed": Episodes(TURNS, group=3, envs=ROWS)}


FIRST = jax.jit(first_episodes)


@jax.jit
def read(model, transcript, starts, said):
    """Log-probabilities of what was said, by one pass over each conversation."""
    return log_probs_of(model, Sampling(0.7), features_of(model, transcript, starts, 2), said)[0]


def begun(method):
    return jax.jit(lambda key: method.init(WORLD.spec, key))(key_of(1))


@pytest.fixture(scope="module")
def played():
    """Conversations as a loop plays them, world by world of every tick; the model is far from uniform."""
    method = with_array_leaves(RLOO(**SMALL | {"layers": 2}, temperature=0.7))
    state = begun(method)
    model = jax.tree.map(lambda x: jnp.asarray(3 * np.asarray(x)), state.mind.model)
    state = dataclasses.replace(state, mind=dataclasses.replace(state.mind, model=model))
    loop = CompiledLoop(Parts(method, EnvironmentReward(), Fixed()), WORLD, ROWS, [0], 100)
    carry = loop.init()

    def block(parts, root, learner, world):
        world = loop._begun(parts, learner.curriculum, root, jnp.int32(0), world.memory)
        policy = parts.method.policy(learner.method, Mode.EXPLORE)

        def tick(world, t):
            return loop._tick(parts, root, policy, learner.curriculum, world, t)

        return jax.lax.scan(tick, world, jnp.arange(TURNS))[1][0]

    @jax.jit
    def first(parts, carry, state):
        root, learner, world = jax.tree.map(lambda x: x[0], (carry.roots, carry.learner, carry.world))
        return block(parts, root, dataclasses.replace(learner, method=state), world)

    return method, state, jax.tree.map(np.asarray, first(loop.parts, carry, state))


def test_groups_begin_alike_and_then_go_their_own_ways(played):
    _, _, steps = played
    seen = np.asarray(steps.view.observation)
    assert (seen[0].reshape(2, 3, -1) == seen[0].reshape(2, 3, -1)[:, :1]).all()
    assert (seen[0][0] != seen[0][3]).any() or (seen[-1][0] != seen[-1][3]).any()
    assert (seen[-1].reshape(2, 3, -1) != seen[-1].reshape(2, 3, -1)[:, :1]).any()


def test_sampler_and_trainer_agree_over_turns(played):
    """The cache that is kept between turns gives the log-probabilities of one pass over the whole conversation."""
    _, state, steps = played
    mask = np.asarray(FIRST(steps.ended))
    last = mask.sum(axis=0) - 1
    transcript = steps.next_view.observation[last, np.arange(ROWS)]
    starts = (steps.view.observation >= 0).sum(axis=-1)
    again = read(state.mind.model, transcript, starts, steps.action)
    real = np.asarray((steps.action >= 0) & mask[..., None])
    assert real.sum() > 20
    np.testing.assert_allclose(np.asarray(again)[real], np.asarray(steps.extras)[real], atol=1e-5)
    # the utterances stand in the transcript where they were said, id by id
    for t in range(TURNS):
        for row in range(ROWS):
            for i in np.flatnonzero(real[t, row]):
                assert transcript[row, starts[t, row] + i] == steps.action[t, row, i]


@pytest.mark.parametrize("credit", [None, TurnCritic(), TokenCritic(), ToGo()], ids=lambda x: type(x).__name__)
def test_padding_and_what_the_world_says_last_change_nothing(played, credit):
    _, _, steps = played
    kind = GRPO if credit is None else LanguagePPO
    method = with_array_leaves(kind(**SMALL) if credit is None else kind(**SMALL, credit=credit))
    state = begun(method)
    terminated = steps.terminated.copy()
    terminated[1, 0] = True
    steps = dataclasses.replace(steps, terminated=terminated)
    mask = np.asarray(FIRST(steps.ended))
    update = jax.jit(lambda *given: method.update(*given))
    batch = Batch(steps, mask, (), jnp.int32(0))
    one = update(state, batch, key_of(2))

    rng = np.random.default_rng(0)
    behind = ~mask

    def other(x):
        drawn = rng.integers(0, 5, x.shape).astype(x.dtype) if x.dtype != bool else rng.uniform(size=x.shape) < 0.5
        return np.where(behind.reshape(behind.shape + (1,) * (x.ndim - 2)), drawn, x)

    changed = jax.tree.map(other, steps)
    two = update(state, Batch(changed, mask, (), jnp.int32(0)), key_of(2))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    assert behind.any()

    # what the world says to the last utterance is heard by nobody: only a critic of a cut conversation looks at it
    ended = (steps.terminated & mask).any(axis=0)
    final = steps.next_view.observation
    starts = (steps.view.observation >= 0).sum(axis=-1) + (steps.action >= 0).sum(axis=-1)
    place = np.arange(final.shape[-1])
    over = steps.terminated & ended
    answer = (place >= starts[..., None]) & (final >= 0) & over[..., None]
    spoilt = dataclasses.replace(steps.next_view, observation=np.where(answer, 3, final).astype(final.dtype))
    three = update(state, Batch(dataclasses.replace(steps, next_view=spoilt), mask, (), jnp.int32(0)), key_of(2))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(three), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_products_of_halves_learn_with_parameters_of_float32(played):
    """Its gradient points where that of float32 does, and what it keeps stays exact."""
    _, _, steps = played
    batch, moved = Batch(steps, np.asarray(FIRST(steps.ended)), (), jnp.int32(0)), []
    for compute in ("float32", "bfloat16"):
        method = with_array_leaves(RLOO(**SMALL, compute=compute, learning_rate=1e-3))
        state = begun(method)
        after, report = jax.jit(lambda *given, method=method: method.update(*given))(state, batch, key_of(2))
        assert after.mind.model.compute == compute and np.isfinite(report.metrics["gradient"])
        assert {leaf.dtype for leaf in jax.tree.leaves(after.mind)} == {jnp.dtype("float32")}
        one, two = (np.concatenate([np.ravel(x) for x in jax.tree.leaves(each.mind)]) for each in (state, after))
        moved.append(two - one)
    exact, rounded = moved
    assert 0.9 < exact @ rounded / (np.linalg.norm(exact) * np.linalg.norm(rounded)) < 1 - 1e-9


def test_the_cache_may_be_used_for_ever(played):
    """Rows that begin anew at any time: the ring is written over, and every utterance is still what one pass says."""
    method, state, _ = played
    policy = method.policy(state, Mode.EXPLORE)
    act, rng = jax.jit(lambda *given: method.act(*given)), np.random.default_rng(0)
    fresh = jax.jit(lambda key: jax.vmap(WORLD.reset, in_axes=(None, 0))((), jax.random.split(key, ROWS)))
    nothing = jax.tree.map(np.asarray, method.begin(policy, ROWS))

    @jax.jit
    def heard(talks, action, tick):
        keys = jax.random.split(fold(key_of(4), "step", tick), ROWS)
        return *jax.vmap(WORLD.step)(talks, action, keys), *fresh(fold(key_of(5), "r", tick))

    talks, now = jax.tree.map(np.asarray, fresh(key_of(3)))
    memory, seen = nothing, now.observation
    for tick in range(3 * TURNS):
        view = dataclasses.replace(now.view, observation=seen)
        action, memory, logs = jax.tree.map(np.asarray, act(policy, memory, view, key_of(tick)))
        count = (seen >= 0).sum(axis=1)
        whole = np.full((ROWS, seen.shape[1]), -1, seen.dtype)
        for row in range(ROWS):
            said = action[row][action[row] >= 0]
            whole[row, : count[row]] = seen[row][: count[row]]
            whole[row, count[row] : count[row] + len(said)] = said
        again = read(state.mind.model, whole, count[None].astype("int32"), action[None])[0]
        real = action >= 0
        np.testing.assert_allclose(np.asarray(again)[real], logs[real], atol=1e-5)
        talks, step, anew, begun = jax.tree.map(np.asarray, heard(talks, action, tick))
        ended = step.terminated | step.truncated | (rng.uniform(size=ROWS) < 0.2)

        def choose(a, b, ended=ended):
            return np.where(ended.reshape(-1, *[1] * (a.ndim - 1)), a, b)

        talks = jax.tree.map(choose, anew, talks)
        memory = jax.tree.map(choose, nothing, memory)
        seen = choose(begun.observation, step.observation)
