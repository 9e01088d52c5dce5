"""Methods whose critic reads along: losses, targets and phases against sums written out."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reading import logits_of

from thespis.actors.language import say
from thespis.core.feeds import LoggedEpisodes
from thespis.core.keys import fold, key_of
from thespis.core.records import Batch
from thespis.data.logged import source_for
from thespis.envs.text.maze import Maze
from thespis.envs.text.task import Spoken
from thespis.language.sampling import Sampling
from thespis.learners.appraising import Onlooker, SoftReturn, Success
from thespis.learners.schooling import Lesson
from thespis.learners.transcripts import Told, answers, onwards, per_row
from thespis.loops.parts import with_array_leaves
from thespis.methods.language.alol import ALoL, Each, Free, Together
from thespis.methods.language.direct_advantage import DirectAdvantage
from thespis.methods.language.oreo import OREO
from thespis.methods.language.spin import SPIN
from thespis.sources import shown_in

WORLD = Spoken(Maze(size=2, turns=4, lost=1.0))
SMALL = {"model": "blank", "layers": 1, "width": 32}


@pytest.fixture(scope="module")
def drawn():
    """Conversations of a demonstrator, some of which fail."""
    source = source_for(LoggedEpisodes(batch=5), shown_in(WORLD, 40).steps)
    return jax.jit(lambda key: source.draw(key))(key_of(3))


@jax.jit
def read(model, reference, steps, mask):
    """Conversations, log-probabilities by the reference, and log-ratios ``[time, row, utterance]``, of real ones."""
    told = Told.of(steps, mask)
    tether = told.log_probs_by(reference, Sampling())[0]
    return told, tether, jnp.where(told.real, told.log_probs_by(model, Sampling())[0] - tether, 0.0)


@jax.jit
def pulled(model, told, weights):
    """The model's slope, given that of a loss by each log-probability."""
    return jax.grad(lambda m: jnp.sum(weights * told.log_probs_by(m, Sampling())[0]))(model)


def lesson_of(method, state, steps, mask, values):
    """A lesson, and log-ratios of the model to its reference."""
    assert float(method.sampling.temperature) == 1.0
    told, tether, ratio = read(state.model, state.reference, steps, mask)
    return Lesson(told, tether, values, steps, state.talking, state.reference, key_of(5)), np.asarray(ratio)


@functools.cache
def begun_state(kind, critic):
    """Of all methods of one kind whose critics are of one kind."""
    method = with_array_leaves(kind(**SMALL, critic=critic()) if critic is not None else kind(**SMALL))
    return jax.jit(lambda key: method.init(WORLD.spec, key))(key_of(1))


def begun(method):
    kind = type(method.critic) if any(f.name == "critic" for f in dataclasses.fields(method)) else None
    state = begun_state(type(method), kind)
    model = jax.tree.map(lambda x: jnp.asarray(np.float32(1.2) * np.asarray(x)), state.model)
    return with_array_leaves(method), dataclasses.replace(state, model=model)


def some_values(steps, seed=0):
    time, rows, width = steps.action.shape
    return np.random.default_rng(seed).uniform(0, 1, (time + 1, rows, width)).astype("float32")


