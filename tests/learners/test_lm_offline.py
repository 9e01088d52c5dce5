"""Offline language methods (SFT, DPO, KTO): losses and gradients against sums written out, and known optima."""

from __future__ import annotations

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from thespis.core.records import Batch, Transition, View
from thespis.data.feeds import LoggedEpisodes, PreferencePairs
from thespis.envs.text.maze import Maze
from thespis.envs.text.task import TextEnv
from thespis.learners.language.dialogues import Dialogues, single_turn_dialogues
from thespis.learners.language.lm_offline import OfflineBatch
from thespis.learners.language.policy_losses import FixedLength, SequenceMean, TokenMean
from thespis.learners.language.preference_losses import (
    HingeLoss,
    IPOLoss,
    ORPOLoss,
    RegressionLoss,
    SigmoidLoss,
    SimPOLoss,
)
from thespis.methods.language.dpo import DPO
from thespis.methods.language.kto import KTO
from thespis.methods.language.sft import SFT
from thespis.runtime.keys import seed_key
from thespis.training.components import with_array_leaves
from thespis.training.data_sources import demonstration_dataset

ENV = TextEnv(Maze(size=2, max_turns=4, demonstrator_random_cells=1.0))
SMALL = {"model": "blank", "num_layers": 1, "hidden_size": 32, "max_grad_norm": 1e9}
METHODS = {
    "sft": SFT(**SMALL, min_return=0.5),
    "sft over answers": SFT(**SMALL, loss_reduction=SequenceMean()),
    "sft over the budget": SFT(**SMALL, loss_reduction=FixedLength()),
    "dpo": DPO(**SMALL, loss_type=SigmoidLoss(0.3, 0.1), ref_sync_interval=3),
    "ipo": DPO(**SMALL, loss_type=IPOLoss(0.3)),
    "hinge": DPO(**SMALL, loss_type=HingeLoss(2.0)),
    "rebel": DPO(**SMALL, loss_type=RegressionLoss(0.5)),
    "simpo": DPO(**SMALL, loss_type=SimPOLoss(2.0, 0.3)),
    "orpo": DPO(**SMALL, loss_type=ORPOLoss(0.4)),
    "kto": KTO(**SMALL, desirable_weight=2.0, beta=0.7, desirable_threshold=0.5),
}
UPDATE_INDEX = np.array(1, "int32")  # an update without a reference sync


@pytest.fixture(scope="module")
def batches():
    """Whole dialogues of a demonstrator, and preference pairs."""
    steps = demonstration_dataset(ENV, 40).steps
    sources = {kind: kind(batch_size=3).make_sampler(steps) for kind in (LoggedEpisodes, PreferencePairs)}
    samples = jax.jit(lambda key: [source.sample(key) for source in sources.values()])(seed_key(0))
    return dict(zip(sources, samples, strict=True))


@functools.cache
def init_state(has_reference):
    """Initial state of the methods with a reference, or of those without: equal for all of one kind."""
    method = with_array_leaves(METHODS["kto" if has_reference else "sft"])

    def init(key):
        state = method.init(ENV.spec, key)
        moved = jax.tree.map(
            lambda x: 1.3 * x + 0.02 * jnp.sin(jnp.arange(x.size, dtype="float32")).reshape(x.shape), state.model
        )
        return dataclasses.replace(state, model=moved)  # different from the reference

    return jax.jit(init)(seed_key(1))


def init_method(name):
    return with_array_leaves(METHODS[name]), init_state(METHODS[name].uses_reference)


@functools.cache
def update_of(name):
    """The update of a method, compiled once for all tests."""
    method = init_method(name)[0]
    return jax.jit(lambda *args: method.update(*args))


def token_log_prob(model, context, count, token):
    """Log-probability of ``token`` after the first ``count`` tokens."""
    features = model(context, jnp.arange(len(context)))
    return jax.nn.log_softmax(model.logits(features[count - 1]))[token]


@jax.jit
def token_log_probs(model, context, count, token):
    return jax.vmap(token_log_prob, in_axes=(None, 0, 0, 0))(model, context, count, token)


