"""Where slopes of a critic agree with those of returns is known for a world of one formula."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import pytest

from thespis.core.feeds import Rollouts
from thespis.core.keys import key_of
from thespis.core.records import Critique, EnvSpec, Report, TimeStep
from thespis.core.spaces import Box
from thespis.evidence.slopes import agreement


class Sliding(eqx.Module):
    """A point moves by what is done, and pays for its distance from (1, 2)."""

    spec = EnvSpec("sliding", Box((2,)), Box((2,), -1.0, 1.0), time_limit=10)

    def reset(self, params, key):
        place = jnp.zeros(2)
        return place, TimeStep(place, jnp.zeros(()), jnp.zeros((), bool), jnp.zeros((), bool))

    def step(self, state, action, key):
        place = state + action
        paid = -jnp.sum((place - jnp.array([1.0, 2.0])) ** 2)
        return place, TimeStep(place, paid, jnp.zeros((), bool), jnp.zeros((), bool))


class Still(eqx.Module):
    """Never moves by itself; its critic's slope along the action is as given, plus the truth if asked for."""

    slope: tuple[float, float] = eqx.field(static=True)
    knows: bool = eqx.field(static=True, default=False)

    name, citations, details, feed = "still", (), (), Rollouts(1)

    def init(self, spec, key):
        return ()

    def update(self, state, batch, key):
        return state, Report({})

    def policy(self, state, mode):
        return ()

    def begin(self, policy, n):
        return ()

    def act(self, policy, memory, view, key):
        return jnp.zeros_like(view.observation), (), ()

    def judge(self, state, episode):
        found = episode.action @ jnp.array(self.slope)
        if self.knows:  # two steps and a half at a discount of one half, all paid alike
            place = episode.view.observation + episode.action
            found = -1.75 * jnp.sum((place - jnp.array([1.0, 2.0])) ** 2, axis=-1)
        return Critique(found, discount=0.5)


@pytest.mark.parametrize(
    ("critic", "cosine"),
    [
        (Still((0.0, 0.0), knows=True), 1.0),
        (Still((1.0, 2.0)), 1.0),
        (Still((-2.0, 1.0)), 0.0),
        (Still((-1.0, -2.0)), -1.0),
        (Still((1.0, 0.0)), 5**-0.5),
    ],
)
def test_slopes_are_compared_with_those_of_returns(critic, cosine):
    assert agreement(Sliding(), critic, (), 3, 3, key_of(0)) == pytest.approx(cosine, abs=1e-3)
