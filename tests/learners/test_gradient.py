"""Step sizes that fall."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from thespis.learners.gradient import Adam, Annealed, Falling, RMSProp, gradient_step
from thespis.methods.online.ppo import PPO
from thespis.runs.config import apply_settings, from_config, to_config


@pytest.mark.parametrize("kind", [Adam, RMSProp])
@pytest.mark.parametrize(
    "rate, size",
    [
        pytest.param(Falling(0.5, 4.0), lambda n: 0.5 / np.sqrt(1 + n / 4), id="with the root of their number"),
        pytest.param(Annealed(0.5, 10.0), lambda n: max(0.5 - 0.05 * n, 0.0), id="to nothing"),
    ],
)
def test_a_step_falls(kind, rate, size):
    """On a constant gradient of 1 Adam moves by the step size itself, and RMSProp, which begins at 1, as well."""
    optimiser = kind(rate, epsilon=0.0)
    at = jnp.zeros(())
    state, moves = optimiser.init(at), []
    for _ in range(13):
        new, state, _, _ = gradient_step(optimiser, lambda x: (x, ()), at, state)
        moves.append(float(at - new))
        at = new
    np.testing.assert_allclose(moves, [size(n) for n in range(13)], rtol=1e-4)


def test_it_is_a_setting():
    method = apply_settings(PPO(), ["learning_rate=Falling", "learning_rate.halfway=50"])
    assert method.learning_rate == Falling(1e-3, 50.0)
    assert from_config(to_config(method)) == method
    assert apply_settings(method, ["learning_rate=1e-4"]).learning_rate == 1e-4
