"""Sequences of actions: how they are played, and where the climb of their values ends, which is known by hand."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import made_up
import numpy as np
import pytest
from cases import CASES
from worlds import Walk

from thespis.actors.sequences import SequenceActor, SequencePolicy
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, View
from thespis.core.samples import random_steps
from thespis.core.spaces import Box, Discrete
from thespis.learners.gradient import Adam
from thespis.learners.recall import Recall, fit_dynamics
from thespis.methods.online.srl import SRL
from thespis.nets.dynamics import Dynamics

KEY = made_up.quick_key(0)
LINE = EnvSpec("line", Box((1,)), Box((1,), -1.0, 1.0))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def unit(cell, x, h):
    """The gated recurrent unit (Cho et al., 2014), in numpy and double precision."""
    weights = [np.asarray(w, float) for w in (cell.weight_ih, cell.bias, cell.weight_hh, cell.bias_n)]
    into, bias, back, bias_n = weights
    reset_x, update_x, new_x = np.split(into @ x + bias, 3)
    reset_h, update_h, new_h = np.split(back @ h, 3)
    reset, update = sigmoid(reset_x + reset_h), sigmoid(update_x + update_h)
    new = np.tanh(new_x + reset * (new_h + bias_n))
    return new + update * (h - new)


LOOK = jax.jit(lambda actor, view: actor.look(view))


def told(actor, seen, previous, length):
    """The modes of a sequence, by hand."""
    hidden = np.asarray(LOOK(actor, View(seen)), float)
    for _ in range(length):
        hidden = unit(actor.cell, previous, hidden)
        mean = hidden @ np.asarray(actor.head.out.weight, float) + np.asarray(actor.head.out.bias, float)
        previous = np.tanh(mean[: len(mean) // 2])
        yield previous


def test_an_actor_looks_once_and_plays_what_it_decided_then():
    actor = jax.jit(lambda key: SequenceActor(Walk().spec, (7, 5), key))(KEY)

    @jax.jit
    def policy(actor, script, view):
        return SequencePolicy(actor, (), jnp.array(False), Mode.EXPLOIT, 3)(script, view, KEY)

    script, previous = jax.jit(_first)(actor), np.zeros(2)
    seen = np.random.default_rng(0).normal(size=(7, 3)).astype("float32")
    for at, view in enumerate(seen):
        if at % 3 == 0:
            wanted = told(actor, view, previous, 3)
        action, script = policy(actor, script, View(view))
        previous = next(wanted)
        np.testing.assert_allclose(action, previous, atol=1e-5)
    assert int(script.left) == 2


def _first(actor):
    policy = SequencePolicy(actor, (), jnp.array(False), Mode.EXPLOIT, 3)
    return jax.tree.map(lambda x: x[0], policy.begin(1))


def test_fresh_episodes_look_whatever_others_do():
    method = SRL(hidden=(8,), model=(8,), length=4)

    @jax.jit
    def played(key):
        policy = SequencePolicy(SequenceActor(Walk().spec, (8,), key), (), jnp.array(False), Mode.EXPLOIT, 4)
        views = View(jnp.ones((2, 3)))
        _, memory, first = method.act(policy, method.begin(policy, 2), views, key)
        fresh = jax.tree.map(lambda new, old: jnp.stack([new[0], old[1]]), method.begin(policy, 2), memory)
        _, after, extras = method.act(policy, fresh, views, key)
        return memory, first, fresh, after, extras

    memory, first, fresh, after, extras = jax.tree.map(np.asarray, played(KEY))
    np.testing.assert_array_equal(first["previous"], 0.0)
    assert after.left.tolist() == [3, 2]
    np.testing.assert_array_equal(extras["previous"], fresh.previous)
    np.testing.assert_array_equal(extras["previous"][1], memory.previous[1])


def straight(seen, actions):
    """On a line an action moves as far as it says, and being off 0 afterwards costs its square."""
    return -jnp.sum((seen + actions) ** 2, axis=-1)


class Exact(Dynamics):
    """The line's own motion."""

    def __call__(self, observation, action):
        return observation + action


def line() -> Exact:
    return Exact(LINE, (1,), KEY)


@functools.cache
def climbed(filled, steps=400):
    """What an actor of three actions does in the end, from several places."""
    adam = Adam(1e-2)

    @jax.jit
    def learnt(key):
        recall, actor = Recall(straight, line(), jnp.zeros(()), 3, filled), SequenceActor(LINE, (16, 16), key)

        def step(carry, key):
            actor, opt = carry
            place_key, key = jax.random.split(key)
            views = View(jax.random.uniform(place_key, (32, 1), minval=-0.8, maxval=0.8))
            found = recall.climb(adam, actor, opt, views, jnp.zeros((32, 1)), jax.random.split(key, 32))
            return found[:2], None

        return jax.lax.scan(step, (actor, adam.init(actor)), jax.random.split(key, steps))[0][0]

    actor = learnt(KEY)
    places = np.linspace(-0.6, 0.6, 5)[:, None]
    return places, np.array([list(told(actor, place.astype("float32"), np.zeros(1), 3)) for place in places])[..., 0]


