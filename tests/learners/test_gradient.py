"""Step sizes that fall."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from thespis.learners.gradient import Adam, Falling, RMSProp, gradient_step
from thespis.methods.online.ppo import PPO
from thespis.runs.config import apply_settings, from_config, to_config


@pytest.mark.parametrize("kind", [Adam, RMSProp])
def test_a_step_falls_with_the_root_of_their_number(kind):
    """On a constant gradient of 1 Adam moves by the step size itself, and RMSProp, which begins at 1, as well."""
    optimiser = kind(Falling(0.5, 4.0), epsilon=0.0)
    at = jnp.zeros(())
    state, moves = optimiser.init(at), []
    for _ in range(13):
        new, state, _, _ = gradient_step(optimiser, lambda x: (x, ()), at, state)
        moves.append(float(at - new))
        at = new
    np.testing.assert_allclose(moves, [0.5 / np.sqrt(1 + n / 4) for n in range(13)], rtol=1e-4)


def test_it_is_a_setting():
    method = apply_settings(PPO(), ["learning_rate=Falling", "learning_rate.halfway=50"])
    assert method.learning_rate == Falling(1e-3, 50.0)
    assert from_config(to_config(method)) == method
    assert apply_settings(method, ["learning_rate=1e-4"]).learning_rate == 1e-4
