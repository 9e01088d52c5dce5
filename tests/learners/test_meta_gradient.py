"""The discount's meta-gradient against finite differences, and where one critic points the wrong way, by hand."""

from __future__ import annotations

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import made_up
import numpy as np
import pytest
from worlds import Walk

from thespis.core.errors import UserError
from thespis.core.feeds import Rollouts
from thespis.core.records import Batch, Transition, View
from thespis.core.samples import random_steps
from thespis.core.spaces import Discrete
from thespis.envs.compiled.delayed_chain import DelayedChain
from thespis.learners.meta_gradient import Bounded, OneHead, TwoHeads
from thespis.methods.online.a2c import A2C
from thespis.methods.online.meta_a2c import MetaA2C
from thespis.nets.body import GRU

KEY = made_up.quick_key(0)
SPEC = Walk(Discrete(3)).spec


def method(outer, **settings):
    inner = A2C(hidden=(5,), discount=0.8, trace=0.7, entropy_weight=0.02, feed=Rollouts(4, envs=2), **settings)
    return MetaA2C(inner, outer, Bounded(0.5, 0.95), 0.97, 0.9, outer_entropy_weight=0.01)


def doubled(tree):
    return jax.tree.map(lambda x: x.astype("float64") if x.dtype == jnp.float32 else x, tree)


def outer_loss(network, verdict, weight):
    """What the rollout says of a network: a sum over its steps, written out."""
    total = 0.0
    for time, row in np.ndindex(verdict.advantage.shape):
        view, action = jax.tree.map(lambda x, at=(time, row): x[at], (verdict.view, verdict.action))
        chosen = network.choose(((), ()), view)[0]
        total -= chosen.log_prob(action) * verdict.advantage[time, row] + weight * chosen.entropy()
    return total / verdict.advantage.size


@pytest.mark.parametrize("optimiser", ["adam", pytest.param("rmsprop", marks=pytest.mark.slow)])
@pytest.mark.parametrize("outer", [OneHead(), TwoHeads()], ids=["one", "two"])
def test_it_is_the_slope_of_what_the_step_is_worth(outer, optimiser):
    """Central differences in double precision: the first rollout's step under a little more and a little less."""
    chosen = method(outer, optimiser=optimiser, max_gradient_norm=0.1)  # so small that clipping matters
    with jax.enable_x64(True):
        state = doubled(jax.jit(lambda: chosen.init(SPEC, KEY))())
        draw = functools.partial(random_steps, SPEC, np.random.default_rng(0), 4, 2)
        experience = jax.jit(lambda steps: made_up.experience(chosen, state, steps, KEY))
        first, second = (doubled(experience(draw())) for _ in range(2))
        update = jax.jit(lambda state, batch: chosen.update(state, batch, KEY))
        judged = jax.jit(functools.partial(outer_loss, weight=0.01))
        after, _ = update(state, first)
        _, report = update(after, second)
        judging = outer.judging(after.network, after.outer)
        verdict = chosen._outer().assess(judging, after.scales, second)
        h = 1e-4
        moved = [update(dataclasses.replace(state, number=state.number + way), first)[0] for way in (h, -h)]
        slope = (judged(moved[0].network, verdict) - judged(moved[1].network, verdict)) / (2 * h)
    assert abs(float(slope)) > 1e-7
    assert float(report.metrics["meta_gradient"]) == pytest.approx(float(slope), rel=1e-4)


def test_a_discount_is_kept_between_its_bounds():
    bounds = Bounded(0.9, 1.0)
    assert float(bounds.discount(bounds.number(0.95))) == pytest.approx(0.95)
    assert float(bounds.discount(bounds.number(0.99))) == pytest.approx(0.99, abs=1e-6)
    assert float(bounds.discount(jnp.float32(-30))) == pytest.approx(0.9)
    assert 0.9 < float(bounds.discount(jnp.float32(3))) < 1.0


def solved(world, discount):
    """Values of every place by enumeration, in the order in which places are seen; of the beginning: the best."""
    first = max(world.value(i, 0, discount) for i in range(len(world.delays)))
    return [first] + [world.value(i, t, discount) for i in range(len(world.delays)) for t in range(1, world.length + 1)]


