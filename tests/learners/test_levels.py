"""Two levels: periods are as long as they are, roles are held and kept to, and made of what actions do."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import CASES, SMALL, replay
from test_teams import experienced
from worlds import Crew

from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.feeds import Replay
from thespis.core.keys import fold, key_of
from thespis.core.records import Batch, EnvSpec, Transition
from thespis.core.spaces import Box, Discrete, dict_space
from thespis.critics.matching import Matched, matched_space
from thespis.envs.compiled.harvest import GROUP, Harvest
from thespis.learners.levels import period
from thespis.learners.roles import ActionRoles, ByChance, Sorted
from thespis.methods.teams.qmix import QMIX
from thespis.nets.body import GRU

KEY = key_of(0)
RODE = CASES["rode"].method


def test_a_period_ends_with_its_choice_its_episode_or_its_window():
    rng = np.random.default_rng(0)
    one = jax.jit(period)
    for _ in range(200):
        reward = rng.normal(size=7).astype("float32")
        begins, over, terminated, truncated = rng.random((4, 7)) < np.array([[0.5], [0.3], [0.1], [0.1]])
        begins[rng.integers(4)] = True
        start = end = begins.tolist().index(True)
        while end < 6 and not (over[end] or terminated[end] or truncated[end]):
            end += 1
        found = one(reward, begins, over, terminated, truncated)
        wanted = reward[start : end + 1].sum(), end - start + 1, terminated[end], truncated[end]
        np.testing.assert_allclose(np.array(found, "float32"), np.array(wanted, "float32"), rtol=1e-5, atol=1e-5)


def settled(method, spec, seed=0):
    """A state whose roles each allow some actions, which differ, and a batch."""
    state, batch = experienced(method, spec, seed)
    known = {
        name: Sorted(
            s.vectors, jnp.arange(s.allows.shape[1]) % s.allows.shape[0] == jnp.arange(s.allows.shape[0])[:, None]
        )
        for name, s in state.known.sorted.items()
    }
    return eqx.tree_at(lambda s: s.known.sorted, state, known), batch


@pytest.mark.slow
def test_a_role_is_held_for_its_time_and_kept_to():
    world = Harvest(limit=100)
    method = dataclasses.replace(RODE, every=3, lower=dataclasses.replace(RODE.lower, feed=replay(length=5)))
    state, _ = settled(method, world.spec)
    policy = method.policy(state, Mode.EXPLORE)
    memory, (place, step) = method.begin(policy, 4), jax.vmap(lambda k: world.reset((), k))(jax.random.split(KEY, 4))
    allows, seen = np.asarray(state.known.sorted[GROUP].allows), []
    act = jax.jit(method.act)
    for tick in range(12):
        action, memory, extras = act(policy, memory, step.view, fold(KEY, "act", tick))
        assert allows[extras[GROUP]["chosen"], action[GROUP]].all()
        assert (extras[GROUP]["due"] == (tick % 3 == 0)).all() and (extras[GROUP]["last"] == (tick % 3 == 2)).all()
        seen.append(np.asarray(extras[GROUP]["chosen"]))
        place, step = jax.vmap(world.step)(place, action, jax.random.split(KEY, 4))
    held = np.stack(seen).reshape(4, 3, 4, 2)
    assert (held == held[:, :1]).all() and (held[1:, 0] != held[:-1, 0]).any()


@pytest.mark.slow
def test_the_upper_level_learns_from_whole_periods():
    """Each window's first one, put together row by row in numpy."""
    spec = Crew().spec
    state, batch = settled(RODE, spec)
    later = {"due": jnp.array([0, 1, 0]), "last": jnp.array([1, 0, 1])}  # in half of the windows the choice came before

    def shifted(name, x):
        half = jnp.arange(x.shape[1])[:, None] < x.shape[1] // 2
        return jnp.where(half, x, later[name][:, None, None] > 0) if name in later else x

    extras = {group: {k: shifted(k, x) for k, x in said.items()} for group, said in batch.steps.extras.items()}
    batch = eqx.tree_at(lambda b: b.steps.extras, batch, extras)
    _, report = jax.jit(RODE.update)(state, batch, KEY)
    steps, told = RODE._stated(batch.steps, spec.groups), RODE.choices.told(state.known)
    alive = np.concatenate(list(steps.view.alive.values()), -1)
    due, last = (
        (np.concatenate([x[what] for x in steps.extras.values()], -1) & alive).any(-1) for what in ("due", "last")
    )
    begin, reward, finish, mask = [], [], [], []
    for row in range(due.shape[1]):
        start = end = int(np.argmax(due[:, row]))
        while end < len(due) - 1 and not (last[end, row] or steps.ended[end, row]):
            end += 1
        begin, finish = [*begin, start], [*finish, end]
        reward.append(float(sum(steps.reward[start : end + 1, row])))
        mask.append(bool(batch.mask[start, row] & due[start, row]))
    assert any(mask) and not all(mask) and len(set(finish)) > 1
    rows = np.arange(len(begin))
    at, to = (jax.tree.map(lambda x, i=i: x[np.array(i), rows][None], steps) for i in (begin, finish))
    whole = dataclasses.replace(
        at, view=RODE.choices.above(told, at.view), action={k: v["chosen"] for k, v in at.extras.items()},
        reward=jnp.array(reward)[None], terminated=to.terminated, next_view=RODE.choices.above(told, to.next_view),
        next_privileged=to.next_privileged,
    )  # fmt: skip
    one = Batch(whole, jnp.array(mask)[None], (), batch.index)
    wanted = jax.jit(RODE.upper.update)(state.upper, one, fold(KEY, "upper"))
    for name, value in wanted[1].metrics.items():
        np.testing.assert_allclose(report.metrics[f"upper_{name}"], value, rtol=1e-4, atol=1e-6)


