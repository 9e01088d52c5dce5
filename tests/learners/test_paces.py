"""What pixels, shifts and paces are, each against what is written down by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from made_up import quick_key

from thespis.core.conformance import check_environment
from thespis.core.spaces import Box, dict_space
from thespis.envs.compiled.pixel_reacher import THICK, PixelReacher, light
from thespis.envs.compiled.reacher import Reacher
from thespis.learners.augmentation import RandomShift
from thespis.learners.paces import Adaptive, Steady
from thespis.nets.trunk import OnTrunk

KEY = quick_key(0)


def run(pace, shares):
    """Which updates are made when the critic's share of active units is as told."""

    def step(state, given):
        i, share = given
        made = jnp.asarray(pace.chosen(state, i, True, False))
        return pace.told(state, share, i), made

    numbered = np.arange(len(shares), dtype="int32"), np.array(shares, "float32")
    state, made = jax.tree.map(np.asarray, jax.jit(lambda given: jax.lax.scan(step, pace.init(), given))(numbered))
    return made.tolist(), state


def test_a_pace_is_raised_when_activity_has_come_to_rest():
    falling = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3]
    made, state = run(Adaptive(one_in=2, every=4, over=2, gap=0.05), falling)
    # looks after the 4th, 8th and 12th: 0.7 after 0.9, 0.3 after 0.7, 0.3 after 0.3, of those updates that were made
    assert made == [True, False] * 6 and bool(state.raised)
    assert state.last == pytest.approx(0.3)
    longer, _ = run(Adaptive(one_in=2, every=4, over=2, gap=0.05), [*falling, 0.9, 0.1, 0.1])
    assert longer[12:] == [True, True, True]


def test_a_look_counts_the_last_updates_alone():
    _, state = run(Adaptive(one_in=1, every=6, over=2, gap=0.0), [0.5, 9.0, 9.0, 9.0, 0.4, 0.6])
    assert state.last == pytest.approx(0.5) and bool(state.raised)  # the first share stands for the look before


def test_a_steady_pace_makes_all():
    assert run(Steady(), [0.1] * 3) == ([True] * 3, ())


def test_images_are_shifted_and_edges_repeated():
    image = np.arange(5 * 4 * 3, dtype="uint8").reshape(5, 4, 3)
    space = dict_space(eye=Box((5, 4, 3), 0, 255, "uint8"), hand=Box((2,)))
    seen = {"eye": image, "hand": np.ones(2, "float32")}
    shift = jax.jit(lambda seen, key: jax.vmap(lambda k: RandomShift(2)(space, seen, k))(jax.random.split(key, 40)))
    found = jax.tree.map(np.asarray, shift(seen, KEY))
    padded = np.pad(image, [(2, 2), (2, 2), (0, 0)], mode="edge")
    shifted = {padded[i : i + 5, j : j + 4].tobytes() for i in range(5) for j in range(5)}
    drawn = {each.tobytes() for each in found["eye"]}
    assert drawn <= shifted and len(drawn) > 10
    assert (found["hand"] == 1).all()
    vector = jax.device_put(np.arange(3, dtype="float32"))
    assert (np.asarray(RandomShift(2)(Box((3,)), vector, KEY)) == np.asarray(vector)).all()


def test_light_falls_off_a_line():
    start, end, side = np.array([0.1, -0.3]), np.array([-0.6, 0.5]), 9
    drawn = jax.jit(light, static_argnums=2)(start.astype("float32"), end.astype("float32"), side)
    found = np.asarray(drawn)
    ways = start + np.linspace(0, 1, 2001)[:, None] * (end - start)
    reach = 1.0 + THICK
    for row in range(side):
        for column in range(side):
            centre = reach * np.array([(2 * column + 1) / side - 1, 1 - (2 * row + 1) / side])
            far = np.linalg.norm(ways - centre, axis=1).min()
            assert found[row, column] == pytest.approx(max(0.0, 1 - far / THICK), abs=0.01)


def test_the_filmed_world_is_the_reacher():
    world, plain = PixelReacher(), Reacher()
    check_environment(world)

    @jax.jit
    def both(state, bare, action, key):
        return world.step(state, action, key), plain.step(bare, action, key)

    (state, seen), (bare, _) = jax.jit(lambda key: (world.reset((), key), plain.reset((), key)))(KEY)
    before = np.asarray(seen.observation)
    for i in range(3):
        action = np.array([0.5, -1.0], "float32")
        (state, seen), (bare, answer) = both(state, bare, action, quick_key(i))
        seen = jax.tree.map(np.asarray, seen)
        assert seen.reward == np.asarray(answer.reward)
        assert (seen.observation[..., 1] == before[..., 0]).all()  # what the arm was is what it was
        before = seen.observation
    assert seen.observation[..., 2].max() > 0 and not (seen.observation[..., 0] == seen.observation[..., 1]).all()


def test_active_units_are_those_above_zero():
    @jax.jit
    def told(key, features, beside):
        net = OnTrunk(3, 2, 1, (4, 5), 1, key)
        return net, net(features, beside), net.trunk.linear(features)

    given = np.array([0.3, -1.0, 2.0], "float32"), np.array([0.7], "float32")
    net, (out, active), low = jax.tree.map(np.asarray, told(KEY, *given))
    low = low.astype("float64")
    x = np.append(np.tanh((low - low.mean()) / np.sqrt(low.var() + 1e-5)), 0.7)
    above = []
    for layer in net.mlp.layers:
        x = np.maximum(x @ np.asarray(layer.weight, np.float64) + np.asarray(layer.bias), 0.0)
        above += list(x > 0)
    assert active == pytest.approx(np.mean(above))
    assert out[0] == pytest.approx(float(x @ np.asarray(net.out.weight, np.float64)[:, 0] + net.out.bias[0]), abs=1e-4)
