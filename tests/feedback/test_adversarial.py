"""Adversarial imitation: losses and rewards against formulas by hand, absorbing states, and laws."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.contracts import Feedback, UsesLogProbs
from thespis.core.laws.components import check_feedback
from thespis.core.laws.random_samples import random_transitions
from thespis.core.records import Batch, EnvSpec, Report, Rewards
from thespis.core.spaces import Box, Discrete, dict_space
from thespis.feedback.adversarial import AIRL, GAIL, dac, discriminator_loss, sample_steps
from thespis.feedback.combined import AddedFeedback, ChainedFeedback
from thespis.feedback.count_bonus import CountBonus
from thespis.feedback.environment import EnvironmentReward
from thespis.runtime.keys import seed_key

SPEC = EnvSpec("box", Box((3,)), Discrete(4))
TREE = EnvSpec("tree", dict_space(image=Box((6, 6, 1), 0, 255, "uint8"), place=Box((2,))), Box((2,), -1.0, 1.0))
KEY = seed_key(0)
SMALL = {"data": "somewhere", "batch_size": 5, "hidden_sizes": (8,)}


def batch(spec, seed, time=3, rows=4) -> Batch:
    steps = random_transitions(spec, np.random.default_rng(seed), time, rows)
    steps = dataclasses.replace(steps, extras={"log_prob": -jnp.abs(steps.reward)})
    return Batch(steps, jnp.ones((time, rows), bool), (), jnp.zeros((), "int32"))


FEEDBACKS = {
    "gail": GAIL(**SMALL),
    "observations": GAIL(**SMALL, uses_actions=False),
    "dac": dataclasses.replace(dac(), **SMALL),
    "airl": AIRL(**SMALL),
    "airl-absorbing": AIRL(**SMALL, absorbing_states=True, uses_actions=False),
    "chain": ChainedFeedback((GAIL(**SMALL), CountBonus(hash_bits=6))),
    "sum": AddedFeedback((GAIL(**SMALL), EnvironmentReward()), (0.5, 2.0)),
}


@pytest.mark.long
@pytest.mark.parametrize("name", FEEDBACKS)
def test_laws(name):
    assert isinstance(FEEDBACKS[name], Feedback)
    assert isinstance(FEEDBACKS[name], UsesLogProbs) == name.startswith("airl")
    check_feedback(FEEDBACKS[name], SPEC)


@pytest.mark.long
def test_images_and_boxes():
    check_feedback(GAIL(**SMALL, gradient_penalty=1.0), TREE)


def test_loss_is_the_binary_cross_entropy_of_both_kinds():
    rng = np.random.default_rng(0)
    real, fake = rng.normal(size=(2, 7)).astype("float32")
    weight = np.array([1, 1, 0, 1, 0, 1, 1], "float32")
    loss, metrics = discriminator_loss(jnp.asarray(real), jnp.asarray(weight), jnp.asarray(fake), jnp.ones(7))
    sigmoid = lambda x: 1 / (1 + np.exp(-x.astype("float64")))  # noqa: E731
    kept = weight > 0
    expected = -0.5 * np.log(sigmoid(real[kept])).mean() - 0.5 * np.log(1 - sigmoid(fake)).mean()
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    assert float(metrics["expert_accuracy"]) == pytest.approx((real[kept] > 0).mean())
    assert float(metrics["learner_accuracy"]) == pytest.approx((fake <= 0).mean())


def outputs(feedback, state, steps):
    """The discriminator's outputs, one step after another."""
    normalize = feedback.obs_normalizer.normalize
    rows = np.zeros(steps.reward.shape)
    for t, i in np.ndindex(rows.shape):
        step = jax.tree.map(lambda x, t=t, i=i: x[t, i], steps)
        rows[t, i] = state.network(normalize(state.obs_moments, step.view.observation), step.action)
    return rows


