"""The parts of Rainbow, each by itself: losses and targets written out in numpy, and exploration by noise."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_envs import VECTOR

import thespis
from thespis.core.contracts import Mode
from thespis.core.laws.components import check_method
from thespis.core.laws.random_samples import random_transitions
from thespis.core.records import Batch, EnvSpec, View
from thespis.core.spaces import Discrete
from thespis.critics.categorical import CategoricalQ
from thespis.data.feeds import PrioritizedSampler, Replay
from thespis.learners.off_policy.categorical_q import MemberDistribution, categorical_targets, split_batch
from thespis.learners.off_policy.critic_updates import n_step_batch
from thespis.methods.online.c51 import C51
from thespis.methods.online.dqn import DQN
from thespis.nets.mlp import Linear
from thespis.nets.noisy import DrawnLinear, NetworkNoise, NoisyLayer, NoisyLinear, NoisyNetwork, draw_noise

KEY, ROWS = jax.random.key(0), 24
SPEC = EnvSpec("choices", VECTOR, Discrete(4), has_action_mask=True)
NOISY = DQN(
    hidden_sizes=(8,),
    discount=0.9,
    huber_delta=1e9,
    noisy=NoisyNetwork(2.0),
    feed=Replay(batch_size=ROWS),
    dueling=True,
)


def one_step_batch():
    steps = random_transitions(SPEC, np.random.default_rng(0), 1, ROWS)
    return Batch(steps, jnp.ones((1, ROWS), bool), (), jnp.zeros((), "int32"))


def different_target(method):
    state = method.init(SPEC, KEY)
    return eqx.tree_at(lambda s: s.target_critic, state, method.init(SPEC, jax.random.key(1)).critic)


def apply(layer, x):
    """A layer's output in numpy, from its whole noisy weight matrix."""
    weight, bias = np.asarray(layer.mean.weight, "float64")[0], np.asarray(layer.mean.bias, "float64")[0]
    if isinstance(layer, DrawnLinear):
        inputs, outputs = np.asarray(layer.in_noise, "float64")[0], np.asarray(layer.out_noise, "float64")[0]
        weight = weight + np.asarray(layer.std.weight, "float64")[0] * np.outer(inputs, outputs)
        bias = bias + np.asarray(layer.std.bias, "float64")[0] * outputs
    return x @ weight + bias


def q_values(critic, observation):
    features = np.maximum(apply(critic.body.mlp.layers[0], np.asarray(observation, "float64")), 0.0)
    advantage = apply(critic.advantage_out, features)
    return advantage - advantage.mean(axis=1, keepdims=True) + apply(critic.value_out, features)


@pytest.mark.long
def test_the_loss_has_three_independent_noises():
    """In the loss, in the target, and in the choice of next actions (Fortunato et al., 2018, equation 16)."""
    state, batch = different_target(NOISY), one_step_batch()
    steps = jax.tree.map(lambda x: np.asarray(x)[0], batch.steps)
    keys = jax.random.split(jax.random.key(5), 3)
    loss, evaluator, selector = (
        draw_noise(critic, key)
        for critic, key in zip((state.critic, state.target_critic, state.critic), keys, strict=True)
    )
    choice = np.where(steps.next_view.action_mask, q_values(selector, steps.next_view.observation), -np.inf)
    quiet = np.where(steps.next_view.action_mask, q_values(state.critic, steps.next_view.observation), -np.inf)
    assert (choice.argmax(1) != quiet.argmax(1)).any()
    value = np.take_along_axis(q_values(evaluator, steps.next_view.observation), choice.argmax(1)[:, None], 1)[:, 0]
    target = steps.reward + 0.9 * np.where(steps.terminated, 0.0, value)
    taken = np.take_along_axis(q_values(loss, steps.view.observation), steps.action[:, None], 1)[:, 0]
    new, report = jax.jit(NOISY.update)(state, batch, jax.random.key(5))
    assert float(report.metrics["critic_loss"]) == pytest.approx(np.mean((taken - target) ** 2) / 2, rel=1e-4)
    before, after = state.critic.body.mlp.layers[0], new.critic.body.mlp.layers[0]
    assert np.abs(np.asarray(after.std.weight) - np.asarray(before.std.weight)).max() > 0  # deviations learn