def test_values_are_products_of_a_roles_key_and_vectors():
    spec = EnvSpec("seen", dict_space(own=matched_space(Box((3,)), 4, 2, 5), which=Discrete(2)), Discrete(4))
    net = Matched().build(spec, (6,), None, KEY)
    rng = np.random.default_rng(0)
    own, said = jnp.asarray(rng.normal(size=3), "float32"), jnp.asarray(rng.normal(size=(4, 2)), "float32")
    seen = {"own": {"own": own, "role": jnp.int32(3), "said": said}, "which": jnp.int32(1)}
    features, _ = net.body((), net.look(seen))
    wanted = [sum(said[a, i] * net.keys[3, i] @ features for i in range(2)) for a in range(4)]
    np.testing.assert_allclose(net.values(features, seen), wanted, rtol=1e-5)


def test_roles_by_lot_have_as_many_actions_each():
    labels = ByChance().sort(jnp.zeros((11, 2)), 3, KEY)
    assert sorted(np.bincount(labels).tolist()) == [3, 4, 4]
    assert (labels != ByChance().sort(jnp.zeros((11, 2)), 3, key_of(1))).any()


@pytest.mark.slow
def test_actions_that_do_alike_come_to_lie_together():
    """Random play in the row of fields: tools of a kind become one role, whatever number they have."""
    world = Harvest(cells=3, variants=3)
    roles = ActionRoles(count=4, settled=400.0, learning_rate=3e-3, latent=6)
    known = roles.init(world.spec, KEY)

    def played(key):
        keys = jax.random.split(key, 3)
        action = {GROUP: jax.random.randint(keys[0], (2,), 0, world.actions)}
        state, step = world.reset((), keys[1])
        place = jax.random.randint(keys[2], (2,), 0, 3)
        state, step = world.step(eqx.tree_at(lambda s: s.place, state, place), {GROUP: jnp.zeros(2, "int32")}, key)
        return step, action, world.step(state, action, key)[1]

    @jax.jit
    def update(known, index):
        step, action, after = jax.vmap(played)(jax.random.split(fold(KEY, "play", index), 64))
        steps = Transition(
            step.view, action, after.reward, after.terminated, after.truncated, after.view, step.terminated
        )
        steps = jax.tree.map(lambda x: x[None], steps)
        return roles.update(known, Batch(steps, jnp.ones((1, 64), bool), (), index), KEY)[0]

    for index in range(400):
        known = update(known, jnp.int32(index))
    allows = np.asarray(known.sorted[GROUP].allows)
    assert (allows.sum(0) == 1).all()
    belongs = allows.argmax(0)
    assert len(set(belongs[3:6])) == len(set(belongs[6:9])) == 1 and belongs[3] != belongs[6]


def test_what_does_not_fit_is_refused():
    spec = Harvest().spec
    with pytest.raises(UserError, match=r"feed\.length to 9"):
        dataclasses.replace(RODE, every=5).init(spec, KEY)
    with pytest.raises(UserError, match="without memory"):
        dataclasses.replace(RODE, upper=QMIX(utility=Matched(), hidden=SMALL, memory=GRU(4))).init(spec, KEY)
    with pytest.raises(UserError, match="discrete choices"):
        RODE.init(CASES["maddpg"].world.spec, KEY)
    assert isinstance(RODE.feed, Replay) and RODE.feed == replay(length=3)
