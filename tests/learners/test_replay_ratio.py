"""Replay-ratio schedules, random image shifts and the pixel reacher, against hand-written references."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from synthetic_batches import quick_key

from thespis.actors.visual_encoder import TrunkMLP
from thespis.core.laws.components import check_environment
from thespis.core.laws.random_samples import random_transitions
from thespis.core.records import Batch, EnvSpec
from thespis.core.spaces import Box, dict_space
from thespis.envs.compiled.reacher import Reacher
from thespis.learners.off_policy.replay_ratio import Adaptive, Fixed
from thespis.methods.online.drq_v2 import DrQv2, RandomShift
from thespis.papers.adaptive_rr.envs import LINE_HALF_WIDTH, PixelReacher, draw_line

KEY = quick_key(0)


def run(schedule, shares):
    """Whether each update is made for a sequence of the critic's active-unit ratios, and the final state."""

    def step(state, inputs):
        i, share = inputs
        is_update = jnp.asarray(schedule.select(state, i, True, False))
        return schedule.update(state, share, i), is_update

    inputs = np.arange(len(shares), dtype="int32"), np.array(shares, "float32")
    state, update_flags = jax.tree.map(
        np.asarray, jax.jit(lambda inputs: jax.lax.scan(step, schedule.init(), inputs))(inputs)
    )
    return update_flags.tolist(), state


def test_adaptive_ratio_is_raised_when_activity_stops_changing():
    ratios = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3]
    update_flags, state = run(Adaptive(update_interval=2, check_interval=4, check_window=2, tolerance=0.05), ratios)
    # checks after the 4th, 8th and 12th update see 0.7 after 0.9, 0.3 after 0.7 and 0.3 after 0.3 (updates made only)
    assert update_flags == [True, False] * 6 and bool(state.ratio_raised)
    assert state.num_applied == 6
    assert state.last_mean == pytest.approx(0.3)
    longer_flags, _ = run(
        Adaptive(update_interval=2, check_interval=4, check_window=2, tolerance=0.05), [*ratios, 0.9, 0.1, 0.1]
    )
    assert longer_flags[12:] == [True, True, True]


def test_a_check_averages_the_last_updates_only():
    _, state = run(
        Adaptive(update_interval=1, check_interval=6, check_window=2, tolerance=0.0), [0.5, 9.0, 9.0, 9.0, 0.4, 0.6]
    )
    # the first ratio counts as the previous mean
    assert state.last_mean == pytest.approx(0.5) and bool(state.ratio_raised)


def test_fixed_ratio_makes_every_update():
    assert run(Fixed(), [0.1] * 3) == ([True] * 3, ())
    assert int(Fixed().num_applied((), jnp.int32(3))) == 3


@pytest.mark.long
def test_noise_decays_with_updates_offered():
    """As many as environment steps allow, whatever share of them the ratio applies."""
    method = DrQv2(
        hidden_sizes=(4,),
        feature_size=4,
        initial_exploration_noise=1.0,
        exploration_noise=0.1,
        noise_decay_updates=8.0,
        replay_ratio=Adaptive(update_interval=2, check_interval=100),
    )
    spec = EnvSpec("box", Box((3,), -1.0, 1.0), Box((2,), -1.0, 1.0))
    state = method.init(spec, KEY)
    update = jax.jit(method.update)
    for i in range(4):
        steps = random_transitions(spec, np.random.default_rng(i), 3, 2)
        batch = Batch(steps, jnp.ones((3, 2), bool), (), jnp.int32(i))
        before = state
        state, report = update(state, batch, KEY)
        changed = not jax.tree.all(
            jax.tree.map(lambda x, y: bool((x == y).all()), eqx.filter(before.critics, eqx.is_array), state.critics)
        )
        assert changed == (i % 2 == 0)
    assert float(method.noise_std(state.num_updates)) == pytest.approx(0.55)
    assert int(report.metrics["updates_made"]) == 2