@jax.jit
def model_gradient(model, context, count, token, weights):
    """Gradient by the model, from the gradient ``weights`` of a loss by each log-probability."""
    return jax.grad(lambda m: weights @ token_log_probs(m, context, count, token))(model)


def response_tokens(steps, mask):
    """All response tokens, each with the tokens before it and their number; and the dialogue of each token.

    Contexts are padded with random tokens and rows are repeated, so that all calls have one shape.
    """
    steps, mask = jax.tree.map(np.asarray, (steps, mask))
    padding = np.random.default_rng(0).integers(0, 5, ENV.spec.observation_space.max_length)
    examples, rows = [], []
    for row in range(mask.shape[1]):
        for t in np.flatnonzero(mask[:, row]):
            context = [int(i) for i in steps.view.observation[t, row] if i >= 0]
            for token in (int(i) for i in steps.action[t, row] if i >= 0):
                examples.append((np.array([*context, *padding[len(context) :]], "int32"), len(context), token))
                rows.append(row)
                context.append(token)
    num_repeats = -len(examples) % 64
    context, count, token = zip(*examples, *examples[:1] * num_repeats, strict=True)
    return (np.stack(context), np.array(count, "int32"), np.array(token, "int32")), np.array(rows)


def explicit_log_probs(model, steps, mask):
    """Log-probabilities of the response tokens of each dialogue, each from the tokens before it alone."""
    tokens, rows = response_tokens(steps, mask)
    log_probs = np.asarray(token_log_probs(model, *tokens))[: len(rows)]
    return [log_probs[rows == row] for row in range(mask.shape[1])]


def explicit_loss(name, log_probs, ref_log_probs, rows, returns, budget):
    """Loss from the log-probabilities of all tokens under model and reference; ``rows`` holds their dialogues."""
    membership = np.equal.outer(np.arange(len(returns)), rows).astype("float32")
    if name.startswith("sft"):
        method = METHODS[name]
        selected = membership[returns >= method.min_return]
        match method.loss_reduction:
            case TokenMean():
                return -(selected @ log_probs).sum() / selected.sum()
            case SequenceMean():
                return -(selected @ log_probs / selected.sum(axis=1)).mean()
            case _:
                return -(selected @ log_probs).sum() / budget
    means = membership @ log_probs / membership.sum(axis=1)
    if name == "simpo":
        return -jnp.log(jax.nn.sigmoid(2 * (means[::2] - means[1::2] - 0.3))).mean()
    if name == "orpo":
        odds = jnp.exp(means) / (1 - jnp.exp(means))
        return (-means[::2] - 0.4 * jnp.log(odds[::2] / (odds[::2] + odds[1::2]))).mean()
    ratios = membership @ (log_probs - ref_log_probs)
    if name == "rebel":
        gap = returns[::2] - returns[1::2]
        return ((0.5 * (ratios[::2] - ratios[1::2]) - gap) ** 2).mean()
    loss = {
        "dpo": lambda m: -0.9 * jnp.log(jax.nn.sigmoid(0.3 * m)) - 0.1 * jnp.log(jax.nn.sigmoid(-0.3 * m)),
        "ipo": lambda m: (m - 1 / 0.6) ** 2,
        "hinge": lambda m: jnp.maximum(0.0, 1 - 2 * m),
    }[name]
    return loss(ratios[::2] - ratios[1::2]).mean()


def returns_of(steps, mask):
    return np.where(mask, steps.reward, 0).sum(axis=0)


def make_offline_batch(method, state, steps, mask):
    dialogues = Dialogues.from_transitions(steps, mask)
    ref_log_probs = (
        dialogues.response_log_probs(state.reference, method.sampler)[0]
        if method.uses_reference
        else jnp.zeros(dialogues.response_mask.shape)
    )
    return OfflineBatch(dialogues, ref_log_probs, (), steps, state.dialogue_spec, state.reference, seed_key(5))


def gradient_of(state):
    """The gradient, from Adam's first moment after one step."""
    parts = jax.tree.leaves(state.opt_state, is_leaf=lambda x: hasattr(x, "mu"))
    return jax.tree.map(lambda m: np.asarray(m) / 0.1, next(part.mu for part in parts if hasattr(part, "mu")))


