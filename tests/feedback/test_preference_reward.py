"""Rewards from preferences: formulas by hand, a teacher's frequencies, traceable comparisons, laws, loops, recovery."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from method_cases import CASES
from small_envs import Crew, HostEnvAdapter

from thespis.core.errors import UserError
from thespis.core.laws.assertions import assert_same_bits, to_numpy
from thespis.core.laws.components import check_feedback
from thespis.core.laws.random_samples import first_episode_mask, random_transitions
from thespis.core.records import Batch, EnvSpec
from thespis.core.spaces import Box, Discrete
from thespis.curricula.fixed import FixedCurriculum
from thespis.data.feeds import Replay
from thespis.feedback.preference_queries import (
    DisagreementQueries,
    Queries,
    Segments,
    SyntheticTeacher,
    UniformQueries,
    candidate_pairs,
    round_robin,
)
from thespis.feedback.preference_reward import PreferenceReward, masked_correlation
from thespis.methods.online.sac import SAC
from thespis.objectives.preferences import bradley_terry_loss
from thespis.runs import checkpoint
from thespis.runs.config import from_config, to_config
from thespis.training.compiled_loop import CompiledLoop
from thespis.training.components import Components
from thespis.training.host_loop import HostLoop
from thespis.training.policy_lag import FixedLag
from thespis.training.run_config import make_feedback

KEY = jax.random.key(0)
SPEC = EnvSpec("made", Box((3,)), Box((2,), -1.0, 1.0))
SMALL = PreferenceReward(
    max_comparisons=7,
    queries_per_round=3,
    query_interval=2,
    segment_length=4,
    num_segments=6,
    num_candidates=9,
    num_networks=2,
    hidden_sizes=(5,),
    has_tanh=True,
    num_gradient_steps=3,
    batch_size=4,
)


def random_batch(spec, time, rows, seed, index=0):
    steps = jax.device_put(random_transitions(spec, np.random.default_rng(seed), time, rows))
    return Batch(steps, jnp.asarray(first_episode_mask(steps.done)), (), jnp.int32(index))


def own_batch_of(feedback, seed, index=0, spec=SPEC):
    return random_batch(spec, *feedback.feed.batch_shape, seed, index)


def run_updates(feedback, count, spec=SPEC, state=None, start=0):
    """The states after each of ``count`` updates, each on other random batches."""
    state = jax.jit(lambda key: feedback.init(spec, key))(KEY) if state is None else state
    update, states = jax.jit(feedback.update), []
    for i in range(start, start + count):
        batch, own = random_batch(spec, 1, 8, 100 + i, i), own_batch_of(feedback, i, i, spec)
        state, report = update(state, batch, own, jax.random.fold_in(KEY, i))
        states.append((state, report))
    return states


def test_loss_and_its_gradient_are_those_of_bradley_and_terry():
    """Forward pass, cross-entropy, and the gradients of the last layer, all by hand in numpy."""
    feedback = dataclasses.replace(SMALL, num_networks=1)
    state = feedback.init(SPEC, KEY)
    rng = np.random.default_rng(3)
    observation, action = rng.normal(size=(6, 2, 4, 3)), rng.uniform(-1, 1, size=(6, 2, 4, 2))
    mask, label = rng.uniform(size=(6, 2, 4)) < 0.7, np.array([0, 1, 0.5, 1, 0, 0.25])
    network = jax.tree.map(lambda x: x[0], state.model.networks)
    segments = Segments(jnp.asarray(observation, "float32"), jnp.asarray(action, "float32"), jnp.asarray(mask))

    @jax.jit
    @jax.value_and_grad
    def loss(network):
        sums = feedback._network_sums(network, state.model.obs_moments, segments)
        return jnp.mean(bradley_terry_loss(sums[:, 0] - sums[:, 1], jnp.asarray(label, "float32")))

    value, gradient = loss(network)
    layer, out = network.mlp.layers[0], network.out
    inputs = np.concatenate([observation / np.sqrt(1 + 1e-8), action, np.zeros((6, 2, 4, 1))], axis=-1)
    hidden = np.maximum(inputs @ np.asarray(layer.weight) + np.asarray(layer.bias), 0)
    rewards = np.tanh(hidden @ np.asarray(out.weight)[:, 0] + np.asarray(out.bias))
    returns = np.sum(rewards * mask, axis=-1)
    probability = 1 / (1 + np.exp(returns[:, 1] - returns[:, 0]))
    expected = -np.mean(label * np.log(probability) + (1 - label) * np.log(1 - probability))
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    slope = (1 - rewards**2) * mask * (probability - label)[:, None, None] * np.array([1, -1])[None, :, None] / 6
    np.testing.assert_allclose(gradient.out.bias[0], slope.sum(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(gradient.out.weight[:, 0], np.einsum("pst,psth->h", slope, hidden), rtol=1e-4, atol=1e-6)


def queries_of(returns):
    """Queries whose segments ``[pair, 2]`` have these sums of rewards, in two steps; a masked third does not count."""
    returns = np.asarray(returns, "float32")
    reward = np.stack([returns - 1, np.ones_like(returns), np.full_like(returns, 1e6)], axis=-1)
    mask = np.broadcast_to([True, True, False], reward.shape)
    return Queries(Segments(jnp.zeros(reward.shape), jnp.zeros(reward.shape), jnp.asarray(mask)), jnp.asarray(reward))


@pytest.mark.parametrize(("beta", "error_prob"), [(1.0, 0.0), (0.3, 0.2), (math.inf, 0.1), (0.0, 0.0)])
def test_labels_occur_as_often_as_the_formula_says(beta, error_prob):
    margins, count = np.array([-3.0, -0.5, 0.25, 1.0, 4.0]), 4_000
    returns = np.repeat(np.stack([margins, np.zeros(5)], axis=1), count, axis=0)
    teacher = SyntheticTeacher(beta=beta, error_prob=error_prob)
    answers = jax.jit(teacher.answer)(queries_of(returns), KEY)
    label = np.asarray(answers.label).reshape(5, count)
    assert np.isin(label, [0, 1]).all() and answers.is_labelled.all()
    right = (margins > 0).astype(float) if math.isinf(beta) else 1 / (1 + np.exp(-beta * margins))
    expected = right * (1 - error_prob) + (1 - right) * error_prob
    for observed, p in zip(label.sum(axis=1), expected, strict=True):
        assert scipy.stats.chisquare([observed, count - observed], [p * count, (1 - p) * count]).pvalue > 1e-3, p
        other = min(p + 0.05, 0.999) if p < 0.5 else p - 0.05  # the test is sharp enough to tell 5% apart
        assert scipy.stats.chisquare([observed, count - observed], [other * count, (1 - other) * count]).pvalue < 1e-3


def test_equal_and_skipped_queries():
    returns = [(5.0, 1.0), (1.0, 5.0), (2.0, 2.5), (3.0, 3.0), (-4.0, -9.0), (-4.0, 3.0)]
    teacher = SyntheticTeacher()
    np.testing.assert_array_equal(teacher.answer(queries_of(returns), KEY).label, [1, 0, 0, 0.5, 1, 0])
    teacher = SyntheticTeacher(error_prob=1.0, equal_threshold=0.75, skip_threshold=-1.0)
    answers = teacher.answer(queries_of(returns), KEY)
    np.testing.assert_array_equal(answers.label, [0, 1, 0.5, 0.5, 0, 1])  # a mistake turns no tie round
    np.testing.assert_array_equal(answers.is_labelled, [True, True, True, True, False, True])


@pytest.mark.parametrize("count", [2, 5, 8])
def test_candidates_are_all_pairs_once(count):
    total = count * (count - 1) // 2
    for pairs in (round_robin(count), np.asarray(candidate_pairs(count, total, KEY))):
        assert {frozenset(pair) for pair in pairs.tolist()} == {
            frozenset((i, j)) for i in range(count) for j in range(i)
        }
        assert len(pairs) == total
    assert len(set(np.ravel(candidate_pairs(8, 4, KEY)).tolist())) == 8  # a round has every segment once


@pytest.mark.long
def test_disagreement_equals_brute_force_over_all_pairs():
    """The stored comparisons of a round are the pairs with the largest spread of the networks' probabilities."""
    feedback = dataclasses.replace(SMALL, num_candidates=15, num_networks=3)
    state, own = feedback.init(SPEC, KEY), own_batch_of(SMALL, 5)
    sums = np.zeros((3, 6))
    rewards = jax.vmap(
        lambda net: feedback._rewards(net, state.model.obs_moments, own.steps.view.observation, own.steps.action, 2)
    )
    for member, values in enumerate(np.asarray(rewards(state.model.networks))):
        for row in range(6):
            sums[member, row] = sum(values[t, row] for t in range(4) if own.mask[t, row])
    spread = {frozenset((i, j)): np.std(1 / (1 + np.exp(sums[:, j] - sums[:, i]))) for i in range(6) for j in range(i)}
    best = sorted(spread, key=spread.__getitem__)[-3:]
    after, _ = jax.jit(feedback.update)(state, random_batch(SPEC, 1, 8, 0), own, KEY)
    first = np.asarray(own.steps.view.observation)[0]
    chosen = [
        frozenset(int(np.flatnonzero((first == observation[0]).all(axis=1))[0]) for observation in pair)
        for pair in np.asarray(after.comparisons.segments.observation)[:3]
    ]
    assert set(chosen) == set(best) and len(set(chosen)) == 3


