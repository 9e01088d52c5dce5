"""Learning from conversations of others: losses and gradients against sums written out, optima that are known."""

from __future__ import annotations

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from thespis.core.feeds import LoggedEpisodes, Pairs
from thespis.core.keys import key_of
from thespis.core.records import Batch, Transition, View
from thespis.data.logged import source_for
from thespis.envs.text.maze import Maze
from thespis.envs.text.task import Spoken
from thespis.learners.preferring import Hinge, Logistic, Squared
from thespis.learners.schooling import Lesson
from thespis.learners.transcripts import Told, answers
from thespis.learners.utterances import OverAnswers, OverBudget, OverTokens
from thespis.loops.parts import with_array_leaves
from thespis.methods.language.dpo import DPO
from thespis.methods.language.kto import KTO
from thespis.methods.language.sft import SFT
from thespis.sources import shown_in

WORLD = Spoken(Maze(size=2, turns=4, lost=1.0))
SMALL = {"model": "blank", "layers": 1, "width": 32, "max_gradient_norm": 1e9}
METHODS = {
    "sft": SFT(**SMALL, least=0.5),
    "sft over answers": SFT(**SMALL, divisor=OverAnswers()),
    "sft over the budget": SFT(**SMALL, divisor=OverBudget()),
    "dpo": DPO(**SMALL, loss=Logistic(0.3, 0.1), renewed=3),
    "ipo": DPO(**SMALL, loss=Squared(0.3)),
    "hinge": DPO(**SMALL, loss=Hinge(2.0)),
    "kto": KTO(**SMALL, good=2.0, beta=0.7, above=0.5),
}
NOW = np.array(1, "int32")  # an update at which no reference is renewed


@pytest.fixture(scope="module")
def batches():
    """Whole conversations of a demonstrator, and pairs of them."""
    steps = shown_in(WORLD, 40).steps
    sources = {kind: source_for(kind(batch=3), steps) for kind in (LoggedEpisodes, Pairs)}
    drawn = jax.jit(lambda key: [source.draw(key) for source in sources.values()])(key_of(0))
    return dict(zip(sources, drawn, strict=True))


@functools.cache
def begun_state(held):
    """Of any method that keeps a reference, or of any other: they all begin alike."""
    method = with_array_leaves(METHODS["kto" if held else "sft"])

    def init(key):
        state = method.init(WORLD.spec, key)
        moved = jax.tree.map(
            lambda x: 1.3 * x + 0.02 * jnp.sin(jnp.arange(x.size, dtype="float32")).reshape(x.shape), state.model
        )
        return dataclasses.replace(state, model=moved)  # far enough from its reference

    return jax.jit(init)(key_of(1))


def begun(name):
    return with_array_leaves(METHODS[name]), begun_state(METHODS[name].held)


@functools.cache
def update_of(name):
    """One program for all tests of a method."""
    method = begun(name)[0]
    return jax.jit(lambda *given: method.update(*given))


def log_prob_of(model, seen, count, said):
    """Of one id behind the first ``count`` that were seen."""
    features = model(seen, jnp.arange(len(seen)))
    return jax.nn.log_softmax(model.logits(features[count - 1]))[said]


@jax.jit
def log_probs_of(model, seen, count, said):
    return jax.vmap(log_prob_of, in_axes=(None, 0, 0, 0))(model, seen, count, said)


@jax.jit
def pulled(model, seen, count, said, weights):
    """The model's slope, given that of a loss by each log-probability."""
    return jax.grad(lambda m: weights @ log_probs_of(m, seen, count, said))(model)


def spoken(steps, mask):
    """What was said, id by id: all ids before it, how many they are, and itself; and in which conversation it was.

    What is behind them is rubbish, and there are more rows than ids, so that there is one shape for all.
    """
    steps, mask = jax.tree.map(np.asarray, (steps, mask))
    rubbish = np.random.default_rng(0).integers(0, 5, WORLD.spec.observation.length)
    found, rows = [], []
    for row in range(mask.shape[1]):
        for t in np.flatnonzero(mask[:, row]):
            seen = [int(i) for i in steps.view.observation[t, row] if i >= 0]
            for said in (int(i) for i in steps.action[t, row] if i >= 0):
                found.append((np.array([*seen, *rubbish[len(seen) :]], "int32"), len(seen), said))
                rows.append(row)
                seen.append(said)
    more = -len(found) % 64
    seen, count, said = zip(*found, *found[:1] * more, strict=True)
    return (np.stack(seen), np.array(count, "int32"), np.array(said, "int32")), np.array(rows)


def by_hand(model, steps, mask):
    """Log-probabilities of what was said in each conversation, id by id, each from all ids before it alone."""
    ids, rows = spoken(steps, mask)
    logs = np.asarray(log_probs_of(model, *ids))[: len(rows)]
    return [logs[rows == row] for row in range(mask.shape[1])]


