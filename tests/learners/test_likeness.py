"""Roles: the contrast is the paper's, written out agent by agent, and attention is a mean of those who are there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.errors import UserError
from thespis.core.keys import key_of
from thespis.core.spaces import Box
from thespis.critics.attending import Attending
from thespis.critics.mixing import Direct
from thespis.learners.likeness import RoleContrast
from thespis.methods.teams.qmix import QMIX
from thespis.nets.mlp import Linear, uniform_fan_in

KEY = key_of(0)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_the_contrast_pulls_roles_to_those_of_the_cluster_at_the_same_step():
    rng, contrast = np.random.default_rng(0), RoleContrast(clusters=2)
    heaps = np.where(rng.random((2, 3, 4)) < 0.5, -5.0, 5.0).astype("float32")
    heaps[..., :2] = -5.0, 5.0  # or k-means would split a single heap
    points = (heaps[..., None] + rng.normal(0, 0.1, (2, 3, 4, 2))).astype("float32")
    there = rng.random((2, 3, 4)) < 0.8
    there[..., :2] = True
    there[0, 0] = False
    layer, slow = (Linear(2, 3, uniform_fan_in, key_of(i)) for i in (1, 2))
    by = np.asarray(jax.random.normal(KEY, (3, 3)))
    roles, others = (sigmoid(points @ np.asarray(x.weight)) for x in (layer, slow))
    missed = []
    for t, r in np.ndindex(2, 3):
        here = np.flatnonzero(there[t, r])
        scores = np.exp(roles[t, r] @ by @ others[t, r].T)
        for i in here:
            like = [j for j in here if heaps[t, r, j] == heaps[t, r, i]]
            missed.append(-np.log(scores[i, like].sum() / scores[i, here].sum()))
    told = {"all": {"embedding": jnp.asarray(points)}}
    found = jax.jit(contrast.loss)({"all": layer}, jnp.asarray(by), {"all": slow}, told, {"all": jnp.asarray(there)})
    np.testing.assert_allclose(found, np.mean(missed), rtol=1e-4)


def test_answers_are_weighted_means_of_the_roles_of_those_who_are_there():
    net = Attending(query=3, heads=2, units=4, out=2).build(Box((5,)), 3, 6, KEY)
    rng = np.random.default_rng(1)
    queries, roles = rng.normal(0, 3, (3, 3)).astype("float32"), rng.normal(0, 3, (3, 6)).astype("float32")
    there = np.array([True, False, True])
    asks, keys, values, answers = (np.asarray(x.weight) for x in (net.asks, net.keys, net.values, net.answers))
    wanted = []
    for q in queries:
        heard = []
        for part in (slice(0, 2), slice(2, 4)):
            alike = [np.exp((q @ asks)[part] @ (r @ keys)[part] / np.sqrt(2.0)) for r in roles[there]]
            heard.append(sum(w * (r @ values)[part] for w, r in zip(alike, roles[there], strict=True)) / sum(alike))
        wanted.append(np.concatenate(heard) @ answers)
    found = net.attend(jnp.asarray(queries), jnp.asarray(roles), jnp.asarray(there))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    state = {"state": jnp.ones(5), "queries": jnp.asarray(queries.ravel()), "roles": jnp.asarray(roles),
             "there": jnp.asarray(there)}  # fmt: skip
    assert jax.grad(net)(jnp.array([1.0, -2.0, 3.0]), state).min() >= 0


def test_without_roles_there_is_nothing_to_attend_to_or_to_contrast():
    with pytest.raises(UserError, match="Embedded"):
        Attending().build(Box((5,)), 3, Direct().roles, KEY)
    with pytest.raises(UserError, match="Embedded"):
        RoleContrast().init({}, QMIX().utility.roles, KEY)