@pytest.mark.long
@pytest.mark.parametrize(
    "method", [NOISY, C51(hidden_sizes=(8,), noisy=NoisyNetwork(5.0), ensemble_size=2)], ids=["dqn", "c51"]
)
def test_noise_explores_instead_of_random_actions(method):
    rows = 200
    state = method.init(SPEC, KEY)
    view = View(jnp.tile(jnp.asarray([0.3, -1.0, 2.0]), (rows, 1)), jnp.ones((rows, 4), bool))

    def act(mode, key):
        policy = method.policy(state, mode)
        assert float(policy.epsilon) == 0.0
        return np.asarray(jax.jit(method.act)(policy, method.init_memory(policy, rows), view, key)[0])

    greedy = act(Mode.EXPLOIT, KEY)
    assert len(set(greedy.tolist())) == 1 and set(act(Mode.EXPLOIT, jax.random.key(1))) == set(greedy)
    for mode in (Mode.EXPLORE, Mode.SAMPLE):
        explored, again = act(mode, KEY), act(mode, jax.random.key(1))
        assert len(set(explored.tolist())) > 1  # noise of its own in every row
        assert (explored != again).any()  # and in every step
    without = eqx.tree_at(
        lambda tree: [x.std for x in jax.tree.leaves(tree, is_leaf=is_noisy) if is_noisy(x)],
        state,
        replace_fn=lambda std: jax.tree.map(jnp.zeros_like, std),
    )
    policy = method.policy(without, Mode.EXPLORE)
    quiet = method.act(policy, method.init_memory(policy, rows), view, KEY)[0]
    if method is NOISY:  # an ensemble still explores by the choice of a member
        np.testing.assert_array_equal(quiet, greedy)


def is_noisy(x):
    return isinstance(x, NoisyLinear)


def test_dueling_distributions_against_numpy():
    """Logits of the value plus centred logits of the advantages, atom by atom."""
    critic = CategoricalQ(SPEC, (8,), KEY, v_min=-2.0, v_max=2.0, num_atoms=7, dueling=True)
    observation = jnp.asarray([0.3, -1.0, 2.0])
    features = np.asarray(critic.body((), observation)[0], "float64")
    advantage = (features @ np.asarray(critic.out.weight) + np.asarray(critic.out.bias)).reshape(4, 7)
    value = features @ np.asarray(critic.value_out.weight) + np.asarray(critic.value_out.bias)
    logits = value + advantage - advantage.mean(axis=0)
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(critic.probs(observation), probs, rtol=1e-4)
    np.testing.assert_allclose(critic.q_values(observation), probs @ np.linspace(-2, 2, 7), rtol=1e-3, atol=1e-5)
    plain = CategoricalQ(SPEC, (8,), KEY, v_min=-2.0, v_max=2.0, num_atoms=7)
    assert plain.value_out is None and np.abs(plain.q_values(observation) - critic.q_values(observation)).max() > 1e-3