def test_uniform_queries_are_different_and_all_occur():
    picked = jax.vmap(lambda key: UniformQueries().select(jnp.zeros((2, 6)), 3, key))(jax.random.split(KEY, 600))
    assert all(len(set(row)) == 3 for row in np.asarray(picked).tolist())
    assert scipy.stats.chisquare(np.bincount(np.ravel(picked), minlength=6)).pvalue > 1e-3
    assert (
        np.asarray(DisagreementQueries().select(jnp.array([[0.1, 0.5, 0.9], [0.1, 0.8, 0.8]]), 2, KEY)) == [1, 2]
    ).all()


def test_the_budget_is_kept_and_only_rounds_change_anything():
    states = run_updates(SMALL, 9)
    asked = [int(state.comparisons.num_asked) for state, _ in states]
    assert asked == [3, 3, 6, 6, 7, 7, 7, 7, 7]
    assert [float(report.metrics["comparisons"]) for _, report in states] == asked
    for i in (1, 3, 5, 6, 7, 8):
        assert_same_bits(states[i][0], states[i - 1][0], "between rounds")
    networks = [to_numpy(states[i][0].model.networks) for i in (0, 2, 4)]
    assert all(
        not np.array_equal(a, b) for x, y in itertools.pairwise(networks) for a, b in [(x.out.weight, y.out.weight)]
    )
    members = np.asarray(states[-1][0].model.networks.out.weight)
    assert not np.array_equal(members[0], members[1])