def test_one_critic_favours_what_pays_at_once():
    """Two choices, paid 1 at once or 1.1 after ten steps; critics are right, each under its discount; one step is seen.

    Outer discount 1: the late choice is worth 1.1 - 1, so the meta-gradient should draw the discount up (values of the
    learnt discount say 1.1 * 0.9 ** 9 = 0.43 - 1). By hand, advantages of the late choice before the choice is made:
    with two critics 1.1 - 1.1 = 0 against 1 - 1.1 = -0.1 of the early one, with one 0.43 - 1 against 1 - 1.
    """
    world = DelayedChain((1, 10), (1.0, 1.1))
    inner = A2C(hidden=(), discount=0.9, trace=0.0, entropy_weight=0.0, feed=Rollouts(1, envs=2))
    found = {}
    for outer, discount in ((OneHead(), 0.9), (TwoHeads(), 1.0)):
        chosen = MetaA2C(inner, outer, Bounded(0.5, 1.0), outer_trace=0.0)
        state = jax.jit(lambda chosen=chosen: chosen.init(world.spec, KEY))()
        update = jax.jit(chosen.update)

        def right(critic, discount):
            weight = jnp.asarray(solved(world, discount), "float32")[:, None]
            return eqx.tree_at(lambda c: (c.out.weight, c.out.bias), critic, (weight, jnp.zeros(1)))

        network = eqx.tree_at(lambda n: n.critic, state.network, right(state.network.critic, 0.9))
        network = eqx.tree_at(lambda n: n.head, network, jax.tree.map(jnp.zeros_like, network.head))
        second = right(network.critic, 1.0) if isinstance(outer, TwoHeads) else ()
        state = dataclasses.replace(state, network=network, outer=second)
        seen = jnp.eye(world.spec.observation.shape[0])
        one = jnp.stack([seen[0], seen[0]])[None]
        other = jnp.stack([seen[1], seen[1 + world.length]])[None]
        no, reward = jnp.zeros((1, 2), bool), jnp.array([[1.0, 0.0]])
        extras = {"log_prob": jnp.log(jnp.full((1, 2), 0.5))}
        steps = Transition(View(one), jnp.array([[0, 1]]), reward, no, no, View(other), ~no, extras)
        batch = Batch(steps, ~no, network.begin(2), jnp.int32(0))
        advantage = chosen._outer().assess(outer.judging(network, second), state.scales, batch).advantage[0]
        best = max(world.value(i, 0, discount) for i in range(2))
        late = world.value(1, 1, discount)
        np.testing.assert_allclose(advantage, [1.0 - best, late - best], atol=1e-5)
        after, _ = update(state, batch, KEY)
        _, report = update(after, batch, KEY)
        found[type(outer)] = float(report.metrics["meta_gradient"])
    assert found[TwoHeads] < 0 < found[OneHead]  # descending: up with the discount, and down


def test_a_critic_judges_by_its_own_discount():
    steps = jax.tree.map(lambda x: x[:, 0], random_steps(SPEC, np.random.default_rng(0), 4, 1))
    for outer, discount in ((OneHead(), 0.8), (TwoHeads(), 0.97)):
        chosen = method(outer)
        state = jax.jit(lambda chosen=chosen: chosen.init(SPEC, KEY))()
        opinion = jax.jit(chosen.judge)(state, jax.tree.map(jnp.asarray, steps))
        assert float(opinion.discount) == pytest.approx(discount, rel=1e-5)
        critic = state.outer if isinstance(outer, TwoHeads) else state.network.critic
        wanted = jax.vmap(lambda o, critic=critic: critic((), o)[0])(jnp.asarray(steps.view.observation))
        np.testing.assert_allclose(opinion.value, wanted, rtol=1e-5)


def test_what_has_no_gradient_is_not_moved():
    """Of a one-hot place that was not visited; Adam's root has no slope there."""
    chosen = method(OneHead(), optimiser="adam")
    world = DelayedChain((1, 2), (1.0, 1.1))
    state = jax.jit(lambda: chosen.init(world.spec, KEY))()
    steps = jax.tree.map(jnp.asarray, random_steps(world.spec, np.random.default_rng(0), 4, 2))
    nowhere = View(jnp.zeros_like(steps.view.observation).at[..., 1].set(1.0))
    steps = dataclasses.replace(steps, view=nowhere, next_view=nowhere)
    acting = jax.jit(lambda state, steps: made_up.experience(chosen, state, steps, KEY))
    after, _ = jax.jit(chosen.update)(state, acting(state, steps), KEY)
    slopes = np.asarray(after.tangent.body.mlp.layers[0].weight)
    assert np.isfinite(slopes).all() and abs(slopes[1]).max() > 0
    assert (np.delete(slopes, 1, axis=0) == 0).all()


def test_memory_is_refused():
    with pytest.raises(UserError, match="memory"):
        MetaA2C(A2C(memory=GRU(4))).init(SPEC, KEY)