@pytest.mark.parametrize("name", [name for name in METHODS if name != "kto"])
def test_losses_and_gradients_match_explicit_sums(batches, name):
    method, state = init_method(name)
    steps, mask = batches[type(method.feed)]
    new, report = update_of(name)(state, Batch(steps, mask, (), UPDATE_INDEX), seed_key(5))
    tokens, rows = response_tokens(steps, mask)
    log_probs = token_log_probs(state.model, *tokens)
    ref_log_probs = np.asarray(token_log_probs(state.reference, *tokens) if method.uses_reference else log_probs)[
        : len(rows)
    ]
    returns, budget = returns_of(steps, mask), mask.size * steps.action.shape[-1]

    def loss(log_probs):
        return explicit_loss(name, log_probs[: len(rows)], ref_log_probs, rows, returns, budget)

    expected, weights = jax.jit(jax.value_and_grad(loss))(log_probs)
    assert float(report.metrics["policy_loss"]) == pytest.approx(float(expected), rel=1e-4)
    gradient = jax.tree.map(np.asarray, model_gradient(state.model, *tokens, weights))
    for a, b in zip(jax.tree.leaves(gradient_of(new)), jax.tree.leaves(gradient), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-4 * max(1.0, float(np.abs(b).max())))


@pytest.mark.long
def test_kto_weights_good_and_bad_responses(batches):
    """The KTO loss with the reported reference point."""
    _, state = init_method("kto")
    steps, mask = batches[LoggedEpisodes]
    _, report = update_of("kto")(state, Batch(steps, mask, (), UPDATE_INDEX), seed_key(5))
    log_probs = (explicit_log_probs(model, steps, mask) for model in (state.model, state.reference))
    ratios, good = np.array([(x - y).sum() for x, y in zip(*log_probs, strict=True)]), returns_of(steps, mask) > 0.5
    point = float(report.metrics["point"])
    losses = np.where(good, 2 / (1 + np.exp(0.7 * (ratios - point))), 1 / (1 + np.exp(-0.7 * (ratios - point))))
    assert float(report.metrics["policy_loss"]) == pytest.approx(losses.mean(), rel=1e-4)
    assert good.any() and not good.all()


@pytest.mark.slow
def test_kto_reference_point_is_the_kl_of_mismatched_responses():
    """One turn: each prompt with the response of the next row, as in the paper; never negative."""
    method, state = init_method("kto")
    rng, rows = np.random.default_rng(0), 4
    prompts = np.full((1, rows, ENV.spec.observation_space.max_length), -1)
    prompts[:, :, :5] = rng.integers(3, 9, (1, rows, 5))
    responses = rng.integers(0, 9, (1, rows, 2))
    steps = one_turn(prompts, responses, np.ones((1, rows)))
    mask = jnp.ones((1, rows), bool)
    points = []
    for model in (state.model, state.reference):
        metrics = method.compute_loss(
            model, make_offline_batch(method, dataclasses.replace(state, model=model), steps, mask)
        )[1]
        mismatched = dataclasses.replace(steps, action=jnp.roll(steps.action, -1, axis=1))
        log_probs, ref_log_probs = (
            explicit_log_probs(model, mismatched, mask),
            explicit_log_probs(state.reference, mismatched, mask),
        )
        log_ratios = [float((a - b).sum()) for a, b in zip(log_probs, ref_log_probs, strict=True)]
        points.append(float(metrics["point"]))
        assert points[-1] == pytest.approx(max(np.mean(log_ratios), 0.0), abs=1e-3)
    assert points[1] == 0.0


def one_turn(prompts, responses, reward):
    """Dialogues of one turn ``[1, row, ...]`` as transitions."""
    dialogues = single_turn_dialogues(
        jnp.asarray(prompts[0]), jnp.asarray(responses[0]), jnp.ones(prompts.shape[1], bool)
    )
    length = prompts.shape[-1]
    next_view = View(dialogues.transcript[None, :, :length])
    true = jnp.ones(reward.shape, bool)
    return Transition(
        View(jnp.asarray(prompts)), jnp.asarray(responses), jnp.asarray(reward, "float32"), true, ~true, next_view, true
    )