@pytest.mark.long
def test_skipped_queries_are_asked_but_not_stored():
    everything = dataclasses.replace(SMALL, labeller=SyntheticTeacher(skip_threshold=1e6))
    own = own_batch_of(SMALL, 0)
    returns = np.sort(np.where(own.mask, own.steps.reward, 0).sum(axis=0))
    teacher = SyntheticTeacher(skip_threshold=float(returns[3:5].mean()))  # two of six segments are good enough
    feedback = dataclasses.replace(SMALL, queries_per_round=9, max_comparisons=9, labeller=teacher)
    (state, report), *_ = run_updates(feedback, 1)
    stored = int(state.comparisons.num_stored)  # each segment is in three pairs
    assert int(state.comparisons.num_asked) == 9 and stored in (5, 6)
    assert (
        np.isin(state.comparisons.label[:stored], [0, 1]).all() and not state.comparisons.segments.mask[stored:].any()
    )
    fresh = everything.init(SPEC, KEY)
    (state, report), *_ = run_updates(everything, 1, state=fresh)
    assert int(state.comparisons.num_stored) == 0 and all(np.isfinite(x) for x in report.metrics.values())
    assert_same_bits(state.model, fresh.model, "nothing is learned from no answers")


@pytest.mark.long
def test_the_method_does_not_see_the_reward_of_the_environment():
    state = run_updates(SMALL, 3)[-1][0]
    batch = random_batch(SPEC, 3, 5, 0, index=4)
    other = dataclasses.replace(batch, steps=dataclasses.replace(batch.steps, reward=-7.0 * batch.steps.reward))
    assert_same_bits(SMALL.score(state, batch, KEY), SMALL.score(state, other, KEY), "score")
    own = own_batch_of(SMALL, 1, 4)
    (first, report), (second, other_report) = (SMALL.update(state, b, own, KEY) for b in (batch, other))
    assert_same_bits(first, second, "the method's batch teaches nothing")
    name = "reward_correlation"
    np.testing.assert_allclose(report.metrics[name], -other_report.metrics[name], rtol=1e-4)