def test_random_shift_pads_images_with_their_edges():
    image = np.arange(5 * 4 * 3, dtype="uint8").reshape(5, 4, 3)
    space = dict_space(eye=Box((5, 4, 3), 0, 255, "uint8"), hand=Box((2,)))
    obs = {"eye": image, "hand": np.ones(2, "float32")}
    shift = jax.jit(lambda obs, key: jax.vmap(lambda k: RandomShift(2)(space, obs, k))(jax.random.split(key, 40)))
    result = jax.tree.map(np.asarray, shift(obs, KEY))
    padded = np.pad(image, [(2, 2), (2, 2), (0, 0)], mode="edge")
    shifted = {padded[i : i + 5, j : j + 4].tobytes() for i in range(5) for j in range(5)}
    results = {image.tobytes() for image in result["eye"]}
    assert results <= shifted and len(results) > 10
    assert (result["hand"] == 1).all()
    vector = jax.device_put(np.arange(3, dtype="float32"))
    assert (np.asarray(RandomShift(2)(Box((3,)), vector, KEY)) == np.asarray(vector)).all()


def test_drawn_line_fades_with_distance():
    start, end, side = np.array([0.1, -0.3]), np.array([-0.6, 0.5]), 9
    image = jax.jit(draw_line, static_argnums=2)(start.astype("float32"), end.astype("float32"), side)
    result = np.asarray(image)
    points = start + np.linspace(0, 1, 2001)[:, None] * (end - start)
    extent = 1.0 + LINE_HALF_WIDTH
    for row in range(side):
        for column in range(side):
            center = extent * np.array([(2 * column + 1) / side - 1, 1 - (2 * row + 1) / side])
            distance = np.linalg.norm(points - center, axis=1).min()
            assert result[row, column] == pytest.approx(max(0.0, 1 - distance / LINE_HALF_WIDTH), abs=0.01)


@pytest.mark.long
def test_pixel_reacher_has_the_dynamics_of_reacher():
    env, reacher = PixelReacher(), Reacher()
    check_environment(env)

    @jax.jit
    def both(state, reacher_state, action, key):
        return env.step(state, action, key), reacher.step(reacher_state, action, key)

    (state, step), (reacher_state, _) = jax.jit(lambda key: (env.reset((), key), reacher.reset((), key)))(KEY)
    last_obs = np.asarray(step.observation)
    for i in range(3):
        action = np.array([0.5, -1.0], "float32")
        (state, step), (reacher_state, reacher_step) = both(state, reacher_state, action, quick_key(i))
        step = jax.tree.map(np.asarray, step)
        assert step.reward == np.asarray(reacher_step.reward)
        assert (step.observation[..., 1] == last_obs[..., 0]).all()  # the second channel is the previous frame
        last_obs = step.observation
    assert step.observation[..., 2].max() > 0 and not (step.observation[..., 0] == step.observation[..., 1]).all()


def test_active_ratio_counts_units_above_zero():
    @jax.jit
    def forward(key, features, extra):
        network = TrunkMLP(3, 2, 1, (4, 5), 1, key)
        return network, network(features, extra), network.trunk.linear(features)

    inputs = np.array([0.3, -1.0, 2.0], "float32"), np.array([0.7], "float32")
    network, (out, active), projected = jax.tree.map(np.asarray, forward(KEY, *inputs))
    projected = projected.astype("float64")
    x = np.append(np.tanh((projected - projected.mean()) / np.sqrt(projected.var() + 1e-5)), 0.7)
    active_flags = []
    for layer in network.mlp.layers:
        x = np.maximum(x @ np.asarray(layer.weight, np.float64) + np.asarray(layer.bias), 0.0)
        active_flags += list(x > 0)
    assert active == pytest.approx(np.mean(active_flags))
    assert out[0] == pytest.approx(
        float(x @ np.asarray(network.out.weight, np.float64)[:, 0] + network.out.bias[0]), abs=1e-4
    )
