"""Slots of networks and losses take classes of a user's own module: settings, formulas, laws."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from method_cases import CASES, CREW, SMALL
from own_parts import LSTM, ByLargest, CountingLoss, Halved, MeanPooling, ScaledUtility, WeightedSum
from small_envs import Walk

from thespis.core.errors import UserError
from thespis.core.laws.components import check_feedback, check_method, check_method_shapes
from thespis.core.laws.random_samples import random_transitions
from thespis.core.records import Batch
from thespis.core.spaces import Box, dict_space
from thespis.feedback.adversarial import AIRL, GAIL
from thespis.feedback.rnd import RandomNetworkDistillation
from thespis.methods.multi_agent.qmix import QMIX
from thespis.methods.online.ppo import PPO
from thespis.methods.registry import load_method
from thespis.nets import lstm
from thespis.nets.body import GRU, Body, Encoder, unroll
from thespis.nets.mlp import uniform_fan_in
from thespis.runs.config import apply_settings, from_config, to_config

TEAM = ["utility_network=own_parts:ScaledUtility", "mixer=own_parts:WeightedSum", "memory=own_parts:LSTM"]
TEAM += ["auxiliary_loss=own_parts:CountingLoss", "hidden_sizes=4", "feed.sequence_length=3"]


def test_own_parts_are_settings_and_are_kept_in_run_files():
    method = apply_settings(QMIX(), [*TEAM, "memory.hidden_size=7"])
    parts = method.utility_network, method.mixer, method.memory, method.auxiliary_loss
    assert parts == (ScaledUtility(), WeightedSum(), LSTM(7), CountingLoss())
    assert from_config(to_config(method)) == method
    method = apply_settings(PPO(), ["memory=own_parts:LSTM", "set_encoder=own_parts:MeanPooling"])
    assert (method.memory, method.set_encoder) == (LSTM(), MeanPooling())
    with pytest.raises(UserError, match="derives from RecurrentCore"):
        apply_settings(PPO(), ["memory=own_parts:MeanPooling"])
    for name in ("a2c", "impala", "r2d2", "vdn", "acorm"):
        assert apply_settings(load_method(name)(), ["memory=own_parts:LSTM"]).memory == LSTM()
    assert type(apply_settings(load_method("drq-v2")(), ["augmentation=own_parts:Mirror"]).augmentation).__name__ == (
        "Mirror"
    )


def test_own_scales_of_values_and_observations_are_settings():
    r2d2 = apply_settings(load_method("r2d2")(), ["value_rescaling=own_parts:Halved"])
    assert r2d2.value_rescaling == Halved() and from_config(to_config(r2d2)) == r2d2
    with pytest.raises(UserError, match="derives from ValueTransform"):
        apply_settings(r2d2, ["value_rescaling=own_parts:Mirror"])
    for feedback in (GAIL("demos"), AIRL("demos"), RandomNetworkDistillation()):
        own = apply_settings(feedback, ["obs_normalizer=own_parts:ByLargest"])
        assert own.obs_normalizer == ByLargest() and from_config(to_config(own)) == own
        assert apply_settings(feedback, ["obs_normalizer=none"]).obs_normalizer is None
    board = apply_settings(load_method("alphazero")(), ["board_encoder=ImpalaCNN"]).board_encoder
    assert type(board).__name__ == "ImpalaCNN"


@pytest.mark.long
@pytest.mark.parametrize("normalizer", [ByLargest(), None])
def test_laws_of_feedback_with_another_normalizer(normalizer):
    check_feedback(RandomNetworkDistillation(hidden_sizes=(4,), feature_size=2, obs_normalizer=normalizer), Walk().spec)


@pytest.mark.long
def test_a_discriminator_normalizes_by_own_rules():
    """A discriminator sees observations over the largest so far, of demonstrations and of the learner."""
    feedback, spec = GAIL("demos", hidden_sizes=(4,), obs_normalizer=ByLargest()), Walk().spec
    steps = [random_transitions(spec, np.random.default_rng(i), 1, 6) for i in range(2)]
    own, batch = (Batch(x, jnp.ones((1, 6), bool), (), jnp.int32(0)) for x in steps)
    state = feedback.init(spec, jax.random.key(0))
    after, _ = jax.jit(feedback.update)(state, batch, own, jax.random.key(1))
    largest = max(np.abs(leaf).max() for x in steps for leaf in jax.tree.leaves(x.view.observation))
    np.testing.assert_allclose(after.obs_moments, max(largest, 1.0), rtol=1e-6)


def test_a_core_is_unrolled_with_resets():
    """The features of a body with an LSTM are those of its cell, step by step, from zeros where an episode starts."""
    options = {"init": uniform_fan_in, "activation": jax.nn.relu, "memory": LSTM(4)}
    body = Body(Box((3,)), (), jax.random.key(0), **options)
    observations = jax.random.normal(jax.random.key(1), (5, 1, 3))
    is_first = jnp.array([True, False, True, False, False])[:, None]
    features, _ = jax.jit(unroll)(body, body.init_memory(1), observations, is_first)
    memory, zeros, cell = None, (jnp.zeros(4), jnp.zeros(4)), jax.jit(lambda x, memory: body.core(x, memory))
    for t in range(5):
        memory = cell(observations[t, 0], zeros if is_first[t, 0] else memory)
        np.testing.assert_allclose(features[t, 0], memory[0], atol=1e-6)
    assert body.feature_size == 4 and len(body.resume_memory(memory)) == 2


@pytest.mark.long
@pytest.mark.parametrize("core", [GRU(4), lstm.LSTM(4), lstm.LSTM(4, forget_bias=1.0)])
def test_cores_compute_what_equinox_does(core):
    body = Body(Box((3,)), (5,), jax.random.key(0), init=uniform_fan_in, activation=jax.nn.relu, memory=core)
    observations = jax.random.normal(jax.random.key(1), (6, 2, 3))
    features, memories = jax.jit(unroll)(body, body.init_memory(2), observations, jnp.zeros((6, 2), bool))
    memory, cell = body.init_memory(2), jax.jit(jax.vmap(lambda o, memory: body.core(body.mlp(o), memory)))
    for t in range(6):
        memory = cell(observations[t], memory)
        np.testing.assert_allclose(features[t], jax.tree.leaves(memory)[0], atol=1e-6)
        jax.tree.map(lambda a, b, t=t: np.testing.assert_allclose(a[t], b, atol=1e-6), memories, memory)


def test_forget_gates_begin_as_open_as_asked():
    cells = [lstm.LSTM(4, bias).build(3, jax.random.key(0)) for bias in (0.0, 1.0)]
    np.testing.assert_allclose(cells[1].bias - cells[0].bias, np.repeat([0, 1, 0, 0], 4), atol=1e-6)


def test_sets_alone_can_be_pooled():
    encoder = Encoder(Box((4, 3)), jax.random.key(0), set_encoder=MeanPooling())
    rows = jnp.arange(12.0).reshape(4, 3)
    np.testing.assert_allclose(encoder(rows), [4.5, 5.5, 6.5])
    both = Encoder(dict_space(a=Box((4, 3)), b=Box((2,))), jax.random.key(0), set_encoder=MeanPooling())
    np.testing.assert_allclose(both({"a": rows, "b": jnp.ones(2)}), [1, 1, 4.5, 5.5, 6.5])


@pytest.mark.long
@pytest.mark.parametrize("check", [check_method_shapes, pytest.param(check_method, marks=pytest.mark.slow)])
def test_laws_of_a_policy_with_an_own_core(check):
    ppo = CASES["ppo"].method
    method = apply_settings(PPO(hidden_sizes=SMALL, num_epochs=1, feed=ppo.feed), ["memory=own_parts:LSTM"])
    check(method, Walk().spec)


@pytest.mark.long
def test_laws_of_a_team_of_own_parts():
    method = apply_settings(CASES["qmix with memory"].method, TEAM)
    check_method_shapes(method, CREW.spec)
    state = jax.jit(lambda key: method.init(CREW.spec, key))(jax.random.key(0))
    steps = random_transitions(CREW.spec, np.random.default_rng(0), *method.feed.batch_shape)
    batch = Batch(steps, jnp.ones(method.feed.batch_shape, bool), (), jnp.int32(0))
    after, report = jax.jit(method.update)(state, batch, jax.random.key(1))
    assert int(after.auxiliary_state) == 1 and "mean_role" in report.metrics
    assert (np.asarray(after.network.mixer.log_weights) != 0).all(), "the weights of an own mixer are trained"


@pytest.mark.long
@pytest.mark.parametrize("core", ["ELSTM", "own_parts:LSTM"])
def test_replayed_sequences_take_any_core(core):
    name = "r2d2" if "r2d2" in CASES else next(name for name in CASES if name.startswith("r2d2"))
    method = apply_settings(CASES[name].method, [f"memory={core}"])
    check_method_shapes(method, CASES[name].env.spec)