@pytest.mark.parametrize("name", METHODS)
def test_padding_and_the_last_reply_change_nothing(batches, name):
    method, state = init_method(name)
    steps, mask = batches[type(method.feed)]
    steps, mask = jax.tree.map(np.asarray, (steps, mask))
    rng, padding = np.random.default_rng(0), ~mask
    assert padding.any()

    def randomize(x):
        noise = rng.integers(0, 5, x.shape).astype(x.dtype) if x.dtype != bool else rng.uniform(size=x.shape) < 0.5
        return np.where(padding.reshape(padding.shape + (1,) * (x.ndim - 2)), noise, x)

    ends = (steps.view.observation >= 0).sum(axis=-1) + (steps.action >= 0).sum(axis=-1)
    final = steps.next_view.observation
    last = (mask & steps.done)[..., None] & (np.arange(final.shape[-1]) >= ends[..., None])
    changed_reply = dataclasses.replace(
        steps, next_view=View(np.where(last & (final >= 0), 3, final).astype(final.dtype))
    )
    result, *other_results = [
        update_of(name)(state, Batch(x, mask, (), UPDATE_INDEX), seed_key(2))
        for x in (steps, jax.tree.map(randomize, steps), changed_reply)
    ]
    for other_result in other_results:
        for a, b in zip(jax.tree.leaves(result), jax.tree.leaves(other_result), strict=True):
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.slow
def test_dpo_reaches_its_closed_form_optimum():
    """All pairs of four responses, with Bradley-Terry frequencies: the optimum is reference times exp(reward / beta).

    There is one prompt, so the decoder can represent every distribution over the responses.
    """
    beta, rewards = 0.5, np.array([1, 2, 3, 2])
    method = with_array_leaves(DPO(**SMALL, loss_type=SigmoidLoss(beta)))
    state = method.init(ENV.spec, seed_key(3))
    reference = jax.tree.map(lambda x: 2 * x, state.model)
    counts = [
        (w, lo, int(60 * rewards[w] / (rewards[w] + rewards[lo]))) for w, lo in itertools.permutations(range(4), 2)
    ]
    rows = np.array([(w, lo) for w, lo, n in counts for _ in range(n)]).reshape(-1)
    prompts = np.full((1, len(rows), 4), -1)
    prompts[..., 0] = 3
    steps = one_turn(prompts, (4 + rows)[None, :, None], np.ones((1, len(rows))))
    state = dataclasses.replace(state, reference=reference)
    offline_batch = make_offline_batch(method, state, steps, jnp.ones((1, len(rows)), bool))
    leaves, tree = jax.tree.flatten(reference)

    def loss(params):
        return method.compute_loss(jax.tree.unflatten(tree, params), offline_batch)[0]

    solver = optax.adam(optax.cosine_decay_schedule(2e-2, 250))

    def step(carry, _):
        params, opt = carry
        updates, opt = solver.update(jax.grad(loss)(params), opt)
        return (optax.apply_updates(params, updates), opt), None

    (params, _), _ = jax.jit(lambda x: jax.lax.scan(step, (x, solver.init(x)), None, 250))(leaves)

    def response_log_probs(model):
        return jax.nn.log_softmax(model.logits(model(jnp.array([3]), jnp.array([0]))[0]))[4:8]

    probs = jax.nn.softmax(response_log_probs(jax.tree.unflatten(tree, params)))
    np.testing.assert_allclose(probs, jax.nn.softmax(response_log_probs(reference) + np.log(rewards) / beta), atol=2e-3)


def test_reference_is_synced_when_due(batches):
    _, state = init_method("dpo")
    steps, mask = batches[PreferencePairs]
    for index, is_synced in ((2, False), (3, True)):
        new, report = update_of("dpo")(state, Batch(steps, mask, (), np.array(index, "int32")), seed_key(0))
        expected = jax.tree.leaves(state.model if is_synced else state.reference)
        assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(new.reference), expected, strict=True))
        assert (float(report.metrics["policy_loss"]) == pytest.approx(np.log(2), abs=1e-4)) == is_synced