def lost_by_hand(name, logs, held, rows, earned, budget):
    """Of log-probabilities of all ids, by the model and by its reference, and the conversation each belongs to."""
    belongs = np.equal.outer(np.arange(len(earned)), rows).astype("float32")
    if name.startswith("sft"):
        method = METHODS[name]
        kept = belongs[earned >= method.least]
        match method.divisor:
            case OverTokens():
                return -(kept @ logs).sum() / kept.sum()
            case OverAnswers():
                return -(kept @ logs / kept.sum(axis=1)).mean()
            case _:
                return -(kept @ logs).sum() / budget
    ratios = belongs @ (logs - held)
    one = {
        "dpo": lambda m: -0.9 * jnp.log(jax.nn.sigmoid(0.3 * m)) - 0.1 * jnp.log(jax.nn.sigmoid(-0.3 * m)),
        "ipo": lambda m: (m - 1 / 0.6) ** 2,
        "hinge": lambda m: jnp.maximum(0.0, 1 - 2 * m),
    }[name]
    return one(ratios[::2] - ratios[1::2]).mean()


def earned_in(steps, mask):
    return np.where(mask, steps.reward, 0).sum(axis=0)


def lesson_of(method, state, steps, mask):
    told = Told.of(steps, mask)
    tether = told.log_probs_by(state.reference, method.sampling)[0] if method.held else jnp.zeros(told.real.shape)
    return Lesson(told, tether, (), steps, state.talking, state.reference, key_of(5))


def gradient_of(state):
    """From Adam's first moments behind one step."""
    parts = jax.tree.leaves(state.opt, is_leaf=lambda x: hasattr(x, "mu"))
    return jax.tree.map(lambda m: np.asarray(m) / 0.1, next(part.mu for part in parts if hasattr(part, "mu")))


@pytest.mark.parametrize("name", [name for name in METHODS if name != "kto"])
def test_losses_and_gradients_are_those_written_out(batches, name):
    method, state = begun(name)
    steps, mask = batches[type(method.feed)]
    new, report = update_of(name)(state, Batch(steps, mask, (), NOW), key_of(5))
    ids, rows = spoken(steps, mask)
    logs = log_probs_of(state.model, *ids)
    held = np.asarray(log_probs_of(state.reference, *ids) if method.held else logs)[: len(rows)]
    earned, budget = earned_in(steps, mask), mask.size * steps.action.shape[-1]

    def lost(logs):
        return lost_by_hand(name, logs[: len(rows)], held, rows, earned, budget)

    wanted, weights = jax.jit(jax.value_and_grad(lost))(logs)
    assert float(report.metrics["policy_loss"]) == pytest.approx(float(wanted), rel=1e-4)
    by = jax.tree.map(np.asarray, pulled(state.model, *ids, weights))
    for a, b in zip(jax.tree.leaves(gradient_of(new)), jax.tree.leaves(by), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-4 * max(1.0, float(np.abs(b).max())))


def test_kto_weighs_good_and_bad_apart(batches):
    """The point is what answers of others to the same questions say, and no gradient flows through it."""
    _, state = begun("kto")
    steps, mask = batches[LoggedEpisodes]
    _, report = update_of("kto")(state, Batch(steps, mask, (), NOW), key_of(5))
    both = (by_hand(model, steps, mask) for model in (state.model, state.reference))
    ratios, good = np.array([(x - y).sum() for x, y in zip(*both, strict=True)]), earned_in(steps, mask) > 0.5
    point = float(report.metrics["point"])
    each = np.where(good, 2 / (1 + np.exp(0.7 * (ratios - point))), 1 / (1 + np.exp(-0.7 * (ratios - point))))
    assert float(report.metrics["policy_loss"]) == pytest.approx(each.mean(), rel=1e-4)
    assert good.any() and not good.all()


@pytest.mark.slow
def test_the_point_is_a_divergence_over_answers_of_others():
    """One turn: each prompt with the next row's answer, as in the paper; never below nothing."""
    method, state = begun("kto")
    rng, rows = np.random.default_rng(0), 4
    seen = np.full((1, rows, WORLD.spec.observation.length), -1)
    seen[:, :, :5] = rng.integers(3, 9, (1, rows, 5))
    said = rng.integers(0, 9, (1, rows, 2))
    steps = one_turn(seen, said, np.ones((1, rows)))
    mask = jnp.ones((1, rows), bool)
    points = []
    for model in (state.model, state.reference):
        found = method.lost(model, lesson_of(method, dataclasses.replace(state, model=model), steps, mask))[1]
        others = dataclasses.replace(steps, action=jnp.roll(steps.action, -1, axis=1))
        logs, held = by_hand(model, others, mask), by_hand(state.reference, others, mask)
        ratio = [float((a - b).sum()) for a, b in zip(logs, held, strict=True)]
        points.append(float(found["point"]))
        assert points[-1] == pytest.approx(max(np.mean(ratio), 0.0), abs=1e-3)
    assert points[1] == 0.0


