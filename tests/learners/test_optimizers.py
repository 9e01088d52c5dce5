"""Step-size schedules: actual steps of Adam and RMSProp against the formulas, and selection by a setting."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from thespis.core.errors import UserError
from thespis.learners.optim.optimizers import (
    Adam,
    InverseSqrtSchedule,
    LinearSchedule,
    OptaxOptimizer,
    OptaxSchedule,
    RMSProp,
    build_optimizer,
    gradient_step,
)
from thespis.methods.online.ppo import PPO
from thespis.methods.online.sac import SAC
from thespis.runs.config import apply_settings, from_config, to_config


@pytest.mark.parametrize("kind", [Adam, RMSProp])
@pytest.mark.parametrize(
    "schedule, step_size",
    [
        pytest.param(InverseSqrtSchedule(0.5, 4.0), lambda n: 0.5 / np.sqrt(1 + n / 4), id="inverse-sqrt"),
        pytest.param(LinearSchedule(0.5, 10.0), lambda n: max(0.5 - 0.05 * n, 0.0), id="linear"),
    ],
)
def test_step_size_follows_the_schedule(kind, schedule, step_size):
    """With a constant gradient of 1, Adam and RMSProp (whose moment starts at 1) move by exactly the step size."""
    optimizer = kind(schedule, eps=0.0)
    x = jnp.zeros(())
    state, moves = optimizer.init(x), []
    for _ in range(13):
        updated, state, _, _ = gradient_step(optimizer, lambda x: (x, ()), x, state)
        moves.append(float(x - updated))
        x = updated
    np.testing.assert_allclose(moves, [step_size(n) for n in range(13)], rtol=1e-4)


def test_schedule_is_a_setting():
    method = apply_settings(PPO(), ["learning_rate=InverseSqrtSchedule", "learning_rate.timescale=50"])
    assert method.learning_rate == InverseSqrtSchedule(1e-3, 50.0)
    assert from_config(to_config(method)) == method
    assert apply_settings(method, ["learning_rate=1e-4"]).learning_rate == 1e-4


def steps_of(optimizer, num_steps=5):
    """Parameters after each step on ``(x - 3)^2 + y^2``, with gradients clipped to norm 1."""
    params, path = {"x": jnp.zeros(()), "y": jnp.ones(2)}, []
    state = optimizer.init(params)
    for _ in range(num_steps):
        loss = lambda p: ((p["x"] - 3.0) ** 2 + (p["y"] ** 2).sum(), ())  # noqa: E731
        params, state, _, _ = gradient_step(optimizer, loss, params, state)
        path.append(jax.tree.map(np.asarray, params))
    return path


def test_any_optimizer_and_schedule_of_optax_can_be_named():
    schedule = OptaxSchedule("cosine_decay_schedule(0.1, decay_steps=4)")
    path = steps_of(build_optimizer(OptaxOptimizer("lion(b1=0.8, weight_decay=0.1)"), schedule, 1.0))
    rate = optax.cosine_decay_schedule(0.1, 4)
    transform = optax.chain(optax.clip_by_global_norm(1.0), optax.lion(rate, b1=0.8, weight_decay=0.1))
    params = {"x": jnp.zeros(()), "y": jnp.ones(2)}
    state = transform.init(params)
    for after in path:
        gradient = jax.grad(lambda p: (p["x"] - 3.0) ** 2 + (p["y"] ** 2).sum())(params)
        updates, state = transform.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
        jax.tree.map(np.testing.assert_array_equal, after, params)


def test_without_a_name_the_optimizer_is_adam():
    adam, named = Adam(0.1, 1.0), OptaxOptimizer("adam()")
    jax.tree.map(np.testing.assert_array_equal, steps_of(build_optimizer(None, 0.1, 1.0)), steps_of(adam))
    jax.tree.map(np.testing.assert_array_equal, steps_of(build_optimizer(named, 0.1, 1.0)), steps_of(adam))


@pytest.mark.parametrize("method", [SAC(), PPO()])
def test_optimizers_of_optax_are_settings(method):
    settings = ["optimizer=OptaxOptimizer", "optimizer.call=lion(weight_decay=0.1)", "learning_rate=OptaxSchedule"]
    changed = apply_settings(method, [*settings, "learning_rate.call=linear_schedule(1e-3, 0.0, 500)"])
    assert changed.optimizer == OptaxOptimizer("lion(weight_decay=0.1)")
    assert float(changed.learning_rate(jnp.int32(250))) == pytest.approx(5e-4)
    assert from_config(to_config(changed)) == changed
    assert dataclasses.replace(changed, optimizer=method.optimizer, learning_rate=method.learning_rate) == method


@pytest.mark.parametrize(
    "setting, message",
    [
        ("optimizer.call=nosuch()", "optax cannot build 'nosuch()'"),
        ("optimizer.call=lion(weight=1)", "unexpected keyword argument 'weight'"),
        ("optimizer.call=cosine_decay_schedule(10)", "is no optimizer of optax"),
        ("optimizer.call=__import__('os').getcwd()", "a name of optax and its arguments are wanted"),
        ("learning_rate.call=adam(1e-3)", "is no schedule of optax"),
    ],
)
def test_unknown_optax_calls_are_refused(setting, message):
    method = apply_settings(SAC(), ["optimizer=OptaxOptimizer", "learning_rate=OptaxSchedule"])
    with pytest.raises(UserError, match="is refused") as error:
        apply_settings(method, [setting])
    assert message in str(error.value)
