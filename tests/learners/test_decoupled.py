"""Utilities whose mean is a value, against enumeration of all vectors of choices."""

from __future__ import annotations

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import made_up
import numpy as np
import pytest
from worlds import BOX, Walk

from thespis.cli.doctor_checks.learning import learn
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.feeds import Replay
from thespis.core.records import Batch, EnvSpec
from thespis.core.samples import random_steps
from thespis.core.spaces import Box, Discrete, MultiDiscrete, to_world
from thespis.critics.decoupled import Parts, parts_of
from thespis.envs.compiled.levers import Levers
from thespis.envs.probes.probe import Known, Probe
from thespis.learners.backup import backup
from thespis.learners.decoupled import Held, MeanUtilities, OwnUtilities, expected, fit_utilities
from thespis.learners.gradient import Adam
from thespis.methods.online.decqn import DecQN
from thespis.methods.online.revalued import REValueD
from thespis.objectives.values import huber

KEY, ROWS, MEMBERS = jax.random.key(0), 5, 3
VECTOR = MultiDiscrete((2, 4, 3))
SPEC = Walk(VECTOR, legal=True).spec
METHOD = DecQN(hidden=(6,), members=MEMBERS, discount=0.9, feed=Replay(batch=ROWS))
EVERY = list(itertools.product(*map(range, VECTOR.nvec)))
STARTS = np.array([0, 2, 6])


def setting():
    state, other = made_up.begun(METHOD, SPEC), made_up.begun(METHOD, SPEC, 1)
    steps = random_steps(SPEC, np.random.default_rng(0), 1, ROWS)
    return state.critic, other.critic, Batch(steps, jnp.ones((1, ROWS), bool), (), jnp.zeros((), "int32"))


def utilities(critics, observation):
    return np.asarray(jax.vmap(lambda critic: critic.all(observation))(critics), np.float64)


def allowed(legal):
    return [v for v in EVERY if all(legal[STARTS + np.array(v)])]


def best(values, legal):
    """The vector whose mean utility is greatest, of all that are legal."""
    return max(allowed(legal), key=lambda v: values[STARTS + np.array(v)].mean())


@pytest.mark.parametrize("believed", [OwnUtilities(), OwnUtilities(double=False), MeanUtilities()])
def test_targets_are_those_of_the_best_of_all_vectors(believed):
    online, target, batch = setting()
    data = backup(batch, 0.9)
    found = expected(believed, online, target, data)
    assert not np.all(data.next_view.legal) and np.any(data.discount == 0)
    for row in range(ROWS):
        o, legal = data.next_view.observation[row], np.asarray(data.next_view.legal[row])
        here, there = utilities(online, o), utilities(target, o)
        for i in range(MEMBERS):
            if isinstance(believed, MeanUtilities):
                chosen, judge = best(there.mean(axis=0), legal), there.mean(axis=0)
            else:
                chosen, judge = best((here if believed.double else there)[i], legal), there[i]
            value = judge[STARTS + np.array(chosen)].mean()
            wanted = float(data.earned[row]) + float(data.discount[row]) * value
            assert float(found[row, i]) == pytest.approx(wanted, abs=1e-5)


def test_what_is_descended_against_numpy():
    """Huber's loss of the mean utility, and beside it what holds each utility as much as it explains the target."""
    online, target, batch = setting()
    data, wanted = backup(batch, 0.9), 3.0 * jax.random.normal(KEY, (ROWS, MEMBERS))
    losses, held = np.zeros(MEMBERS), np.zeros(MEMBERS)
    for row in range(ROWS):
        at = STARTS + np.asarray(data.action[row])
        now, before = (utilities(c, data.view.observation[row])[:, at] for c in (online, target))
        y = np.asarray(wanted[row], np.float64)
        error = np.abs(now.mean(axis=1) - y)
        losses += np.where(error < 1, error**2 / 2, error - 0.5) / ROWS
        doubt = 1 - np.exp(-np.abs(y[:, None] - now))
        held += 0.7 * (doubt * (before - now) ** 2).mean(axis=1) / ROWS
    optimiser = Adam(1e-3)
    given = optimiser, online, target, optimiser.init(online), data, wanted, huber
    found = fit_utilities(*given, Held(0.7))[2]
    assert float(found["critic_loss"]) == pytest.approx(losses.mean(), rel=1e-4)
    assert float(found["held_loss"]) == pytest.approx(held.mean(), rel=1e-4)