def test_correlation_is_that_of_numpy_over_the_mask():
    rng = np.random.default_rng(0)
    x, y, mask = rng.normal(size=(3, 4)), rng.normal(size=(3, 4)), rng.uniform(size=(3, 4)) < 0.6
    expected = np.corrcoef(x[mask], y[mask])[0, 1]
    arrays = jnp.asarray(x, "float32"), jnp.asarray(y, "float32"), jnp.asarray(mask)
    np.testing.assert_allclose(masked_correlation(*arrays), expected, rtol=1e-5)
    assert masked_correlation(jnp.ones((2, 2)), jnp.ones((2, 2)), jnp.ones((2, 2), bool)) == 0


@pytest.mark.parametrize("centering", [False, True])
def test_scaled_rewards_have_a_mean_square_of_1_over_the_stored_segments(centering):
    feedback = dataclasses.replace(SMALL, centering=centering)
    state = run_updates(feedback, 3)[-1][0]
    segments, count = state.comparisons.segments, int(state.comparisons.num_stored)
    rows = jax.tree.map(lambda x: x[:count].reshape(-1, 1, *x.shape[3:]), segments)
    steps = random_batch(SPEC, rows.mask.shape[0], 1, 0).steps
    steps = dataclasses.replace(
        steps, view=dataclasses.replace(steps.view, observation=rows.observation), action=rows.action
    )
    rewards = np.asarray(feedback.score(state, Batch(steps, rows.mask, (), jnp.int32(0)), KEY).total)[rows.mask]
    assert 5 < rewards.size < count * 8  # some of the steps are masked
    np.testing.assert_allclose(np.mean(rewards**2), 1, rtol=0.02)
    assert (abs(np.mean(rewards)) < 1e-4) == centering


@pytest.mark.long
def test_running_scale_follows_the_batches_since_the_last_round():
    feedback = dataclasses.replace(SMALL, reward_scaling="running", query_interval=4)
    state = run_updates(feedback, 3)[-1][0]
    rewards = [
        np.ravel(feedback.mean_rewards(state.model, b.steps.view.observation, b.steps.action))
        for b in (random_batch(SPEC, 1, 8, 100 + i) for i in range(3))
    ]
    np.testing.assert_allclose(state.model.reward_moments.mean, np.mean(rewards), rtol=1e-3)
    plain = dataclasses.replace(feedback, reward_scaling="none")
    batch = random_batch(SPEC, 3, 5, 0)
    np.testing.assert_allclose(
        feedback.score(state, batch, KEY).total * np.sqrt(np.mean(np.square(rewards))),
        plain.score(state, batch, KEY).total,
        rtol=1e-3,
    )


LAWS = {
    "buffer": (SMALL, SPEC),
    "running": (
        dataclasses.replace(
            SMALL, reward_scaling="running", centering=True, selection=UniformQueries(), has_tanh=False
        ),
        dataclasses.replace(SPEC, action_space=Discrete(3)),
    ),
    "none": (dataclasses.replace(SMALL, labeller=SyntheticTeacher(1.0, 0.1, 0.5, 0.0), reward_scaling="none"), SPEC),
}


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [name if name == "buffer" else pytest.param(name, marks=pytest.mark.slow) for name in LAWS]
)
def test_laws(name):
    check_feedback(*LAWS[name])