def one_turn(seen, said, reward):
    """Conversations of one turn ``[1, row, ...]``, and what is seen behind it."""
    told = answers(jnp.asarray(seen[0]), jnp.asarray(said[0]), jnp.ones(seen.shape[1], bool))
    length = seen.shape[-1]
    after = View(told.transcript[None, :, :length])
    yes = jnp.ones(reward.shape, bool)
    return Transition(View(jnp.asarray(seen)), jnp.asarray(said), jnp.asarray(reward, "float32"), yes, ~yes, after, yes)


@pytest.mark.parametrize("name", METHODS)
def test_padding_and_what_the_world_says_last_change_no_bit(batches, name):
    method, state = begun(name)
    steps, mask = batches[type(method.feed)]
    steps, mask = jax.tree.map(np.asarray, (steps, mask))
    rng, behind = np.random.default_rng(0), ~mask
    assert behind.any()

    def other(x):
        drawn = rng.integers(0, 5, x.shape).astype(x.dtype) if x.dtype != bool else rng.uniform(size=x.shape) < 0.5
        return np.where(behind.reshape(behind.shape + (1,) * (x.ndim - 2)), drawn, x)

    ends = (steps.view.observation >= 0).sum(axis=-1) + (steps.action >= 0).sum(axis=-1)
    final = steps.next_view.observation
    last = (mask & steps.ended)[..., None] & (np.arange(final.shape[-1]) >= ends[..., None])
    spoilt = dataclasses.replace(steps, next_view=View(np.where(last & (final >= 0), 3, final).astype(final.dtype)))
    one, *others = [
        update_of(name)(state, Batch(x, mask, (), NOW), key_of(2)) for x in (steps, jax.tree.map(other, steps), spoilt)
    ]
    for two in others:
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.slow
def test_dpo_ends_where_the_closed_form_says():
    """All pairs of four answers, labelled as often as Bradley and Terry say: reference times exp(reward / beta).

    The decoder is free in what it says to one question, so that the optimum of the loss is that of the distribution.
    """
    beta, worth = 0.5, np.array([1, 2, 3, 2])
    method = with_array_leaves(DPO(**SMALL, loss=Logistic(beta)))
    state = method.init(WORLD.spec, key_of(3))
    reference = jax.tree.map(lambda x: 2 * x, state.model)
    often = [(w, lo, int(60 * worth[w] / (worth[w] + worth[lo]))) for w, lo in itertools.permutations(range(4), 2)]
    rows = np.array([(w, lo) for w, lo, n in often for _ in range(n)]).reshape(-1)
    seen = np.full((1, len(rows), 4), -1)
    seen[..., 0] = 3
    steps = one_turn(seen, (4 + rows)[None, :, None], np.ones((1, len(rows))))
    state = dataclasses.replace(state, reference=reference)
    lesson = lesson_of(method, state, steps, jnp.ones((1, len(rows)), bool))
    leaves, tree = jax.tree.flatten(reference)

    def loss(moved):
        return method.lost(jax.tree.unflatten(tree, moved), lesson)[0]

    solver = optax.adam(optax.cosine_decay_schedule(2e-2, 250))

    def step(carry, _):
        moved, opt = carry
        change, opt = solver.update(jax.grad(loss)(moved), opt)
        return (optax.apply_updates(moved, change), opt), None

    (moved, _), _ = jax.jit(lambda x: jax.lax.scan(step, (x, solver.init(x)), None, 250))(leaves)

    def said(model):
        return jax.nn.log_softmax(model.logits(model(jnp.array([3]), jnp.array([0]))[0]))[4:8]

    found = jax.nn.softmax(said(jax.tree.unflatten(tree, moved)))
    np.testing.assert_allclose(found, jax.nn.softmax(said(reference) + np.log(worth) / beta), atol=2e-3)


def test_the_reference_is_renewed_when_it_is_due(batches):
    _, state = begun("dpo")
    steps, mask = batches[Pairs]
    for index, same in ((2, False), (3, True)):
        new, report = update_of("dpo")(state, Batch(steps, mask, (), np.array(index, "int32")), key_of(0))
        kept = jax.tree.leaves(state.model if same else state.reference)
        assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(new.reference), kept, strict=True))
        assert (float(report.metrics["policy_loss"]) == pytest.approx(np.log(2), abs=1e-4)) == same