@pytest.mark.parametrize("reward", ["softplus", "logit"])
@pytest.mark.parametrize("absorbing", [False, True])
def test_rewards_of_gail_and_dac(reward, absorbing):
    feedback = GAIL(**SMALL, reward=reward, absorbing_states=absorbing, discount=0.9)
    state, data = feedback.init(SPEC, KEY), batch(SPEC, 1)
    shape = np.logaddexp(0, outputs(feedback, state, data.steps)) if reward == "softplus" else None
    expected = outputs(feedback, state, data.steps) if shape is None else shape
    if absorbing:
        end = np.zeros(8, "float32")
        end[-1] = 1.0
        value = float(state.network.of_features(jnp.asarray(end)))
        value = np.logaddexp(0, value) if reward == "softplus" else value
        forever = sum(0.9**k * value for k in range(1, 500))
        expected = expected + np.where(data.steps.terminated, forever, 0.0)
    assert bool(data.steps.terminated.any())
    np.testing.assert_allclose(feedback.score(state, data, KEY).total, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.long
def test_airl_subtracts_the_log_probability_and_telescopes():
    """The potential of a whole episode adds up to its discounted ends."""
    feedback, data = AIRL(**SMALL, discount=1.0), batch(SPEC, 2, time=6)
    state = feedback.init(SPEC, KEY)
    steps = data.steps
    shaped = np.asarray(feedback.score(state, data, KEY).total)
    normalize = feedback.obs_normalizer.normalize

    def value(network, *inputs):
        return float(network(*inputs))

    for i in range(4):
        for t in range(6):
            step = jax.tree.map(lambda x, t=t, i=i: x[t, i], steps)
            now, following = (normalize(state.obs_moments, x.observation) for x in (step.view, step.next_view))
            potential = 0.0 if step.terminated else value(state.network.potential, following)
            expected = value(state.network.reward, now, step.action) + potential
            expected -= value(state.network.potential, now)
            assert shaped[t, i] == pytest.approx(expected, rel=1e-4, abs=1e-5)

    def loss(sign):
        moved = dataclasses.replace(steps, extras={"log_prob": steps.extras["log_prob"] + sign * 50.0})
        report = feedback.update(state, dataclasses.replace(data, steps=moved), batch(SPEC, 3, 1, 5), KEY)[1]
        return float(report.metrics["learner_accuracy"])

    assert loss(1.0) == 1.0 and loss(-1.0) == 0.0, "likely steps of the learner look like its own"


def with_actions(data: Batch, action) -> Batch:
    steps = dataclasses.replace(data.steps, action=action, extras={"log_prob": jnp.zeros(data.mask.shape)})
    return dataclasses.replace(data, steps=steps)


@pytest.mark.long
def test_the_discriminator_learns_to_tell_the_two_apart():
    """Demonstrations have action 1 and the learner's steps action 0 or 2."""
    for feedback in (GAIL(**SMALL, learning_rate=0.01), AIRL(**SMALL, learning_rate=0.01)):
        expert, learner = batch(SPEC, 1, 1, 64), batch(SPEC, 2, 1, 64)
        expert = with_actions(expert, jnp.ones((1, 64), "int32"))
        learner = with_actions(learner, learner.steps.action // 2 * 2)
        update = eqx.filter_jit(lambda s, f=feedback, x=learner, y=expert: f.update(s, x, y, KEY))
        state, first = update(feedback.init(SPEC, KEY))
        for _ in range(200):
            state, last = update(state)
        assert last.metrics["expert_accuracy"] == last.metrics["learner_accuracy"] == 1.0
        assert last.metrics["discriminator_loss"] < 0.3 * first.metrics["discriminator_loss"]
        gap = feedback.score(state, expert, KEY).total.mean() - feedback.score(state, learner, KEY).total.mean()
        assert gap > 1.0


def test_the_gradient_penalty_leaves_out_steps_that_do_not_count():
    feedback = GAIL(**SMALL, gradient_penalty=10.0)
    state, mask = feedback.init(SPEC, KEY), jnp.arange(64)[None] < 40
    update = eqx.filter_jit(lambda y: feedback.update(state, batch(SPEC, 1, 1, 64), y, KEY))
    ends = []
    for seed in (2, 3):
        counted, other = batch(SPEC, 2, 1, 64).steps, batch(SPEC, seed, 1, 64).steps
        steps = jax.tree.map(lambda a, b: jnp.where(mask.reshape(1, 64, *[1] * (a.ndim - 2)), a, b), counted, other)
        ends.append(update(dataclasses.replace(batch(SPEC, 2, 1, 64), steps=steps, mask=mask)))
    jax.tree.map(np.testing.assert_array_equal, *ends)


@pytest.mark.long
def test_gradient_penalty_pulls_norms_to_one():
    data, expert = batch(SPEC, 1, 1, 64), batch(SPEC, 2, 1, 64)
    ends = []
    for weight in (0.0, 100.0):
        feedback = GAIL(**SMALL, learning_rate=0.01, gradient_penalty=weight)
        update = eqx.filter_jit(lambda s, f=feedback: f.update(s, data, expert, KEY))
        state = feedback.init(SPEC, KEY)
        for _ in range(300):
            state, report = update(state)
        ends.append(float(report.metrics["gradient_penalty"]))
    assert ends[1] < 0.1 * ends[0] and ends[1] < 0.1


def test_steps_are_sampled_without_replacement():
    data = batch(SPEC, 5)
    steps, weight = sample_steps(data, 12, KEY)
    assert sorted(np.asarray(steps.reward)) == sorted(np.asarray(data.steps.reward).ravel()) and weight.sum() == 12
    more, _ = sample_steps(data, 24, KEY)
    counts = np.unique(np.asarray(more.reward), return_counts=True)[1]
    assert (counts == 2).all()


class Doubled(eqx.Module):
    """Twice the reward that it is given, which it also counts."""

    name = "doubled"
    citations = ()
    feed = None

    def init(self, spec, key):
        return jnp.zeros(())

    def score(self, state, batch, key):
        return Rewards(2 * batch.steps.reward, {"doubled": batch.steps.reward})

    def update(self, state, batch, own_batch, key):
        return state + batch.steps.reward.sum(), Report({"sum": state})


def test_chained_and_added_feedbacks():
    data = batch(SPEC, 1)
    reward = np.asarray(data.steps.reward)
    chain = ChainedFeedback((Doubled(), EnvironmentReward(3.0), Doubled()))
    state = chain.init(SPEC, KEY)
    rewards = chain.score(state, data, KEY)
    np.testing.assert_allclose(rewards.total, 12 * reward, rtol=1e-5)
    np.testing.assert_allclose(rewards.channels["doubled"], 6 * reward, rtol=1e-5)
    after, _ = chain.update(state, data, None, KEY)
    np.testing.assert_allclose([after[0], after[2]], [reward.sum(), 6 * reward.sum()], rtol=1e-4)
    added = AddedFeedback((Doubled(), EnvironmentReward(3.0)), (0.5, 2.0))
    rewards = added.score(added.init(SPEC, KEY), data, KEY)
    np.testing.assert_allclose(rewards.total, 7 * reward, rtol=1e-5)
    assert set(rewards.channels) == {"doubled", "environment"}
