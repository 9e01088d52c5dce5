"""Members that learn side by side: who they believe, what each learns from, and whose choice is played."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import made_up
import numpy as np
import pytest
from worlds import Walk

from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.feeds import Replay
from thespis.core.laws import as_numpy, close
from thespis.core.records import Batch, View
from thespis.core.samples import random_steps
from thespis.core.spaces import Box, Discrete
from thespis.learners.backup import backup
from thespis.learners.categorical import Mixture, Own, dealt, following
from thespis.learners.greedy import EachEpisode, EachStep
from thespis.methods.online.c51 import C51
from thespis.methods.online.ensemble_c51 import EnsembleC51

SPEC, KEY, ROWS, MEMBERS = Walk(Discrete(4), legal=True).spec, made_up.quick_key(0), 6, 3
SIZES = {"hidden": (5,), "atoms": 7, "lowest": -2.0, "highest": 2.0, "max_gradient_norm": 1e9}
METHOD = C51(**SIZES, members=MEMBERS, target_every=2, feed=Replay(batch=ROWS))


def batch():
    steps = random_steps(SPEC, np.random.default_rng(0), 1, ROWS)
    return Batch(steps, *jax.device_put((np.ones((1, ROWS), bool), (), np.int32(0))))


def member(tree, i):
    return jax.tree.map(lambda x: jax.device_put(np.asarray(x)[i : i + 1]) if x.ndim else x, tree)


@pytest.mark.parametrize("believed", [Own(), Mixture()])
def test_targets_against_numpy(believed):
    @jax.jit
    def told(target, batch):
        data = backup(batch, METHOD.discount)
        seen = data.next_view.observation
        chances = jax.vmap(lambda critic: jax.vmap(critic.chances)(seen))(target)
        return data, following(believed, target, dealt(data, MEMBERS)), chances

    data, found, all_chances = jax.tree.map(np.asarray, told(made_up.begun(METHOD, SPEC).target, batch()))
    atoms = np.linspace(-2.0, 2.0, 7)
    assert found.shape == (MEMBERS, ROWS // MEMBERS, 7)
    assert not np.all(data.next_view.legal) and np.any(data.discount == 0)
    for i, row in enumerate(range(ROWS)):
        o = jax.tree.map(lambda x, row=row: x[row], data.next_view)
        every = all_chances[:, row].astype("float64")
        chances = every.mean(axis=0) if isinstance(believed, Mixture) else every[i // 2]
        best = max(np.flatnonzero(o.legal), key=lambda a, chances=chances: chances[a] @ atoms)
        wanted = np.zeros(7)
        for z, p in zip(atoms, chances[best], strict=True):
            x = np.clip(float(data.earned[row]) + float(data.discount[row]) * z, -2.0, 2.0)
            wanted += p * np.maximum(1 - np.abs(x - atoms) / (atoms[1] - atoms[0]), 0)
        np.testing.assert_allclose(found[i // 2, i % 2], wanted, atol=1e-5)


def test_members_that_believe_themselves_learn_as_if_alone():
    state, data, update = made_up.begun(METHOD, SPEC), batch(), jax.jit(METHOD.update)
    together = update(update(state, data, KEY)[0], data, KEY)[0]
    alone = jax.jit(dataclasses.replace(METHOD, members=1).update)
    for i in range(MEMBERS):
        steps = jax.tree.map(lambda x, i=i: np.asarray(x)[:, 2 * i : 2 * i + 2], data.steps)
        share = Batch(*jax.device_put((steps, np.asarray(data.mask)[:, :2], (), data.index)))
        one = member(state, i)
        for _ in range(2):
            one, _ = alone(one, share, KEY)
        close(as_numpy(one), as_numpy(member(together, i)), "a member is a net alone", 1e-5)


def test_members_that_believe_each_other_do_not():
    mixed, data = dataclasses.replace(METHOD, believed=Mixture()), batch()
    state, updates = made_up.begun(METHOD, SPEC), [jax.jit(method.update) for method in (METHOD, mixed)]
    one, other = (update(state, data, KEY)[0].critic.out.weight for update in updates)
    assert np.abs(np.asarray(one) - np.asarray(other)).max() > 1e-4
    first = jax.tree.map(lambda x: jax.device_put(np.asarray(x)[:1].repeat(MEMBERS, 0)), state.target)
    alike = eqx.tree_at(lambda s: s.target, state, first)
    one, other = (update(alike, data, KEY)[0].critic.out.weight for update in updates)
    np.testing.assert_allclose(one, other, atol=1e-6)  # where all say the same, so does their average


@pytest.mark.parametrize("turns", [EachEpisode(), EachStep()])
def test_one_member_explores_and_all_exploit(turns):
    method = dataclasses.replace(METHOD, turns=turns, last_epsilon=0.0)
    state, rows = made_up.begun(method, SPEC), 64

    @jax.jit
    def told(state, key):
        view = View(jnp.tile(jnp.array([0.3, -1.0, 2.0]), (rows, 1)), jnp.ones((rows, 4), bool))
        every = jax.vmap(lambda critic: critic.all(view.observation[0]))(state.critic)
        greedy = method.policy(state, Mode.EXPLOIT)
        best, _, _ = method.act(greedy, method.begin(greedy, rows), view, key)
        sampled = method.policy(state, Mode.SAMPLE)
        memory, taken = method.begin(sampled, rows), []
        for i in range(3):
            action, memory, _ = method.act(sampled, memory, view, jax.random.fold_in(key, i))
            taken.append(action)
        return every, best, taken

    every, action, taken = jax.tree.map(np.asarray, told(state, KEY))
    bests = every.argmax(axis=1)
    assert set(action.tolist()) == {every.mean(axis=0).argmax()}
    assert len(set(bests.tolist())) > 1, "a test of one opinion shows nothing"
    assert {x.item() for x in np.unique(taken)} == set(bests.tolist())
    assert all((x == taken[0]).all() for x in taken) == isinstance(turns, EachEpisode)


def test_what_cannot_be():
    with pytest.raises(UserError, match="cannot be dealt to 4 members"):
        jax.eval_shape(dataclasses.replace(METHOD, members=4).update, made_up.begun(METHOD, SPEC), batch(), KEY)
    with pytest.raises(UserError, match="from lowest to a greater highest"):
        jax.eval_shape(lambda: C51(lowest=1.0, highest=1.0).init(SPEC, KEY))
    with pytest.raises(UserError, match="ensemble-c51 needs one discrete choice"):
        jax.eval_shape(lambda: EnsembleC51().init(Walk(Box((1,), -1.0, 1.0)).spec, KEY))