@pytest.mark.long
def test_double_q_of_distributions_chooses_by_the_online_network():
    method = C51(hidden_sizes=(8,), num_atoms=7, v_min=-2.0, v_max=2.0, double_q=True, discount=0.9)
    state, batch = different_target(method), one_step_batch()
    data, atoms = n_step_batch(batch, 0.9), np.linspace(-2.0, 2.0, 7)

    def all_probs(critics):
        critic = jax.tree.map(lambda x: x[0], critics)
        return np.asarray(jax.vmap(critic.probs)(data.next_view.observation), "float64")

    online, target = all_probs(state.critic), all_probs(state.target_critic)
    legal = np.asarray(data.next_view.action_mask)
    best = {name: np.where(legal, p @ atoms, -np.inf).argmax(1) for name, p in (("on", online), ("off", target))}
    assert (best["on"] != best["off"]).any()
    for selectors, choice in ((state.critic, best["on"]), (None, best["off"])):
        found = categorical_targets(MemberDistribution(), state.target_critic, split_batch(data, 1), selectors)[0]
        for row in range(ROWS):
            expected = np.zeros(7)
            for z, p in zip(atoms, target[row, choice[row]], strict=True):
                x = np.clip(float(data.reward[row]) + float(data.discount[row]) * z, -2.0, 2.0)
                expected += p * np.maximum(1 - np.abs(x - atoms) / (atoms[1] - atoms[0]), 0)
            np.testing.assert_allclose(found[row], expected, atol=1e-5)
    losses = [
        float(jax.jit(m.update)(state, batch, KEY)[1].metrics["critic_loss"])
        for m in (method, dataclasses.replace(method, double_q=False))
    ]
    assert abs(losses[0] - losses[1]) > 1e-5


REPLAY = Replay(buffer_size=20_000, batch_size=64, learning_starts=500, num_envs=4, num_updates=2)


class UniformLinear(NoisyLayer):
    """A layer of one's own whose outputs have uniform noise of a learned size."""

    mean: Linear
    size: jax.Array

    def __call__(self, x):
        return self.mean(x)

    def draw(self, key):
        noise = jax.random.uniform(key, self.size.shape, minval=-1.0)
        return eqx.tree_at(lambda linear: linear.bias, self.mean, self.mean.bias + noise * self.size)


class NoiseOfOutputs(NetworkNoise):
    """Uniform noise in every layer, of an initial size."""

    size: float = 3.0

    def add_noise(self, network):
        def leaf(layer):
            return UniformLinear(layer, jnp.full_like(layer.bias, self.size)) if is_linear(layer) else layer

        def is_linear(x):
            return isinstance(x, Linear)

        return jax.tree.map(leaf, network, is_leaf=is_linear)


@pytest.mark.slow
def test_noise_of_ones_own_explores_and_learns():
    """It is drawn for every row while exploring, not in greedy play, and it obeys the laws of a method."""
    method = dataclasses.replace(NOISY, noisy=NoiseOfOutputs(), dueling=False)
    state, rows = method.init(SPEC, KEY), 64
    view = View(jnp.tile(jnp.asarray([0.3, -1.0, 2.0]), (rows, 1)), jnp.ones((rows, 4), bool))

    def choices(mode):
        policy = method.policy(state, mode)
        return set(np.asarray(jax.jit(method.act)(policy, method.init_memory(policy, rows), view, KEY)[0]).tolist())

    assert len(choices(Mode.EXPLORE)) > 1 == len(choices(Mode.EXPLOIT))
    before, after = state, jax.jit(method.update)(state, one_step_batch(), KEY)[0]
    assert (after.critic.body.mlp.layers[0].size != before.critic.body.mlp.layers[0].size).any()
    check_method(method, SPEC)


CARTPOLE = {"hidden_sizes": (64, 64), "target_update_interval": 250, "noisy": NoisyNetwork()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "score"),
    [
        (DQN(**CARTPOLE, learning_rate=5e-4, huber_delta=1e3, feed=REPLAY), 150),
        (
            C51(
                **CARTPOLE,
                learning_rate=1e-3,
                v_min=0.0,
                v_max=100.0,
                dueling=True,
                double_q=True,
                feed=dataclasses.replace(REPLAY, sequence_length=3, sampler=PrioritizedSampler(beta_updates=15_000)),
            ),
            300,
        ),
    ],
    ids=["noisy dqn", "rainbow"],
)
def test_cartpole_is_learned_without_random_actions(method, score, tmp_path):
    """Uniformly random play has a return of about 20."""
    run = thespis.train(method, env="CartPole-v1", steps=30_000, episodes=20, out=tmp_path / "run")
    assert run.final_scores["greedy"]["iqm"] > score, run.final_scores["greedy"]