def test_a_weight_is_held_constant():
    """Slope of the cost: ``-2 w (before - now) / N`` with ``w = 1 - exp(-|target - now|)``."""
    now, before, target = jnp.array([[1.0, -2.0]]), jnp.array([[0.5, 3.0]]), jnp.array([2.0])
    slope = jax.grad(lambda x: Held(1.0).cost(x, lambda: before, target)[0])(now)[0]
    doubt = 1 - np.exp(-np.array([1.0, 4.0]))
    np.testing.assert_allclose(slope, -doubt * np.array([-0.5, 5.0]), rtol=1e-5)
    assert float(Held(1.0).cost(now, lambda: now, target)[0]) == 0.0


def test_bins_go_from_bound_to_bound():
    parts = Parts(BOX, 3)
    assert parts.choices == MultiDiscrete((3, 3))
    for choices in itertools.product(range(3), repeat=2):
        assert parts.entered(parts.left(jnp.array(choices))).tolist() == list(choices)
    assert to_world(BOX, parts.left(jnp.array([0, 2]))).tolist() == [-2.0, 1.5]
    assert parts.entered(jnp.array([-0.4, 0.6])).tolist() == [1, 2]  # the nearest
    square = Parts(Box((2, 2), -1.0, 1.0), 2)
    assert square.left(jnp.array([0, 1, 1, 0])).tolist() == [[-1.0, 1.0], [1.0, -1.0]]


def test_tables_have_a_row_for_each_part():
    values = jnp.arange(9.0)
    table = np.asarray(Parts(VECTOR, 2).table(values))
    assert [row[:n].tolist() for row, n in zip(table, VECTOR.nvec, strict=True)] == [[0, 1], [2, 3, 4, 5], [6, 7, 8]]
    assert (table[0, 2:] < -1e8).all() and (table[2, 3:] < -1e8).all()


def test_greedy_play_is_the_best_of_all_vectors_and_members():
    method = dataclasses.replace(METHOD, last_epsilon=0.0)
    state = made_up.begun(method, SPEC)
    view = jax.tree.map(lambda x: x[0], random_steps(SPEC, np.random.default_rng(2), 1, 8).view)
    for mode, members in ((Mode.EXPLOIT, 1), (Mode.SAMPLE, MEMBERS)):
        policy = method.policy(state, mode)
        action, _, _ = method.act(policy, method.begin(policy, 8), view, KEY)
        for row in range(8):
            values = utilities(state.critic, view.observation[row])
            told = [values.mean(axis=0)] if members == 1 else list(values)
            assert tuple(action[row].tolist()) in {best(v, np.asarray(view.legal[row])) for v in told}


@pytest.mark.parametrize("space", [Discrete(3), Box((2,)), Box((1,), 0.0)])
def test_other_spaces_are_refused(space):
    with pytest.raises(UserError, match="revalued needs a vector of choices, or a box with finite bounds"):
        REValueD().init(EnvSpec("other", Box((3,)), space), KEY)
    with pytest.raises(UserError, match="two bins or more"):
        parts_of(BOX, 1, "decqn")


@pytest.mark.slow
@pytest.mark.parametrize("kind", [DecQN, REValueD])
def test_values_of_levers_are_learnt(kind):
    """Where they are means of utilities the known values are found."""
    world = Levers(count=4, choices=3, cues=2, limit=10)

    def known(discount):
        cues, every = jnp.eye(2), jnp.arange(2)
        rights = [world.right(cue) for cue in every]
        values = [float(world.known(cue, right, discount)) for cue, right in zip(every, rights, strict=True)]
        return [Known(*k) for k in zip(np.asarray(cues), values, map(np.asarray, rights), strict=True)]

    feed = Replay(capacity=4_000, batch=64, warmup=64, envs=8)
    method = kind(
        learning_rate=3e-3, discount=0.9, hidden=(16,), members=2, target_rate=0.1, epsilon_updates=300.0, feed=feed
    )
    learnt = learn(method, Probe("levers", world, "", known), 16_000, seeds=2)
    assert learnt.errors.max() < 0.02 and learnt.right.all(), learnt.values
