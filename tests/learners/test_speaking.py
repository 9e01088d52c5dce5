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
SMALL = {"model": "blank", "layers": 2, "width": 32, "minibatch": 3, "feed": Episodes(TURNS, group=3, envs=ROWS)}


@pytest.fixture(scope="module")
def played():
    """Conversations as a loop plays them, world by world of every tick; the model is far from uniform."""
    method = with_array_leaves(RLOO(**SMALL, temperature=0.7))
    state = method.init(WORLD.spec, key_of(0))
    model = jax.tree.map(lambda x: 3 * x, state.mind.model)
    state = dataclasses.replace(state, mind=dataclasses.replace(state.mind, model=model))
    loop = CompiledLoop(Parts(method, EnvironmentReward(), Fixed()), WORLD, ROWS, [0], 100)
    found = []
    carry = loop.init()
    carry = dataclasses.replace(
        carry, learner=dataclasses.replace(carry.learner, method=jax.tree.map(lambda x: x[None], state))
    )

    def block(parts, root, learner, world):
        world = loop._begun(parts, learner.curriculum, root, jnp.int32(0), world.memory)
        policy = parts.method.policy(learner.method, Mode.EXPLORE)

        def tick(world, t):
            return loop._tick(parts, root, policy, learner.curriculum, world, t)

        return jax.lax.scan(tick, world, jnp.arange(TURNS))[1][0]

    one = jax.tree.map(lambda x: x[0], (carry.roots, carry.learner, carry.world))
    found = jax.jit(block)(loop.parts, *one)
    return method, state, found


def test_groups_begin_alike_and_then_go_their_own_ways(played):
    _, _, steps = played
    seen = np.asarray(steps.view.observation)
    assert (seen[0].reshape(2, 3, -1) == seen[0].reshape(2, 3, -1)[:, :1]).all()
    assert (seen[0][0] != seen[0][3]).any() or (seen[-1][0] != seen[-1][3]).any()
    assert (seen[-1].reshape(2, 3, -1) != seen[-1].reshape(2, 3, -1)[:, :1]).any()


def test_sampler_and_trainer_agree_over_turns(played):
    """The cache that is kept between turns gives the log-probabilities of one pass over the whole conversation."""
    _, state, steps = played
    mask = first_episodes(steps.ended)
    last = mask.sum(axis=0) - 1
    transcript = steps.next_view.observation[last, jnp.arange(ROWS)]
    starts = (steps.view.observation >= 0).sum(axis=-1)
    features = features_of(state.mind.model, transcript, starts, 2)
    again, _ = log_probs_of(state.mind.model, Sampling(0.7), features, steps.action)
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
    state = method.init(WORLD.spec, key_of(1))
    steps = dataclasses.replace(steps, terminated=steps.terminated.at[1, 0].set(True))
    mask = first_episodes(steps.ended)
    update = jax.jit(lambda *given: method.update(*given))
    batch = Batch(steps, mask, (), jnp.int32(0))
    one = update(state, batch, key_of(2))

    rng = np.random.default_rng(0)
    behind = ~np.asarray(mask)

    def other(x):
        drawn = rng.integers(0, 5, x.shape).astype(x.dtype) if x.dtype != bool else rng.uniform(size=x.shape) < 0.5
        return jnp.where(behind.reshape(behind.shape + (1,) * (x.ndim - 2)), drawn, x)

    changed = jax.tree.map(other, steps)
    two = update(state, Batch(changed, mask, (), jnp.int32(0)), key_of(2))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    assert behind.any()

    # what the world says to the last utterance is heard by nobody: only a critic of a cut conversation looks at it
    ended = np.asarray((steps.terminated & mask).any(axis=0))
    final = steps.next_view.observation
    starts = (steps.view.observation >= 0).sum(axis=-1) + (steps.action >= 0).sum(axis=-1)
    place = jnp.arange(final.shape[-1])
    over = steps.terminated & jnp.asarray(ended)
    answer = (place >= starts[..., None]) & (final >= 0) & over[..., None]
    spoilt = dataclasses.replace(steps.next_view, observation=jnp.where(answer, 3, final))
    three = update(state, Batch(dataclasses.replace(steps, next_view=spoilt), mask, (), jnp.int32(0)), key_of(2))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(three), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_products_of_halves_learn_with_parameters_of_float32(played):
    """Its gradient points where that of float32 does, and what it keeps stays exact."""
    _, _, steps = played
    batch, moved = Batch(steps, first_episodes(steps.ended), (), jnp.int32(0)), []
    for compute in ("float32", "bfloat16"):
        method = with_array_leaves(RLOO(**SMALL, compute=compute, learning_rate=1e-3))
        state = method.init(WORLD.spec, key_of(1))
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
    world = WORLD
    talks, now = jax.vmap(world.reset, in_axes=(None, 0))((), jax.random.split(key_of(3), ROWS))
    memory, seen = method.begin(policy, ROWS), now.observation
    act, rng = jax.jit(lambda *given: method.act(*given)), np.random.default_rng(0)
    for tick in range(3 * TURNS):
        action, memory, logs = act(policy, memory, dataclasses.replace(now.view, observation=seen), key_of(tick))
        whole = np.full((ROWS, seen.shape[1]), -1)
        count = np.asarray((seen >= 0).sum(axis=1))
        for row in range(ROWS):
            said = [int(i) for i in np.asarray(action[row]) if i >= 0]
            whole[row, : count[row]] = np.asarray(seen[row])[: count[row]]
            whole[row, count[row] : count[row] + len(said)] = said
        features = features_of(state.mind.model, jnp.asarray(whole), jnp.asarray(count)[None], 2)
        again, _ = log_probs_of(state.mind.model, Sampling(0.7), features[0], action)
        real = np.asarray(action) >= 0
        np.testing.assert_allclose(np.asarray(again)[real], np.asarray(logs)[real], atol=1e-5)
        talks, step = jax.vmap(world.step)(talks, action, jax.random.split(fold(key_of(4), "step", tick), ROWS))
        ended = np.asarray(step.terminated | step.truncated) | (rng.uniform(size=ROWS) < 0.2)
        fresh, begun = jax.vmap(world.reset, in_axes=(None, 0))((), jax.random.split(fold(key_of(5), "r", tick), ROWS))

        def choose(a, b, ended=ended):
            return jnp.where(ended.reshape(-1, *[1] * (a.ndim - 1)), a, b)

        talks = jax.tree.map(choose, fresh, talks)
        memory = jax.tree.map(choose, method.begin(policy, ROWS), memory)
        seen = choose(begun.observation, step.observation)