def test_a_program_of_several_seeds_branches_on_the_round():
    """With the same number of updates in all seeds, the round stays a branch: other updates do not pay for it."""
    batches = random_batch(SPEC, 1, 8, 0), own_batch_of(SMALL, 1)
    data = SMALL.init(SPEC, KEY), *((batch.steps, batch.mask) for batch in batches)

    def update(index, state, *data):
        return SMALL.update(state, *(Batch(*parts, (), index) for parts in data), KEY)

    doubled = jax.tree.map(lambda x: jnp.stack([x, x]), data)
    branches = [
        [equation.primitive.name for equation in program.eqns].count("cond")
        for program in (
            jax.make_jaxpr(jax.vmap(update, in_axes=(None, 0, 0, 0)))(jnp.int32(0), *doubled),
            jax.make_jaxpr(jax.vmap(update))(jnp.zeros(2, "int32"), *doubled),
        )
    ]
    assert branches == [2, 0]


UPDATE = jax.jit(lambda feedback, *args: feedback.update(*args))


def recover(feedback, seed):
    """The correlation of predicted with true rewards on new steps, after learning from random segments."""
    weights = np.random.default_rng(seed).normal(size=5)
    spec = dataclasses.replace(SPEC, action_space=Box((2,), -1.0, 1.0))

    def with_linear_reward(batch):
        inputs = jnp.concatenate([batch.steps.view.observation, batch.steps.action], axis=-1)
        reward = inputs @ jnp.asarray(weights, "float32")
        return dataclasses.replace(
            batch, mask=jnp.ones_like(batch.mask), steps=dataclasses.replace(batch.steps, reward=reward)
        )

    state = jax.jit(lambda key: feedback.init(spec, key))(jax.random.key(seed))
    for i in range(feedback.num_rounds):
        own = with_linear_reward(own_batch_of(feedback, 50 * seed + i, i))
        test = with_linear_reward(random_batch(spec, 1, 500, 10_000 + seed, i))
        state, report = UPDATE(feedback, state, test, own, jax.random.fold_in(KEY, i))
    assert int(state.comparisons.num_asked) == feedback.max_comparisons
    return float(report.metrics["reward_correlation"]), float(report.metrics["accuracy"])


@pytest.mark.slow
@pytest.mark.parametrize("selection", [DisagreementQueries(), UniformQueries()])
def test_a_linear_reward_is_recovered_from_500_comparisons(selection):
    feedback = PreferenceReward(
        max_comparisons=500,
        query_interval=1,
        segment_length=10,
        selection=selection,
        hidden_sizes=(32,),
        num_networks=2,
    )
    correlation, accuracy = recover(feedback, 1)
    assert correlation > 0.95 and accuracy > 0.9
    wrong = dataclasses.replace(feedback, labeller=SyntheticTeacher(error_prob=1.0))
    assert recover(wrong, 1)[0] < -0.95  # it is the answers that teach


ENVS, SEEDS = 3, [0, 4]
OWN = Replay(buffer_size=60, batch_size=8, learning_starts=9, update_interval=2, num_updates=2, num_envs=ENVS)
METHODS = {
    "sac": lambda: SAC(hidden_sizes=(4,), feed=OWN),
    "ppo": lambda: dataclasses.replace(CASES["ppo"].method, hidden_sizes=(4,)),
}


@functools.cache
def make_loop(kind, name, feedback, env=None):
    """A loop of a kind, whose programs several tests run."""
    parts, env = Components(METHODS[name](), feedback, FixedCurriculum()), env or CASES[name].env
    if kind == "compiled":
        return CompiledLoop(parts, env, ENVS, SEEDS, 1_000)
    return HostLoop(parts, HostEnvAdapter(env, ENVS, SEEDS), ENVS, SEEDS, 1_000, FixedLag(0))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sac", "ppo"])
