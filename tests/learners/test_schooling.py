"""Learning from conversations of others: losses and gradients against sums written out, optima that are known."""

from __future__ import annotations

import dataclasses
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
SMALL = {"model": "blank", "layers": 2, "width": 32}
METHODS = {
    "sft": SFT(**SMALL, least=0.5),
    "sft over answers": SFT(**SMALL, divisor=OverAnswers()),
    "sft over the budget": SFT(**SMALL, divisor=OverBudget()),
    "dpo": DPO(**SMALL, loss=Logistic(0.3, 0.1)),
    "ipo": DPO(**SMALL, loss=Squared(0.3)),
    "hinge": DPO(**SMALL, loss=Hinge(2.0)),
    "kto": KTO(**SMALL, good=2.0, beta=0.7, above=0.5),
}


@pytest.fixture(scope="module")
def batches():
    """Whole conversations of a demonstrator, and pairs of them."""
    steps = shown_in(WORLD, 40).steps
    return {kind: source_for(kind(batch=3), steps).draw(key_of(0)) for kind in (LoggedEpisodes, Pairs)}


def begun(name):
    method = with_array_leaves(METHODS[name])
    state = method.init(WORLD.spec, key_of(1))
    moved = jax.tree.map(lambda x: 1.3 * x + 0.02 * jnp.sin(jnp.arange(x.size, dtype="float32")).reshape(x.shape),
                         state.model)  # fmt: skip
    return method, dataclasses.replace(state, model=moved)  # far enough from its reference


@jax.jit
def log_prob_of(model, seen, count, said):
    """Of one id behind the first ``count`` that were seen."""
    features = model(seen, jnp.arange(len(seen)))
    return jax.nn.log_softmax(model.logits(features[count - 1]))[said]


def by_hand(model, steps, mask):
    """Log-probabilities of what was said in each conversation, id by id, each from all ids before it alone.

    What is behind them is rubbish, so that there is one shape for all.
    """
    rubbish, found = list(np.random.default_rng(0).integers(0, 5, WORLD.spec.observation.length)), []
    for row in range(mask.shape[1]):
        talk = []
        for t in range(mask.shape[0]):
            if not mask[t, row]:
                continue
            seen = [int(i) for i in steps.view.observation[t, row] if i >= 0]
            for said in (int(i) for i in steps.action[t, row] if i >= 0):
                padded = np.array(seen + rubbish[len(seen) :], "int32")
                talk.append(log_prob_of(model, padded, len(seen), said))
                seen.append(said)
        found.append(jnp.stack(talk))
    return found


def lost_by_hand(name, method, model, reference, steps, mask):
    logs = by_hand(model, steps, mask)
    returns = np.where(mask, steps.reward, 0).sum(axis=0)
    if name.startswith("sft"):
        kept = [x for x, r in zip(logs, returns, strict=True) if r >= method.least]
        match method.divisor:
            case OverTokens():
                return -jnp.concatenate(kept).mean()
            case OverAnswers():
                return -jnp.stack([x.mean() for x in kept]).mean()
            case _:
                return -jnp.concatenate(kept).sum() / (len(logs) * mask.shape[0] * steps.action.shape[-1])
    ratios = [(x - jax.lax.stop_gradient(y)).sum() for x, y in zip(logs, by_hand(reference, steps, mask), strict=True)]
    if name == "kto":
        return ratios, returns
    margins = [ratios[i] - ratios[i + 1] for i in range(0, len(ratios), 2)]
    one = {
        "dpo": lambda m: -0.9 * jnp.log(jax.nn.sigmoid(0.3 * m)) - 0.1 * jnp.log(jax.nn.sigmoid(-0.3 * m)),
        "ipo": lambda m: (m - 1 / 0.6) ** 2,
        "hinge": lambda m: jnp.maximum(0.0, 1 - 2 * m),
    }[name]
    return jnp.stack([one(m) for m in margins]).mean()


def lesson_of(method, state, steps, mask):
    told = Told.of(steps, mask)
    tether = told.log_probs_by(state.reference, method.sampling)[0] if method.held else jnp.zeros(told.real.shape)
    return Lesson(told, tether, (), steps, state.talking, state.reference, key_of(5))


@pytest.mark.parametrize("name", [name for name in METHODS if name != "kto"])
def test_losses_and_gradients_are_those_written_out(batches, name):
    method, state = begun(name)
    steps, mask = batches[type(method.feed)]
    lesson = lesson_of(method, state, steps, mask)
    loss, slope = jax.jit(jax.value_and_grad(lambda model: method.lost(model, lesson)[0]))(state.model)
    wanted, by = jax.value_and_grad(lambda m: lost_by_hand(name, METHODS[name], m, state.reference, steps, mask))(
        state.model
    )
    assert float(loss) == pytest.approx(float(wanted), rel=1e-4)
    for a, b in zip(jax.tree.leaves(slope), jax.tree.leaves(by), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-4 * max(1.0, float(jnp.abs(b).max())))


def test_kto_weighs_good_and_bad_apart(batches):
    """The point is what answers of others to the same questions say, and no gradient flows through it."""
    method, state = begun("kto")
    steps, mask = batches[LoggedEpisodes]
    lesson = lesson_of(method, state, steps, mask)
    loss, metrics = jax.jit(lambda model: method.lost(model, lesson))(state.model)
    ratios, returns = lost_by_hand("kto", method, state.model, state.reference, steps, mask)
    ratios, good = np.array(ratios), returns > 0.5
    point = float(metrics["point"])
    each = np.where(good, 2 / (1 + np.exp(0.7 * (ratios - point))), 1 / (1 + np.exp(-0.7 * (ratios - point))))
    assert float(loss) == pytest.approx(each.mean(), rel=1e-4) and good.any() and not good.all()


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
    update = jax.jit(lambda *given: method.update(*given))
    rng, behind = np.random.default_rng(0), ~np.asarray(mask)
    assert behind.any()

    def other(x):
        drawn = rng.integers(0, 5, x.shape).astype(x.dtype) if x.dtype != bool else rng.uniform(size=x.shape) < 0.5
        return jnp.where(behind.reshape(behind.shape + (1,) * (x.ndim - 2)), drawn, x)

    ends = (steps.view.observation >= 0).sum(axis=-1) + (steps.action >= 0).sum(axis=-1)
    final = steps.next_view.observation
    last = np.asarray(mask & steps.ended)[..., None] & (np.arange(final.shape[-1]) >= ends[..., None])
    spoilt = dataclasses.replace(steps, next_view=View(jnp.where(last & (final >= 0), 3, final)))
    one, *others = [
        update(state, Batch(x, mask, (), jnp.int32(0)), key_of(2)) for x in (steps, jax.tree.map(other, steps), spoilt)
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
    method = with_array_leaves(dataclasses.replace(METHODS["dpo"], renewed=3))
    _, state = begun("dpo")
    (steps, mask), update = batches[Pairs], jax.jit(lambda *given: method.update(*given))
    for index, same in ((2, False), (3, True)):
        new, report = update(state, Batch(steps, mask, (), jnp.int32(index)), key_of(0))
        kept = jax.tree.leaves(state.model if same else state.reference)
        assert all((a == b).all() for a, b in zip(jax.tree.leaves(new.reference), kept, strict=True))
        assert (float(report.metrics["policy_loss"]) == pytest.approx(np.log(2), abs=1e-4)) == same
