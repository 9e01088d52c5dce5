"""OPPO: its losses by their formulas, which loss moves what, the best context by search, and the logged data."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.contracts import Mode
from thespis.core.records import View
from thespis.data.feeds import Rollouts
from thespis.learners.optim.optimizers import AdamW, gradient_step
from thespis.papers.cpl.method import PIQLTables, SegmentCPL, SegmentPIQL
from thespis.papers.oppo.losses import triplet_margin_loss, unit_length_penalty
from thespis.papers.oppo.method import OPPO, ContextOptimizer, ReturnConditionedImitation, SegmentIQL
from thespis.papers.oppo.mixed_quality import MixedQualitySegments, random_action_probs, simulate_pairs
from thespis.papers.regret_preference_model.envs import DeliveryGrid

GRID = DeliveryGrid(size=4, num_cells=(1, 1, 1, 1, 1), seed=2)
TABLES = GRID.tables
METHOD = OPPO(context_size=3, hidden_sizes=(8, 8), feed=Rollouts(num_steps=6, num_envs=32))
PARAMS = METHOD.init_params(TABLES, jax.random.key(0))


def labelled_pairs(seed=1, num_pairs=16):
    pairs = simulate_pairs(TABLES, 0.25, num_pairs, 6, jax.random.key(seed))
    return pairs.with_labels(pairs.sum_of(TABLES.rewards), 1.0, jax.random.key(seed + 1))


PAIRS = labelled_pairs()


def layer(x, linear):
    return x @ np.asarray(linear.weight, "float64") + np.asarray(linear.bias, "float64")


def perceptron(x, body):
    for linear in body.layers:
        x = np.maximum(layer(x, linear), 0)
    return x


def embed(params, states, actions, mask):
    """The context of one segment, step by step in NumPy."""
    total, num_steps = 0.0, len(actions)
    for t in range(num_steps):
        if mask[t]:
            step = np.concatenate([np.eye(16)[states[t]], np.eye(4)[actions[t]], np.eye(num_steps)[t]])
            total = total + perceptron(step, params.encoder.steps)
    return layer(perceptron(total / num_steps, params.encoder.body), params.encoder.head)


def log_prob(policy, state, action, context):
    logits = layer(perceptron(np.concatenate([np.eye(16)[state], context]), policy.body), policy.head)
    return logits[action] - np.log(np.sum(np.exp(logits)))


def test_triplet_loss_by_its_formula():
    rng = np.random.default_rng(0)
    anchor, positive, negative = rng.normal(size=4), rng.normal(size=(50, 4)), 0.5 * rng.normal(size=(50, 4))
    loss = triplet_margin_loss(jnp.asarray(anchor), jnp.asarray(positive), jnp.asarray(negative), 0.7)
    for i in range(50):
        near, far = (sum((anchor[k] - x[i, k]) ** 2 for k in range(4)) ** 0.5 for x in (positive, negative))
        np.testing.assert_allclose(loss[i], max(0.0, 0.7 + near - far), atol=1e-5)
    assert 0 < int((loss == 0).sum()) < 50
    vector = jnp.asarray([[3.0, 4.0], [0.0, 0.0]])
    np.testing.assert_allclose(unit_length_penalty(vector), [16, 1], rtol=1e-4)
    assert np.isfinite(jax.grad(lambda x: unit_length_penalty(x).sum())(vector)).all()


def test_loss_by_its_formula_step_by_step():
    states, actions, mask = (np.asarray(x) for x in (PAIRS.states, PAIRS.actions, PAIRS.mask))
    assert 0.3 < mask.mean() < 0.95
    imitation, triplets, lengths = [], [], []
    context = np.asarray(PARAMS.context, "float64")
    for i in range(len(states)):
        z = [embed(PARAMS, states[i, k], actions[i, k], mask[i, k]) for k in range(2)]
        for k, t in itertools.product(range(2), range(6)):
            if mask[i, k, t]:
                imitation.append(-log_prob(PARAMS.policy, states[i, k, t], actions[i, k, t], z[k]))
        best = 0 if PAIRS.label[i] == 1 else 1
        distance = [np.linalg.norm(context - x) for x in z]
        triplets.append(max(0.0, distance[best] - distance[1 - best] + METHOD.margin))
        lengths += [(np.linalg.norm(x) - 1) ** 2 for x in z]
    method = dataclasses.replace(METHOD, preference_weight=0.3, length_weight=0.2)
    expected = np.mean(imitation) + 1.3 * np.mean(triplets) + 0.2 * np.mean(lengths)
    np.testing.assert_allclose(method.loss(PARAMS, PAIRS, TABLES, 0), expected, rtol=1e-4)


def test_each_part_learns_from_its_own_losses():
    gradient = jax.jit(
        jax.grad(
            lambda params, weight: dataclasses.replace(METHOD, preference_weight=weight, length_weight=0.0).loss(
                params, PAIRS, TABLES, 0
            )
        )
    )
    without, with_preferences = gradient(PARAMS, 0.0), gradient(PARAMS, 1.0)
    np.testing.assert_allclose(without.context, with_preferences.context, rtol=1e-5)
    for a, b in zip(*map(jax.tree.leaves, (without.policy, with_preferences.policy)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    assert any(
        np.abs(a - b).max() > 1e-3
        for a, b in zip(*map(jax.tree.leaves, (without.encoder, with_preferences.encoder)), strict=True)
    )
    assert np.abs(without.context).max() > 1e-3


def test_the_learned_context_is_as_good_as_the_best_of_a_grid():
    """Three pairs of embeddings in two dimensions, whose triplet loss is searched through."""
    positive, negative = jnp.array([[1.0, 0.2], [0.3, 0.8], [0.9, -0.4]]), jnp.array([[-1.0, 0], [0.5, -0.6], [0.4, 1]])

    def mean_loss(context):
        return jnp.mean(triplet_margin_loss(context, positive, negative))

    axis = jnp.linspace(-6, 6, 241)
    best = jax.jit(jax.vmap(jax.vmap(mean_loss)))(jnp.stack(jnp.meshgrid(axis, axis), axis=-1)).min()

    @jax.jit
    def fitted():
        """From several starts, as the loss has more than one valley."""
        step = lambda z, t: (z - 0.3 / jnp.sqrt(t + 1.0) * jax.vmap(jax.grad(mean_loss))(z), None)  # noqa: E731
        starts = 2.0 * jax.random.normal(jax.random.key(0), (16, 2))
        return jax.vmap(mean_loss)(jax.lax.scan(step, starts, jnp.arange(5_000))[0]).min()

    np.testing.assert_allclose(fitted(), best, atol=0.02)


def test_steps_after_the_end_do_not_matter_and_the_order_of_steps_does():
    changed = dataclasses.replace(PAIRS, actions=jnp.where(PAIRS.mask, PAIRS.actions, 3 - PAIRS.actions))
    assert (changed.actions != PAIRS.actions).any()
    np.testing.assert_array_equal(PARAMS.embed(changed), PARAMS.embed(PAIRS))
    backwards = dataclasses.replace(PAIRS, actions=PAIRS.actions[..., ::-1])
    assert np.abs(PARAMS.embed(backwards) - PARAMS.embed(PAIRS)).max() > 1e-3


def test_the_context_has_an_optimizer_of_its_own():
    loss = lambda p: (100.0 * METHOD.loss(p, PAIRS, TABLES, 0), ())  # noqa: E731
    optimizer = ContextOptimizer(1e-3, 0.05)
    params = gradient_step(optimizer, loss, PARAMS, optimizer.init(PARAMS))[0]
    alone = AdamW(0.05, 1e-4)
    with_context = lambda c: dataclasses.replace(PARAMS, context=c)  # noqa: E731
    context = gradient_step(alone, lambda c: loss(with_context(c)), PARAMS.context, alone.init(PARAMS.context))[0]
    np.testing.assert_allclose(params.context, context, rtol=1e-6)
    moved = np.abs(params.policy.head.weight - PARAMS.policy.head.weight)
    assert 0 < moved.max() < 1.1e-3


def test_actions_are_those_of_the_policy_given_the_optimal_context():
    logits = METHOD.policy_logits(PARAMS, TABLES)
    for state, action in itertools.product((0, 7), range(4)):
        expected = log_prob(PARAMS.policy, state, action, np.asarray(PARAMS.context, "float64"))
        np.testing.assert_allclose(jax.nn.log_softmax(logits[state])[action], expected, atol=1e-4)


def test_imitation_given_the_return_by_its_formula():
    method = ReturnConditionedImitation(hidden_sizes=(8, 8), target_return=30.0)
    policy = method.init_params(TABLES, jax.random.key(3))
    rewards, values = np.asarray(TABLES.rewards), []
    for states, actions, mask in zip(
        *(np.asarray(x).reshape(32, -1) for x in (PAIRS.states, PAIRS.actions, PAIRS.mask)), strict=True
    ):
        steps = [(states[t], actions[t]) for t in range(6) if mask[t]]
        total = sum(rewards[step] for step in steps)
        values += [-log_prob(policy, *step, np.array([total / 50])) for step in steps]
    np.testing.assert_allclose(method.loss(policy, PAIRS, TABLES, 0), np.mean(values), rtol=1e-4)
    expected = log_prob(policy, 5, 2, np.array([0.6]))
    np.testing.assert_allclose(jax.nn.log_softmax(method.policy_logits(policy, TABLES)[5])[2], expected, atol=1e-4)


def test_q_learning_with_true_rewards_is_that_of_learned_rewards_which_are_right():
    known, learned = SegmentIQL(reward_scale=0.5, expectile=0.8), SegmentPIQL(expectile=0.8)
    keys = jax.random.split(jax.random.key(4), 3)
    tables = [jax.random.normal(key, TABLES.rewards.shape) for key in keys]
    params = PIQLTables(0.5 * TABLES.rewards, jnp.zeros(()), tables[0], tables[1][:, 0], tables[2])
    wrong = dataclasses.replace(params, rewards=tables[2])
    a, b = (
        jax.grad(lambda p: known.loss(p, PAIRS, TABLES, 0))(wrong),
        jax.grad(lambda p: learned.loss(p, PAIRS, TABLES, 0))(params),
    )
    for name in ("q_values", "values", "logits"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), atol=1e-5)
    assert not np.asarray(a.rewards).any()


def preference_margin(learner, params):
    scores = learner.segment_scores(params, PAIRS, TABLES)
    return scores[:, 0] - scores[:, 1]


def test_margins_of_preferences_are_differences_of_returns_or_of_distances():
    zeros = jnp.zeros(TABLES.rewards.shape)
    params = PIQLTables(TABLES.rewards, jnp.asarray(0.5), zeros, zeros[:, 0], zeros)
    states, actions, mask = (np.asarray(x) for x in (PAIRS.states, PAIRS.actions, PAIRS.mask))
    for i in range(len(mask)):
        scores = [
            sum(float(TABLES.rewards[states[i, k, t], actions[i, k, t]]) if mask[i, k, t] else 0.5 for t in range(6))
            for k in range(2)
        ]
        np.testing.assert_allclose(preference_margin(SegmentPIQL(), params)[i], scores[0] - scores[1], atol=1e-3)
    logits, log_probs = jax.random.normal(jax.random.key(5), TABLES.rewards.shape), []
    for k in range(2):
        steps = [np.asarray(logits)[states[0, k, t]] for t in range(6)]
        chosen = [x[actions[0, k, t]] - np.log(np.exp(x).sum()) for t, x in enumerate(steps)]
        log_probs.append(sum(x for t, x in enumerate(chosen) if mask[0, k, t]))
    margin = preference_margin(SegmentCPL(), logits)[0]
    np.testing.assert_allclose(margin, log_probs[0] - log_probs[1], atol=1e-4)
    z = [embed(PARAMS, states[0, k], actions[0, k], mask[0, k]) - np.asarray(PARAMS.context) for k in range(2)]
    expected = np.linalg.norm(z[1]) - np.linalg.norm(z[0])
    np.testing.assert_allclose(preference_margin(METHOD, PARAMS)[0], expected, atol=1e-4)


def test_behavior_policies_are_random_as_often_as_they_should_be():
    """Frequencies of the actions in one cell, of the method's rows and of simulated segments."""
    method = MixedQualitySegments(METHOD, 0.4)
    probs = random_action_probs(32, 0.4)
    assert 0.4 < probs.min() < 0.43 and 0.97 < probs.max() < 1 and abs(float(probs.mean()) - 0.7) < 1e-3
    state = method.init(GRID.spec, jax.random.key(0))
    policy = method.policy(state, Mode.EXPLORE)
    cell = int(np.flatnonzero(TABLES.is_start)[0])
    view = View(jnp.broadcast_to(jax.nn.one_hot(cell, 16), (32, 16)))
    act = jax.jit(jax.vmap(lambda key: method.act(policy, (), view, key)[0]))
    actions = np.asarray(act(jax.random.split(jax.random.key(1), 4_000)))
    best = int(np.argmax(policy.logits[cell]))
    np.testing.assert_allclose((actions == best).mean(axis=0), 1 - 0.75 * np.asarray(probs), atol=0.035)
    pairs = simulate_pairs(TABLES, 0.4, 4_000, 6, jax.random.key(2))
    first = np.asarray(pairs.states[..., 0]) == cell
    assert (np.asarray(pairs.actions)[..., 0][first] == best).mean() == pytest.approx(1 - 0.75 * 0.7, abs=0.04)


def test_simulated_segments_follow_the_grid_until_their_episode_ends():
    states, actions, mask = (np.asarray(x) for x in (PAIRS.states, PAIRS.actions, PAIRS.mask))
    next_state, terminal = np.asarray(TABLES.next_state), np.asarray(TABLES.is_terminal)
    np.testing.assert_array_equal(mask, ~terminal[states[..., :-1]])
    np.testing.assert_array_equal(states[..., 1:][mask], next_state[states[..., :-1], actions][mask])
    np.testing.assert_array_equal(PAIRS.ends, terminal[states[..., -1]])
    assert np.asarray(TABLES.is_start)[states[..., 0]].all()
