"""Element-wise LSTM: steps against numpy, RTRL sensitivities against autodiff, gradients against full backpropagation.

In float64, where equal gradients agree to ten digits.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.spaces import Box
from thespis.nets.body import Body, unroll
from thespis.nets.elstm import ELSTM
from thespis.nets.mlp import orthogonal

TIME, ROWS, INPUTS, SIZE = 24, 3, 4, 5
KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
INPUT, TARGET = RNG.normal(size=(TIME, ROWS, INPUTS)), RNG.normal(size=(TIME, ROWS, SIZE))
LARGE = RNG.normal(size=(2, SIZE, INPUTS + 2))  # larger than the initial weights, so that early steps matter
NO_RESET = np.zeros((TIME, ROWS), bool)
RESETS = NO_RESET.copy()
RESETS[[5, 12, 13, 20], [0, 1, 1, 2]] = True  # within a chunk, at the start of a chunk, and twice in a row


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


@functools.cache
def body(hidden=(), **settings):
    @eqx.filter_jit
    def build(key):
        memory = ELSTM(SIZE, **settings)
        network = Body(Box((INPUTS,)), hidden, key, init=orthogonal(1.0), activation=jnp.tanh, memory=memory)
        network = jax.tree.map(lambda x: jnp.asarray(x, "float64"), network)
        return eqx.tree_at(lambda b: b.core.gates, network, jnp.asarray(LARGE[..., : (hidden or (INPUTS,))[-1] + 2]))

    return build(KEY)


@eqx.filter_jit
def final_memory(network, memory, inputs, first):
    """The memory after stepping through the inputs, cleared where an episode starts."""

    def step(memory, x_and_first):
        x, is_first = x_and_first
        memory = jax.vmap(lambda m, b: jax.tree.map(lambda leaf: leaf * (1 - b), m))(memory, is_first.astype("float64"))
        return jax.vmap(network)(memory, x)[1], None

    return jax.lax.scan(step, memory, (inputs, first))[0]


@eqx.filter_jit
@eqx.filter_grad
def gradient_of(network, memory, inputs, target, first):
    features, _ = unroll(network, network.resume_memory(memory), inputs, first)
    return jnp.sum(jnp.sin(3 * features) * target)


def gradient_in_chunks(network, length, first):
    """The sum of the gradients of chunks, each started with the memory after the chunk before."""
    memory, gradients = network.init_memory(ROWS), []
    for t in range(0, TIME, length):
        chunk = slice(t, t + length)
        gradients.append(gradient_of(network, memory, INPUT[chunk], TARGET[chunk], first[chunk]))
        memory = final_memory(network, memory, INPUT[chunk], first[chunk])
    return jax.tree.map(lambda *x: sum(x), *jax.tree.map(np.asarray, gradients))


def gradient_at_once(network, first):
    return gradient_of(network, network.init_memory(ROWS), INPUT, TARGET, first)


def distance(result, reference):
    result, reference = np.asarray(result), np.asarray(reference)
    return float(np.abs(result - reference).max() / np.abs(reference).max())


def test_a_step_against_numpy():
    @eqx.filter_jit
    def init(key):
        core = ELSTM(SIZE, forget_bias=2.0).build(INPUTS, key)
        return eqx.tree_at(lambda c: c.output_gate.bias, core, jnp.arange(SIZE) / 3), core.init_memory(1)

    core, memory = init(KEY)
    step = eqx.filter_jit(lambda core, x, memory: core(x, memory))
    (z, f), out = np.asarray(core.gates), np.asarray(core.output_gate.weight)
    c, x = np.zeros(SIZE), INPUT[:, 0]
    memory = jax.tree.map(lambda m: np.asarray(m)[0], memory)
    for t in range(TIME):
        candidate = np.tanh(z[:, :INPUTS] @ x[t] + z[:, INPUTS] * c + z[:, INPUTS + 1])
        forget = 1 / (1 + np.exp(-(f[:, :INPUTS] @ x[t] + f[:, INPUTS] * c + f[:, INPUTS + 1])))
        c = forget * c + (1 - forget) * candidate
        gate = 1 / (1 + np.exp(-(np.concatenate([x[t], c]) @ out + np.arange(SIZE) / 3)))
        features, memory = step(core, x[t], memory)
        np.testing.assert_allclose(memory.cell, c, rtol=1e-6)
        np.testing.assert_allclose(features, gate * c, rtol=1e-6)
    assert f[:, -1].mean() == pytest.approx(2.0, abs=0.2) and abs(z.mean()) < 0.1


@pytest.mark.long
@pytest.mark.parametrize("first", [NO_RESET, RESETS], ids=["one-episode", "several"])
def test_sensitivities_are_the_jacobian_since_the_episode_start(first):
    network = body()

    def cells(gates):
        changed = eqx.tree_at(lambda b: b.core.gates, network, gates)
        return final_memory(changed, changed.init_memory(ROWS), INPUT, first).cell

    jacobian = jax.jit(jax.jacobian(cells))(network.core.gates)  # [row, unit, 2, unit, weight]
    carried = final_memory(network, network.init_memory(ROWS), INPUT, first).sensitivity
    np.testing.assert_allclose(carried, np.einsum("ruguw->rguw", jacobian), rtol=1e-10, atol=1e-14)
    between = ~np.eye(SIZE, dtype=bool)
    # other entries are zero and need not be carried
    assert not np.moveaxis(np.asarray(jacobian), 2, 0)[:, :, between].any()
    step = 1e-6 * RNG.normal(size=LARGE.shape)
    gates, carried = np.asarray(network.core.gates), np.asarray(carried)
    difference = (np.asarray(cells(gates + step)) - np.asarray(cells(gates - step))) / 2
    np.testing.assert_allclose(difference, (carried * step).sum((1, 3)), rtol=1e-5, atol=1e-13)


@pytest.mark.long
@pytest.mark.parametrize("first", [NO_RESET, RESETS], ids=["one-episode", "several"])
@pytest.mark.parametrize("length", [1, 4, 8])
def test_short_chunks_have_the_gradient_of_the_whole_episode(length, first):
    network = body()
    whole, short = gradient_at_once(network, first), gradient_in_chunks(network, length, first)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12), short, whole)


@pytest.mark.long
def test_truncated_gradients_differ_without_sensitivities():
    network = body(use_rtrl=False)
    assert network.init_memory(ROWS).sensitivity is None
    whole, short = gradient_at_once(network, NO_RESET), gradient_in_chunks(network, 4, NO_RESET)
    assert distance(short.core.gates, whole.core.gates) > 0.05
    np.testing.assert_allclose(short.core.output_gate.weight, whole.core.output_gate.weight, rtol=1e-10)
    np.testing.assert_array_equal(whole.core.gates, gradient_at_once(body(), NO_RESET).core.gates)
    with_resets = gradient_at_once(body(), RESETS)
    assert distance(with_resets.core.gates, whole.core.gates) > 0.05


@pytest.mark.long
def test_layers_before_the_core_have_truncated_gradients():
    networks = [body((3,), use_rtrl=carried) for carried in (True, False)]
    (with_rtrl, truncated), whole = (
        (gradient_in_chunks(network, 4, NO_RESET) for network in networks),
        gradient_at_once(networks[0], NO_RESET),
    )
    np.testing.assert_allclose(with_rtrl.core.gates, whole.core.gates, rtol=1e-10)
    input_weights = [gradient.mlp.layers[0].weight for gradient in (with_rtrl, truncated, whole)]
    np.testing.assert_allclose(input_weights[0], input_weights[1], rtol=1e-10)
    assert distance(input_weights[0], input_weights[2]) > 0.01


def test_resumed_memory_has_the_same_cells():
    network = body()
    memory = final_memory(network, network.init_memory(ROWS), INPUT, NO_RESET)
    assert np.abs(np.asarray(memory.sensitivity)).max() > 0.1
    np.testing.assert_array_equal(network.resume_memory(memory).cell, memory.cell)
