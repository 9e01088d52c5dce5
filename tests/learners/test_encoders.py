"""Encoders as settings: those for images, the user's own, and one that actor and critic share."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from own_network import SquareFeatures, square_image
from small_envs import BOX, Stacks, Walk

import thespis
from thespis.core.errors import UserError
from thespis.core.laws.components import check_method_shapes
from thespis.core.records import View
from thespis.core.spaces import Box, Discrete
from thespis.critics.hypernetwork import HypernetworkCritic
from thespis.data.feeds import Replay
from thespis.learners.on_policy.actor_critic import (
    ActorCritic,
    RolloutWithAdvantages,
)
from thespis.learners.on_policy.method import evaluate_rollout
from thespis.learners.on_policy.shared_actor_critic import SharedBodyActorCritic, SharedEncoderActorCritic
from thespis.methods.online.ppo import PPO
from thespis.methods.online.sac import SAC
from thespis.methods.online.td3 import TD3
from thespis.nets.body import GRU, Body
from thespis.nets.cnn import ImpalaCNN, ImpalaNetwork, MinAtarCNN, NatureCNN
from thespis.nets.mlp import orthogonal
from thespis.runs.config import apply_settings, from_config, to_config

KEY = jax.random.key(0)


def conv(x, kernel):
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def pool(x):
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


@pytest.mark.long
def test_impala_network_against_one_written_with_xla():
    shape = (12, 10, 3)
    network = jax.tree.map(lambda x: x + 0.05, ImpalaNetwork(shape, KEY, (4, 6)))  # biases are not 0
    image = jax.random.randint(KEY, shape, 0, 256).astype("uint8")
    x = image[None].astype("float32") / 255
    for kernel, bias, blocks in zip(network.kernels, network.biases, network.blocks, strict=True):
        x = pool(conv(x, kernel) + bias)
        for block in blocks:
            inner = conv(jax.nn.relu(x), block.kernels[0]) + block.biases[0]
            x = x + conv(jax.nn.relu(inner), block.kernels[1]) + block.biases[1]
    result = network(image)
    np.testing.assert_allclose(result, jax.nn.relu(x).ravel(), rtol=1e-4, atol=1e-5)
    assert result.shape == (3 * 3 * 6,)
    first = ImpalaNetwork((3, 12, 10), KEY, (4, 6))
    last = ImpalaNetwork(shape, KEY, (4, 6))
    np.testing.assert_allclose(first(jnp.moveaxis(image, -1, 0)), last(image), rtol=1e-6)


@pytest.mark.parametrize(
    ("encoder", "shape", "size"),
    [
        (NatureCNN(), (84, 84, 4), 7 * 7 * 64),
        (MinAtarCNN(), (10, 10, 4), 8 * 8 * 16),
        (MinAtarCNN(8), (6, 5, 1), 4 * 3 * 8),
        (ImpalaCNN((2, 3)), (9, 9, 1), 3 * 3 * 3),
    ],
    ids=str,
)
def test_image_encoders_have_the_papers_sizes(encoder, shape, size):
    body = Body(Box(shape, 0, 255, "uint8"), (), KEY, init=orthogonal(1.0), activation=jax.nn.relu, encoder=encoder)
    assert body.feature_size == size


def test_too_small_images_are_refused():
    with pytest.raises(UserError, match="too small for this encoder"):
        NatureCNN()((20, 20, 3), KEY)


REPLAY = ["feed.learning_starts=64", "feed.batch_size=8"]


@pytest.mark.parametrize(
    ("name", "env", "settings"),
    [
        ("ppo", "CartPole-v1", []),
        pytest.param("sac", "Pendulum-v1", ["layer_norm=true", *REPLAY], marks=pytest.mark.slow),
        pytest.param("dqn", "CartPole-v1", ["layer_norm=true"], marks=pytest.mark.slow),
        pytest.param("td3", "Pendulum-v1", REPLAY, marks=pytest.mark.slow),
    ],
)
def test_own_encoder_is_trained_stored_and_loaded(name, env, settings, tmp_path):
    run = thespis.train(
        name,
        env,
        steps=256,
        settings=["encoder=own_network:SquareFeatures", "hidden_sizes=8", *settings],
        episodes=2,
        out=tmp_path,
    )
    networks = [
        x
        for x in jax.tree.leaves(run.states, is_leaf=lambda x: isinstance(x, SquareFeatures))
        if isinstance(x, SquareFeatures)
    ]
    assert len(networks) >= 2 or name == "dqn"  # actor and critic
    size = 4 if env == "CartPole-v1" else 3
    for network in networks:
        assert not np.array_equal(np.ravel(network.weight)[-size:], SquareFeatures(Box((size,)), KEY).weight)
    again = thespis.load(tmp_path)
    assert again.method.encoder is SquareFeatures and np.isfinite(again.evaluate(2)["greedy"]["scores"]).all()


@pytest.mark.long
@pytest.mark.parametrize("method", [SAC, TD3])
def test_actor_and_critics_see_images_through_the_encoder(method):
    spec = Stacks(Walk(BOX)).spec
    small = method(hidden_sizes=(5,), feed=Replay(batch_size=2))
    check_method_shapes(dataclasses.replace(small, encoder=ImpalaCNN((2,)), layer_norm=True), spec)

    def count(network):
        return sum(x.size for x in jax.tree.leaves(eqx.filter_eval_shape(network.init, spec, KEY)) if x.ndim >= 4)

    wide = dataclasses.replace(small, encoder=MinAtarCNN(num_filters=32))
    assert count(wide) == 2 * count(dataclasses.replace(small, encoder=MinAtarCNN(num_filters=16)))


def test_a_critic_with_networks_of_its_own_refuses_an_encoder():
    method = SAC(critic=HypernetworkCritic((4,), 4), hidden_sizes=(5,), layer_norm=True)
    with pytest.raises(UserError, match="networks of its own: leave activation, encoder and layer_norm out"):
        method.init(Walk(BOX).spec, KEY)


def test_encoder_that_returns_no_vector_is_refused():
    with pytest.raises(UserError, match=r"SquareFeatures must return a vector of floats.*\(2, 3\)"):
        Body(Box((3,)), (4,), KEY, init=orthogonal(1.0), activation=jnp.tanh, encoder=square_image)


def test_encoder_and_activation_are_settings():
    method = apply_settings(thespis.PPO(), ["encoder=ImpalaCNN", "encoder.channels=4,8", "activation=relu"])
    assert method.encoder == ImpalaCNN((4, 8)) and method.activation is jax.nn.relu
    assert from_config(to_config(method)) == method
    own = apply_settings(thespis.DQN(), ["encoder=own_network:SquareFeatures"])
    assert own.encoder is SquareFeatures and from_config(to_config(own)) == own
    for setting, reason in (
        ("encoder=relu", "NatureCNN, MinAtarCNN, ImpalaCNN, ResNet"),
        ("encoder=own_network:Missing", "own_network has no class or function 'Missing'"),
        ("encoder=no_such_module:X", "no_such_module cannot be imported"),
        ("activation=sine", "relu, tanh, gelu"),
    ):
        with pytest.raises(UserError, match=reason):
            apply_settings(thespis.PPO(), [setting])


@pytest.mark.long
@pytest.mark.parametrize("memory", [None, GRU(3)])
@pytest.mark.parametrize("build", [SharedEncoderActorCritic, SharedBodyActorCritic])
def test_shared_networks_give_the_same_in_one_pass_and_in_two(build, memory):
    spec = Stacks(Walk(Discrete(4))).spec
    network = build(spec, (5,), KEY, memory=memory)
    time, rows = 4, 2
    images = jax.random.randint(KEY, (time, rows, *spec.observation_space.shape), 0, 256).astype("uint8")
    zeros = jnp.zeros((time, rows))
    first = jnp.zeros((time, rows), bool).at[0].set(True).at[2, 1].set(True)
    action = jnp.zeros((time, rows), "int32")
    rollout = RolloutWithAdvantages(View(images), action, zeros, zeros, zeros, zeros, first)
    state = network.init_memory(rows)

    def together(network):
        result = evaluate_rollout(network, state, rollout)
        return jnp.sum(result.value**2) + jnp.sum(result.log_prob)

    def apart(network):
        policy = network.distributions(state, rollout.view, first)
        log_prob = jax.vmap(jax.vmap(lambda p, a: p.log_prob(a)))(policy, action)
        return jnp.sum(network.values(state, images, first)[0] ** 2) + jnp.sum(log_prob)

    results = [eqx.filter_value_and_grad(f)(network) for f in (together, apart)]
    for result, expected in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    gradient = results[0][1]
    encoder = gradient.encoder if isinstance(gradient, SharedEncoderActorCritic) else gradient.body.encoder
    assert np.abs(encoder.image_encoders[0].kernels[0]).max() > 0


def test_shared_body_acts_and_judges_as_its_unrolled_pass():
    spec = Walk(Discrete(4)).spec
    network = SharedBodyActorCritic(spec, (5,), KEY, memory=GRU(3))
    time, rows = 4, 2
    observations = jax.random.normal(KEY, (time + 1, rows, *spec.observation_space.shape))
    first = jnp.zeros((time, rows), bool).at[2, 1].set(True)
    policies, values = network.evaluate(network.init_memory(rows), View(observations[:-1]), observations[:-1], first)
    _, memories = network.values(network.init_memory(rows), observations[:-1], first)
    next_values = network.next_values(memories, observations[1:])
    memory = network.init_memory(rows)
    for t in range(time):
        memory = jax.tree.map(lambda m, t=t: jnp.where(first[t][:, None], 0.0, m), memory)
        policy, memory = jax.vmap(network.action_distribution)(memory, View(observations[t]))
        np.testing.assert_allclose(policies.log_probs[t], policy.log_probs, atol=1e-6)
        np.testing.assert_allclose(memories[t], memory[0], atol=1e-6)
        if t + 1 < time:  # the next value is that of the next step, unless an episode begins there
            same = ~np.asarray(first[t + 1])
            np.testing.assert_allclose(next_values[t][same], values[t + 1][same], atol=1e-6)


def test_shared_encoder_halves_the_encoders_parameters():
    spec = Stacks(Walk(Discrete(4))).spec

    def count(network):
        return sum(x.size for x in jax.tree.leaves(network) if x.ndim == 4)

    assert 2 * count(SharedEncoderActorCritic(spec, (5,), KEY)) == count(ActorCritic(spec, (5,), KEY))


@pytest.mark.parametrize("share_encoder", [False, True])
def test_weights_are_orthogonal_or_uniform_as_asked(share_encoder):
    spec = Stacks(Walk(Discrete(4))).spec
    networks = {
        name: PPO(hidden_sizes=(16,), share_encoder=share_encoder, initializer=name).init(spec, KEY).network
        for name in ("orthogonal", "uniform")
    }
    for name, network in networks.items():
        network = network.actor_critic if share_encoder else network
        policy, value, hidden = network.policy_head.out, network.critic.out, network.body.mlp.layers[0]
        spread = [float(np.abs(np.asarray(x)).max()) for x in (policy.weight, value.weight, policy.bias, hidden.bias)]
        if name == "orthogonal":
            np.testing.assert_allclose(policy.weight.T @ policy.weight, 1e-4 * np.eye(4), atol=1e-7)
            assert spread[2:] == [0, 0]
        else:
            assert all(0.1 < x <= 0.25 for x in spread[:3])  # 1/sqrt(16)
            assert 0 < spread[3] <= len(hidden.weight) ** -0.5


@pytest.mark.parametrize(
    "name, build", [("share_encoder", SharedEncoderActorCritic), ("share_body", SharedBodyActorCritic)]
)
def test_shared_networks_need_one_observation_for_both(name, build):
    spec = dataclasses.replace(Walk().spec, privileged_space=Box((2,)))
    with pytest.raises(UserError, match=f"{name} must be false"):
        build(spec, (5,), KEY)
