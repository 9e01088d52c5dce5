"""The element-wise LSTM against numpy, its sensitivities against differentiation, its gradients against one long pass.

In float64, in which equal gradients are equal to ten digits.
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
SEEN, WANTED = RNG.normal(size=(TIME, ROWS, INPUTS)), RNG.normal(size=(TIME, ROWS, SIZE))
LARGE = RNG.normal(size=(2, SIZE, INPUTS + 2))  # larger than at the start, so that what is far back matters
NEVER = np.zeros((TIME, ROWS), bool)
ENDS = NEVER.copy()
ENDS[[5, 12, 13, 20], [0, 1, 1, 2]] = True  # within a stretch, at its beginning, twice in a row


@pytest.fixture(autouse=True)
def exactly():
    with jax.enable_x64(True):
        yield


@functools.cache
def body(hidden=(), **settings):
    @eqx.filter_jit
    def made(key):
        memory = ELSTM(SIZE, **settings)
        found = Body(Box((INPUTS,)), hidden, key, init=orthogonal(1.0), activation=jnp.tanh, memory=memory)
        found = jax.tree.map(lambda x: jnp.asarray(x, "float64"), found)
        return eqx.tree_at(lambda b: b.core.gates, found, jnp.asarray(LARGE[..., : (hidden or (INPUTS,))[-1] + 2]))

    return made(KEY)


@eqx.filter_jit
def acted(net, memory, seen, first):
    """The memory after a stretch, as acting makes it: step by step, row by row, cleared where an episode begins."""

    def step(memory, inputs):
        x, begins = inputs
        memory = jax.vmap(lambda m, b: jax.tree.map(lambda leaf: leaf * (1 - b), m))(memory, begins.astype("float64"))
        return jax.vmap(net)(memory, x)[1], None

    return jax.lax.scan(step, memory, (seen, first))[0]


@eqx.filter_jit
@eqx.filter_grad
def gradient_of(net, memory, seen, wanted, first):
    features, _ = unroll(net, net.resumed(memory), seen, first)
    return jnp.sum(jnp.sin(3 * features) * wanted)


def in_stretches(net, length, first):
    """The sum of the gradients of stretches, each begun with the memory that acting had left."""
    memory, parts = net.begin(ROWS), []
    for t in range(0, TIME, length):
        part = slice(t, t + length)
        parts.append(gradient_of(net, memory, SEEN[part], WANTED[part], first[part]))
        memory = acted(net, memory, SEEN[part], first[part])
    return jax.tree.map(lambda *x: sum(x), *jax.tree.map(np.asarray, parts))


def at_once(net, first):
    return gradient_of(net, net.begin(ROWS), SEEN, WANTED, first)


def distance(one, other):
    one, other = np.asarray(one), np.asarray(other)
    return float(np.abs(one - other).max() / np.abs(other).max())


def test_a_step_against_numpy():
    @eqx.filter_jit
    def begun(key):
        core = ELSTM(SIZE, forget=2.0).build(INPUTS, key)
        return eqx.tree_at(lambda c: c.output.bias, core, jnp.arange(SIZE) / 3), core.begin(1)

    core, memory = begun(KEY)
    step = eqx.filter_jit(lambda core, x, memory: core(x, memory))
    (z, f), out = np.asarray(core.gates), np.asarray(core.output.weight)
    c, x = np.zeros(SIZE), SEEN[:, 0]
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


@pytest.mark.parametrize("first", [NEVER, ENDS], ids=["one-episode", "several"])
def test_sensitivities_are_the_jacobian_since_the_beginning_of_the_episode(first):
    net = body()

    def cells(gates):
        changed = eqx.tree_at(lambda b: b.core.gates, net, gates)
        return acted(changed, changed.begin(ROWS), SEEN, first).cell

    jacobian = jax.jit(jax.jacobian(cells))(net.core.gates)  # [row, unit, 2, unit, weight]
    carried = acted(net, net.begin(ROWS), SEEN, first).sensitivity
    np.testing.assert_allclose(carried, np.einsum("ruguw->rguw", jacobian), rtol=1e-10, atol=1e-14)
    between = ~np.eye(SIZE, dtype=bool)
    assert not np.moveaxis(np.asarray(jacobian), 2, 0)[:, :, between].any()  # nothing else is to be carried
    step = 1e-6 * RNG.normal(size=LARGE.shape)
    gates, carried = np.asarray(net.core.gates), np.asarray(carried)
    difference = (np.asarray(cells(gates + step)) - np.asarray(cells(gates - step))) / 2
    np.testing.assert_allclose(difference, (carried * step).sum((1, 3)), rtol=1e-5, atol=1e-13)


@pytest.mark.parametrize("first", [NEVER, ENDS], ids=["one-episode", "several"])
@pytest.mark.parametrize("length", [1, 4, 8])
def test_short_stretches_have_the_gradient_of_all_the_episode(length, first):
    net = body()
    whole, short = at_once(net, first), in_stretches(net, length, first)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12), short, whole)


def test_without_sensitivities_they_do_not():
    net = body(sensitivities=False)
    assert net.begin(ROWS).sensitivity is None
    whole, short = at_once(net, NEVER), in_stretches(net, 4, NEVER)
    assert distance(short.core.gates, whole.core.gates) > 0.05
    np.testing.assert_allclose(short.core.output.weight, whole.core.output.weight, rtol=1e-10)
    np.testing.assert_array_equal(whole.core.gates, at_once(body(), NEVER).core.gates)
    once_cleared = at_once(body(), ENDS)
    assert distance(once_cleared.core.gates, whole.core.gates) > 0.05


def test_layers_before_the_core_learn_through_the_stretch_alone():
    nets = [body((3,), sensitivities=carried) for carried in (True, False)]
    (by_all, truncated), whole = (in_stretches(net, 4, NEVER) for net in nets), at_once(nets[0], NEVER)
    np.testing.assert_allclose(by_all.core.gates, whole.core.gates, rtol=1e-10)
    before = [gradient.mlp.layers[0].weight for gradient in (by_all, truncated, whole)]
    np.testing.assert_allclose(before[0], before[1], rtol=1e-10)
    assert distance(before[0], before[2]) > 0.01


def test_what_is_resumed_has_the_same_cells():
    net = body()
    memory = acted(net, net.begin(ROWS), SEEN, NEVER)
    assert np.abs(np.asarray(memory.sensitivity)).max() > 0.1
    np.testing.assert_array_equal(net.resumed(memory).cell, memory.cell)