def test_with_the_states_between_an_actor_gets_there_at_once_and_stays():
    """The best sequence from ``x`` is ``-x, 0, 0``: later actions are valued where the first one led."""
    places, found = climbed(True)
    np.testing.assert_allclose(found, places * np.array([[-1.0, 0.0, 0.0]]), atol=0.08)


@pytest.mark.slow
def test_without_them_it_does_the_same_three_times():
    places, found = climbed(False)
    np.testing.assert_allclose(found, np.repeat(-places, 3, axis=1), atol=0.08)


def test_values_are_those_of_a_loop_and_predictions_pass_no_gradient():
    def told(actor, key):
        view, previous = View(jnp.array([0.4])), jnp.array([0.2])
        recall = Recall(straight, line(), jnp.array(0.3), 3)
        values, _ = recall.values(actor, view, previous, key)

        def looped(actor, places=None):
            hidden, last, seen, total, met = actor.look(view), previous, view.observation, [], []
            for j, k in enumerate(jax.random.split(key, 3)):
                chosen, hidden = actor.next(hidden, last)
                last, log_prob = chosen.sample_with_log_prob(k)
                met.append(seen)
                here = seen if places is None else places[j]
                total.append(-jnp.sum((here + last) ** 2) - 0.3 * log_prob)
                seen = seen + last
            return jnp.stack(total), met

        def slope(value):
            return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(jax.grad(value)(actor))])

        wanted, places = looped(actor)
        mine = slope(lambda a: jnp.sum(recall.values(a, view, previous, key)[0]))
        held, through = (slope(lambda a, at=at: jnp.sum(looped(a, at)[0])) for at in (places, None))
        return values, wanted, mine, held, through

    actor = jax.jit(lambda key: SequenceActor(LINE, (6, 6), key))(KEY)
    values, wanted, mine, held, through = jax.tree.map(np.asarray, jax.jit(told)(actor, made_up.quick_key(3)))
    np.testing.assert_allclose(values, wanted, atol=1e-5)
    np.testing.assert_allclose(mine, held, atol=1e-4)
    assert np.abs(mine - through).max() > 0.05


def test_a_model_is_fitted_to_what_followed():
    rng = np.random.default_rng(0)
    seen, done = (rng.uniform(-1, 1, (256, n)).astype("float32") for n in (3, 2))
    following = seen @ rng.normal(size=(3, 3)).astype("float32") + done @ np.ones((2, 3), "float32")
    adam = Adam(1e-2)

    @jax.jit
    def fitted(key, seen, done, following):
        model = Dynamics(Walk().spec, (32,), key)
        opt = adam.init(model)
        told = jax.vmap(model)(seen[:4], done[:4])
        first = fit_dynamics(adam, model, opt, seen[:4], done[:4], following[:4])[2]

        def step(carry, _):
            model, opt, error = fit_dynamics(adam, *carry, seen, done, following)
            return (model, opt), error

        return told, first, jax.lax.scan(step, (model, opt), None, 500)[1]

    told, error, errors = jax.tree.map(np.asarray, fitted(KEY, seen, done, following))
    assert error == pytest.approx(np.mean((told - following[:4]) ** 2), 1e-5)
    assert errors[-1] < 0.02 * errors[0]


@pytest.mark.slow
def test_the_actor_steps_at_every_third_update():
    method = dataclasses.replace(CASES["srl"].method, actor_every=3)
    state = method.init(Walk().spec, KEY)
    batch = made_up.experience(method, state, random_steps(Walk().spec, np.random.default_rng(0), 1, 6), KEY)
    moved = []
    for index in range(3):
        at = dataclasses.replace(batch, index=jnp.array(index, "int32"))
        after, _ = jax.jit(method.update)(state, at, KEY)
        moved.append(bool(jnp.any(after.actor.into.weight != state.actor.into.weight)))
        assert jnp.any(after.dynamics.out.weight != state.dynamics.out.weight)
    assert moved == [False, False, True]


def test_what_it_cannot_serve_is_said():
    with pytest.raises(UserError, match="use sac"):
        jax.eval_shape(lambda: SRL().init(Walk(Discrete(4)).spec, KEY))
    with pytest.raises(UserError, match="predict"):
        jax.eval_shape(lambda: SRL().init(Walk(observation=Discrete(3)).spec, KEY))
    with pytest.raises(UserError, match="feed"):
        jax.eval_shape(lambda: SRL(feed=dataclasses.replace(SRL().feed, length=2)).init(Walk().spec, KEY))
