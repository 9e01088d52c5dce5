"""The delayed chain: every way to play it, and what that is worth."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.conformance import check_environment
from thespis.envs.compiled.delayed_chain import LONGER, DelayedChain


@pytest.mark.parametrize("world", [DelayedChain(), DelayedChain((2, 5), (1.0, -0.5)), LONGER])
@pytest.mark.parametrize("later", [0, 1])
def test_a_choice_is_paid_once_and_when_it_says(world, later):
    """Whatever is done later; values are sums over what is paid, discounted from there."""
    count, discount = len(world.delays), 0.9

    @jax.jit
    def play(first):
        def step(state, action):
            state, answer = world.step(state, action, jax.random.key(0))
            return state, answer

        actions = jnp.full(world.length, later).at[0].set(first)
        begun, start = world.reset((), jax.random.key(0))
        return start, jax.lax.scan(step, begun, actions)[1]

    seen = []
    for choice in range(count):
        start, steps = play(choice)
        wanted = np.zeros(world.length)
        wanted[world.delays[choice] - 1] = world.pays[choice]
        np.testing.assert_allclose(steps.reward, wanted)
        np.testing.assert_array_equal(steps.terminated, np.arange(world.length) == world.length - 1)
        for time in range(world.length + 1):
            left = sum(discount**k * paid for k, paid in enumerate(wanted[time:]))
            assert world.value(choice, time, discount) == pytest.approx(left)
        seen += [np.asarray(start.observation)[None], np.asarray(steps.observation)]
    places = np.concatenate(seen).argmax(1)
    assert len(set(places)) == 1 + count * world.length  # no two states look alike
    assert all((row == 1).sum() == 1 for row in np.concatenate(seen))


def test_patience_pays_if_little_is_discounted():
    world = DelayedChain()
    best = {g: max(range(3), key=lambda i, g=g: world.value(i, 0, g)) for g in (0.9, 0.95, 0.98, 0.99, 1.0)}
    assert best == {0.9: 0, 0.95: 0, 0.98: 0, 0.99: 2, 1.0: 2}


def test_it_keeps_the_laws():
    check_environment(DelayedChain((1, 3), (1.0, 1.1)))