@pytest.mark.parametrize("ratio", [Together(0.3), Each(0.3), Free()], ids=lambda x: type(x).__name__)
@pytest.mark.parametrize("prioritised", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_lol_weighs_by_what_was_beyond_expectation(drawn, ratio, prioritised):
    steps, mask = drawn
    method, state = begun(ALoL(**SMALL, ratio=ratio, prioritised=prioritised))
    values = np.broadcast_to(some_values(steps)[:1, :, :1], some_values(steps).shape)
    lesson, ratios = lesson_of(method, state, steps, mask, values)
    slope = jax.jit(lambda model, lesson: jax.grad(lambda m: method.lost(m, lesson)[0])(model))(state.model, lesson)
    real, returns = np.asarray(lesson.told.real), np.asarray(jax.jit(lambda told: told.returns)(lesson.told))
    advantage = np.maximum(returns - values[0, :, 0], 0)
    assert (advantage > 0).any() and (advantage == 0).any()
    weights = np.zeros(real.shape, "float32")
    for row in range(len(advantage)):
        weight = {
            "Together": np.clip(np.exp(ratios[:, row].sum()), 0.7, 1.3),
            "Each": np.clip(np.exp(ratios[:, row]), 0.7, 1.3),
            "Free": 1.0,
        }[type(ratio).__name__]
        share = advantage[row] / advantage.sum() if prioritised else 1 / len(advantage)
        weights[:, row] = np.where(real[:, row], -share * advantage[row] * weight, 0.0)
    by_hand = pulled(state.model, lesson.told, weights)
    for a, b in zip(jax.tree.leaves(slope), jax.tree.leaves(by_hand), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


@pytest.mark.parametrize("turns", [False, True])
def test_oreo_and_its_critic_agree_where_the_soft_bellman_equation_holds(drawn, turns):
    """Losses as in the paper, step by step; the critic's target is where the policy's own loss is nothing."""
    steps, mask = drawn
    beta = 0.2
    method, state = begun(OREO(**SMALL, critic=SoftReturn(beta, turns=turns), divergence=0.0))
    values = some_values(steps)
    lesson, ratio = lesson_of(method, state, steps, mask, values)
    real = np.asarray(lesson.told.real)
    steps, mask, off = *jax.tree.map(np.asarray, (steps, mask)), []
    for row in range(mask.shape[1]):
        order = [(t, i) for t in range(mask.shape[0]) for i in range(real.shape[2]) if real[t, row, i]]
        for n, (t, i) in enumerate(order):
            if turns and i > 0:
                continue
            earned = float(np.where(mask, steps.reward, 0)[t:, row].sum())
            rest = sum(ratio[u, row, j] for u, j in order[n:])
            off.append(float(values[t, row, i]) - earned + beta * rest)

    @jax.jit
    def lost(lesson, ratio):
        target = lesson.told.to_go[..., None] - beta * onwards(ratio, lesson.told.real)
        agreed = jnp.concatenate([target, jnp.zeros_like(target[:1])])
        both = lesson, dataclasses.replace(lesson, values=agreed)
        return [method.lost(state.model, each)[0] for each in both]

    found, nothing = map(float, lost(lesson, ratio))
    assert found == pytest.approx(np.mean(np.square(off)), rel=1e-4)
    assert nothing == pytest.approx(0, abs=1e-8)


def test_oreo_moves_each_step_by_its_own_ratio(drawn):
    steps, mask = drawn
    method, state = begun(OREO(**SMALL, critic=SoftReturn(0.2), divergence=0.0))
    values = some_values(steps)
    lesson, ratio = lesson_of(method, state, steps, mask, values)

    @jax.jit
    def both(model, lesson, ratio):
        told = lesson.told
        later = onwards(ratio, told.real) - ratio
        off = jnp.where(told.real, lesson.values[:-1] - told.to_go[..., None] + 0.2 * (ratio + later), 0.0)
        weights = 2 * off * 0.2 / told.real.sum()  # the derivative of a square, later ids held
        return jax.grad(lambda m: method.lost(m, lesson)[0])(model), weights

    slope, weights = both(state.model, lesson, ratio)
    for a, b in zip(*map(jax.tree.leaves, (slope, pulled(state.model, lesson.told, weights))), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_direct_advantages_are_differences_of_success(drawn):
    steps, mask = drawn
    method, state = begun(DirectAdvantage(**SMALL, beta=0.5))

    @jax.jit
    def valued(model, told):
        return method.critic.values(method.critic.begun(model), (), told) + 0.0

    told = read(state.model, state.reference, steps, mask)[0]
    values, there = np.asarray(valued(state.model, told)), np.asarray(told.alive)
    steps, mask = jax.tree.map(np.asarray, (steps, mask))
    assert (values[:-1][there] == 0.5).all()  # a critic that knows nothing
    lesson, ratio = lesson_of(method, state, steps, mask, values)
    missed = []
    for row in range(mask.shape[1]):
        turns = int(there[:, row].sum())
        for t in range(turns):
            after = 0.5 if t + 1 < turns else 0.0
            advantage = float(steps.reward[t, row]) + after - 0.5
            missed.append(0.5 * (advantage / 0.5 - ratio[t, row].sum()) ** 2)
    found = jax.jit(lambda model, lesson: method.lost(model, lesson)[0])(state.model, lesson)
    assert float(found) == pytest.approx(np.mean(missed), rel=1e-4)


@pytest.mark.parametrize("part", [Onlooker(400, 3e-2), Success(1.0, 400, 3e-3), SoftReturn(0.0, learning_rate=3e-3)])
def test_critics_learn_what_can_be_known(drawn, part):
    """Few conversations, told apart by their beginnings: the error goes."""
    steps, mask = drawn
    _, state = begun(OREO(**SMALL))
    told = read(state.model, state.reference, steps, mask)[0]
    reference, ratio = state.reference, jnp.zeros(told.said.shape)

    def step(critic, index):
        critic, _, metrics = part.learn(critic, reference, told, ratio, index)
        return critic, metrics["critic_loss"]

    _, losses = jax.jit(lambda critic: jax.lax.scan(step, critic, jnp.arange(150)))(part.begun(state.model))
    assert float(losses[-1]) < 0.5 * float(losses[0])


@pytest.mark.parametrize("kind", [ALoL, DirectAdvantage])
def test_the_critic_learns_first_and_the_model_then(drawn, kind):
    part = {ALoL: Onlooker, DirectAdvantage: Success}[kind](first=2)
    method, state = begun(kind(**SMALL, critic=part))
    update = jax.jit(lambda *given: method.update(*given))

    def moved(old, new):
        return any(not np.array_equal(a, b) for a, b in zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True))

    for index in range(4):
        new, _ = update(state, Batch(*drawn, (), jnp.int32(index)), key_of(index))
        assert moved(state.critic, new.critic) == (index < 2) and moved(state.model, new.model) == (index >= 2)
        state = new


@pytest.mark.slow
def test_spin_prefers_what_was_said_to_what_its_opponent_says(drawn):
    steps, mask = drawn
    method, state = begun(SPIN(**SMALL))
    lesson, _ = lesson_of(method, state, steps, mask, ())
    before, turn, rows = lesson.any_turn()
    assert bool(mask[turn, rows].all())
    own = say(state.reference, method.sampling, state.talking, before, fold(lesson.key, "opponent"))
    margins = []
    for row in range(len(rows)):
        h = []
        for said in (steps.action[turn[row], row], own[row]):
            told = answers(before[row][None], said[None], jnp.ones(1, bool))
            away = [told.log_probs_by(model, method.sampling)[0] for model in (state.model, state.reference)]
            h.append(float(per_row(away[0] - away[1], told.real)[0]))
        margins.append(h[0] - h[1])
    loss, metrics = method.lost(state.model, lesson)
    assert float(loss) == pytest.approx(np.mean(np.log1p(np.exp(-0.1 * np.array(margins)))), rel=1e-4)
    assert float(metrics["margin"]) == pytest.approx(np.mean(margins), rel=1e-3, abs=1e-4)


@pytest.mark.slow
def test_an_opponent_s_utterances_are_drawn_by_its_probabilities():
    """Of answers to one conversation, each first id as often as its probability says."""
    method, state = begun(SPIN(**SMALL))
    length = WORLD.spec.observation.length
    before = jnp.full((4000, length), -1).at[:, :4].set(jnp.array([4, 5, 6, 3]))
    said = jax.jit(lambda model: say(model, method.sampling, state.talking, before, key_of(0)))(state.model)
    chance = jax.nn.softmax(logits_of(state.model, jnp.array([4, 5, 6, 3]))[-1])
    np.testing.assert_allclose(np.bincount(said[:, 0], minlength=len(chance)) / 4000, chance, atol=0.03)