def test_both_loops_agree_and_resume_exactly(name, tmp_path):
    feedback = dataclasses.replace(SMALL, query_interval=2 if name == "sac" else 1, max_comparisons=20)
    compiled, host = (make_loop(kind, name, feedback) for kind in ("compiled", "host"))
    end, other = compiled.advance(compiled.init(), 15), host.advance(host.init(), 15)
    ours, theirs = compiled.learner_state(end), host.learner_state(other)
    assert_same_bits((ours.method, ours.feedback), (theirs.method, theirs.feedback), "both loops")
    assert (np.asarray(ours.feedback.comparisons.num_asked) == 20).all()
    half = compiled.advance(compiled.init(), 5)
    checkpoint.save(tmp_path / "a.ckpt", compiled.snapshot(half), {})
    restored, _ = compiled.restore(checkpoint.load(tmp_path / "a.ckpt", compiled.checkpoint_template())[0])
    assert_same_bits(compiled.learner_state(compiled.advance(restored, 10)), ours, "resumed")


@pytest.mark.slow
def test_every_comparison_is_a_pair_of_stored_segments_with_the_right_label():
    """In a run, each comparison is traced back to consecutive transitions of one environment, and compared again."""
    loop = make_loop("compiled", "sac", dataclasses.replace(SMALL, max_comparisons=20))
    learner = to_numpy(loop.advance(loop.init(), 15).learner)
    for seed in range(len(SEEDS)):
        comparisons, stored = jax.tree.map(
            lambda x, i=seed: x[i], (learner.feedback.comparisons, learner.feedback_store)
        )
        where = {
            observation.tobytes(): (row, env)
            for row, of_row in enumerate(stored.steps.view.observation)
            for env, observation in enumerate(of_row)
        }
        assert comparisons.num_asked == comparisons.num_stored == 20
        decided = 0
        for pair in range(20):
            segments, returns = jax.tree.map(lambda x, i=pair: x[i], comparisons.segments), []
            for side in range(2):
                places = [where[observation.tobytes()] for observation in segments.observation[side]]
                row, env = places[0]
                assert places == [(row + t, env) for t in range(4)]
                steps = jax.tree.map(lambda x, r=row, e=env: x[r : r + 4, e], stored.steps)
                np.testing.assert_array_equal(segments.action[side], steps.action)
                length = next((t + 1 for t in range(4) if steps.done[t]), 4)
                np.testing.assert_array_equal(segments.mask[side], np.arange(4) < length)
                returns.append(np.sum(steps.reward[:length], dtype="float64"))
            if abs(returns[0] - returns[1]) > 1e-4:
                assert comparisons.label[pair] == (returns[0] > returns[1])
                decided += 1
        assert decided > 15 and 0 < comparisons.label.mean() < 1


def test_settings_and_mistakes():
    feedback = make_feedback(
        "preferences",
        ["labeller.beta=0.5", "labeller.skip_threshold=-1", "selection=UniformQueries", "hidden_sizes=8,8"],
    )
    assert feedback == PreferenceReward(
        labeller=SyntheticTeacher(0.5, skip_threshold=-1.0), selection=UniformQueries(), hidden_sizes=(8, 8)
    )
    assert from_config(to_config(feedback)) == feedback and from_config(to_config(SMALL)) == SMALL
    assert make_feedback("preferences", ["labeller.beta=inf"]) == PreferenceReward()
    mistakes = [
        (lambda: make_feedback("preferences", ["labeller=thespis.data.feeds:Replay"]), "derives from Labeller"),
        (lambda: dataclasses.replace(SMALL, num_candidates=2).init(SPEC, KEY), "raise num_candidates"),
        (lambda: dataclasses.replace(SMALL, num_segments=4).init(SPEC, KEY), "or num_segments"),
        (lambda: SMALL.init(Crew().spec, KEY), "single agent"),
    ]
    for make, message in mistakes:
        with pytest.raises(UserError, match=message) as error:
            make()
        assert "\n" not in str(error.value)
