"""Cosine between gradients of a critic and of returns, in an environment with known gradients."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import pytest

from thespis.core.records import Critique, EnvSpec, Report, TimeStep
from thespis.core.spaces import Box
from thespis.data.feeds import Rollouts
from thespis.papers.hypernetwork_q_policy.measures import seed_gradient_cosine
from thespis.runtime.keys import seed_key


class PointEnv(eqx.Module):
    """A point that moves by its action; the reward is minus the squared distance from (1, 2)."""

    spec = EnvSpec("sliding", Box((2,)), Box((2,), -1.0, 1.0), time_limit=10)

    def reset(self, params, key):
        place = jnp.zeros(2)
        return place, TimeStep(place, jnp.zeros(()), jnp.zeros((), bool), jnp.zeros((), bool))

    def step(self, state, action, key):
        place = state + action
        reward = -jnp.sum((place - jnp.array([1.0, 2.0])) ** 2)
        return place, TimeStep(place, reward, jnp.zeros((), bool), jnp.zeros((), bool))


class FixedCritic(eqx.Module):
    """Never moves. Its critic is linear in the action, or the true value with ``knows``."""

    slope: tuple[float, float] = eqx.field(static=True)
    knows: bool = eqx.field(static=True, default=False)

    name, citations, details, feed = "still", (), (), Rollouts(1)

    def init(self, spec, key):
        return ()

    def update(self, state, batch, key):
        return state, Report({})

    def policy(self, state, mode):
        return ()

    def init_memory(self, policy, n):
        return ()

    def act(self, policy, memory, view, key):
        return jnp.zeros_like(view.observation), (), ()

    def judge(self, state, episode):
        value = episode.action @ jnp.array(self.slope)
        if self.knows:  # 1 + 1/2 + 1/4: three equal rewards at a discount of one half
            place = episode.view.observation + episode.action
            value = -1.75 * jnp.sum((place - jnp.array([1.0, 2.0])) ** 2, axis=-1)
        return Critique(value, discount=0.5)


@pytest.mark.long
@pytest.mark.parametrize(
    ("critic", "cosine"),
    [
        (FixedCritic((0.0, 0.0), knows=True), 1.0),
        (FixedCritic((1.0, 2.0)), 1.0),
        (FixedCritic((-2.0, 1.0)), 0.0),
        (FixedCritic((-1.0, -2.0)), -1.0),
        (FixedCritic((1.0, 0.0)), 5**-0.5),
    ],
)
def test_gradients_are_compared_with_those_of_returns(critic, cosine):
    assert seed_gradient_cosine(PointEnv(), critic, (), 3, 3, seed_key(0)) == pytest.approx(cosine, abs=1e-3)
