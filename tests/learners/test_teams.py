"""Methods for teams: who is not there counts nothing, mixed values are monotone, targets are those of the equations."""

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import made_up
import numpy as np
import pytest
from cases import CASES, SMALL, ppo, replay
from worlds import Crew, Walk

from thespis.core.errors import UserError
from thespis.core.feeds import Rollouts
from thespis.core.keys import key_of
from thespis.core.laws import same_bits
from thespis.core.records import Batch
from thespis.core.samples import random_steps
from thespis.core.spaces import Box, Discrete, MultiDiscrete
from thespis.critics.central import Everyone, Own, joint, joint_space
from thespis.critics.mixing import Monotonic, Sum
from thespis.learners.team import mixed, valued
from thespis.methods.teams.ippo import IPPO
from thespis.methods.teams.maddpg import MADDPG
from thespis.methods.teams.mappo import MAPPO
from thespis.methods.teams.qmix import QMIX
from thespis.methods.teams.vdn import VDN

KEY = made_up.quick_key(0)
QUICK = QMIX(mixer=Monotonic(4, (8,)), hidden=SMALL, feed=replay(length=2), double=False)


def experienced(method, spec, seed=0):
    """A fresh state and a batch of what its actors do in made-up worlds."""
    feed = method.feed
    rows = feed.envs if isinstance(feed, Rollouts) else feed.batch
    steps = random_steps(spec, np.random.default_rng(seed), feed.length, rows)
    return made_up.experienced(method, spec, steps)


def otherwise(batch, spec, absent, *, later):
    """The batch with other things standing where agents are there, or where they are ``absent``."""
    other = jax.tree.map(np.asarray, random_steps(spec, np.random.default_rng(9), *batch.mask.shape))
    steps = jax.tree.map(np.asarray, batch.steps)

    def choose(alive, old, new):
        flag = ~alive if absent else alive
        return jax.tree.map(
            lambda x, y: np.where(flag.reshape(flag.shape + (1,) * (x.ndim - flag.ndim)), y, x).astype(x.dtype),
            old,
            new,
        )

    def part(there, old, new):
        return {name: choose(alive, old[name], new[name]) for name, alive in there.items()}

    def seen(there, view, new):
        legal = None if view.legal is None else part(there, view.legal, new.legal)
        return dataclasses.replace(view, observation=part(there, view.observation, new.observation), legal=legal)

    now, after = steps.view.alive, steps.next_view.alive
    # who has not gone, and waits next, looks on: its decision is worth what follows from there
    after = {name: after[name] | (now[name] & ~steps.each[name].gone) for name in now}

    extras = steps.extras
    if jax.tree.leaves(extras):
        extras = part(
            now,
            extras,
            jax.tree.map(lambda x: x + np.float32(1) if jnp.issubdtype(x.dtype, jnp.floating) else 0 * x, extras),
        )
    changed = dataclasses.replace(
        steps, view=seen(now, steps.view, other.view), action=part(now, steps.action, other.action), extras=extras
    )
    if later:
        changed = dataclasses.replace(
            changed, next_view=seen(after, steps.next_view, other.next_view), each=part(now, steps.each, other.each)
        )
    return dataclasses.replace(batch, steps=jax.device_put(changed))


@pytest.mark.parametrize(
    "name",
    [
        "vdn",
        "maddpg",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("ippo in a crew", "mappo", "rode", "maddpg apart with choices", "masac apart with choices")
        ),
    ],
)
def test_who_is_not_there_changes_no_bit(name):
    """What it sees, may do, does and is paid; on-policy methods pay a wait to the last decision and look at its end."""
    method, spec = CASES[name].method, CASES[name].world.spec
    state, batch = experienced(method, spec)
    update = jax.jit(method.update)
    later = not isinstance(method.feed, Rollouts)
    one = update(state, batch, KEY)
    same_bits(one, update(state, otherwise(batch, spec, True, later=later), KEY), "the absent")
    with pytest.raises(Exception, match="differs"):
        same_bits(one, update(state, otherwise(batch, spec, False, later=later), KEY), "those that are there")


@pytest.mark.slow
def test_who_is_never_there_has_no_role():
    """Neither attended to nor in a cluster; with a memory, who only waits looks on."""
    method, spec = CASES["acorm"].method, CASES["acorm"].world.spec
    state, batch = experienced(method, spec)
    state = eqx.tree_at(lambda s: s.updates, state, jnp.int32(1))  # the contrast takes every second step
    update = jax.jit(method.update)

    def there(batch, alive):
        at = lambda b: (b.steps.view.alive, b.steps.next_view.alive)  # noqa: E731
        return eqx.tree_at(at, batch, alive)

    def without(alive):
        return alive | {"movers": alive["movers"].at[..., 1].set(False)}

    real = jax.tree.map(jnp.asarray, (batch.steps.view.alive, batch.steps.next_view.alive))
    fewer = tuple(without(alive) for alive in real)
    only = tuple(without(jax.tree.map(jnp.ones_like, alive)) for alive in real)
    batch = there(batch, fewer)
    one = update(state, batch, KEY)
    other = there(otherwise(there(batch, only), spec, True, later=True), fewer)
    same_bits(one, update(state, other, KEY), "who is never there")
    with pytest.raises(Exception, match="differs"):
        same_bits(one, update(state, there(batch, real), KEY), "who is there")


def test_mixed_values_rise_in_each_value():
    spec, count = Crew().spec, 3
    view = random_steps(spec, np.random.default_rng(1), 1, 50).view

    @jax.jit
    def both(key, values, view):
        net, added = (kind.build(joint_space(spec), count, 0, key) for kind in (Monotonic(8, (16,)), Sum()))
        state = jax.tree.map(lambda x: x[0], joint(spec.groups, view, None))
        return [jax.vmap(jax.grad(each))(values, state) for each in (net, added)]

    values = (5 * np.random.default_rng(2).normal(size=(50, count))).astype("float32")
    slopes, ones = map(np.asarray, both(KEY, values, view))
    assert slopes.min() >= 0 and (slopes > 1e-4).mean() > 0.9 and slopes.std() > 1e-3
    np.testing.assert_array_equal(ones, 1.0)


def test_the_best_of_the_team_is_the_best_of_each_and_makes_the_target():
    """Against every joint action that is legal, absent agents left out, one by one."""
    spec = Crew().spec
    state, batch = experienced(QUICK, spec)
    state = eqx.tree_at(lambda s: s.target, state, made_up.begun(QUICK, spec, 5).team)
    found, after = jax.jit(lambda state, steps: (QUICK.targets(state, steps), valued(state.target, steps)[1]))(
        state, batch.steps
    )
    steps = jax.tree.map(np.asarray, batch.steps)
    following, legal = jax.tree.map(np.asarray, (after.values, steps.next_view.legal))
    best = np.full(steps.reward.shape, -np.inf)
    whole = jax.jit(lambda chosen: mixed(state.target, chosen, after))
    for a, b, c in itertools.product(range(4), range(4), range(2)):
        chosen = {"movers": following["movers"][..., [0, 1], [a, b]], "x": following["x"][..., c]}
        may = legal["movers"][..., [0, 1], [a, b]].all(-1) & legal["x"][..., 0, c]
        best = np.where(may, np.maximum(best, whole(chosen)), best)
    wanted = steps.reward + 0.99 * np.where(steps.terminated, 0.0, best)
    assert not steps.terminated.all() and steps.terminated.any()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_double_targets_are_chosen_by_one_net_and_valued_by_the_other():
    spec, method = Crew(legal=False).spec, dataclasses.replace(QUICK, double=True, mixer=Sum())
    state, batch = experienced(method, spec)
    state = eqx.tree_at(lambda s: s.target, state, made_up.begun(method, spec, 5).team)
    both = jax.jit(lambda s, steps: [valued(team, steps)[1].values for team in (s.team, s.target)])
    online, target = jax.tree.map(np.asarray, both(state, batch.steps))
    there = batch.steps.next_view.alive
    value = sum(
        np.where(there[n], np.take_along_axis(target[n], np.argmax(online[n], -1)[..., None], -1)[..., 0], 0.0).sum(-1)
        for n in target
    )
    wanted = np.asarray(batch.steps.reward) + 0.99 * np.where(batch.steps.terminated, 0.0, value)
    np.testing.assert_allclose(jax.jit(method.targets)(state, batch.steps), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_critics_of_all_actions_are_fitted_to_the_equation():
    """``r_i + gamma Q_i'(x', mu'(o'))`` written out agent by agent, with target nets unlike the others."""
    method = MADDPG(dataclasses.replace(CASES["maddpg"].method.method, feed=replay(batch=4, length=1)))
    spec = CASES["maddpg"].world.spec
    state, batch = experienced(method, spec)
    other = method.init(spec, key_of(7))
    for name in state.of:
        wanted = other.of[name].actor, other.of[name].critic
        at = lambda s, name=name: (s.of[name].target_actor, s.of[name].target_critic)  # noqa: E731
        state = eqx.tree_at(at, state, wanted)
    _, report = jax.jit(method.update)(state, batch, KEY)
    steps = jax.tree.map(lambda x: x[0], batch.steps)

    def scene(view, actions, row, name, i):
        def shown(values):
            return {g.name: tuple(np.where(view.alive[g.name][row, j], values[g.name][row, j], 0.0).astype("float32")
                                  for j in range(g.count)) for g in spec.groups}  # fmt: skip

        done = shown(actions)
        done[name] = tuple(np.zeros_like(a) if j == i else a for j, a in enumerate(done[name]))
        return jax.tree.map(jnp.asarray, ({"all": shown(view.observation), "which": np.int32(i)}, done))

    answers = {n: jax.vmap(jax.vmap(s.target_actor))(steps.next_view.observation[n]) for n, s in state.of.items()}
    for name, learner in state.of.items():
        losses = []
        for row, i in itertools.product(range(4), range({g.name: g.count for g in spec.groups}[name])):
            if not steps.view.alive[name][row, i]:
                continue
            seen = scene(steps.view, steps.action, row, name, i)
            further = scene(steps.next_view, answers, row, name, i)
            critic, target = (jax.tree.map(lambda x: x[0], c) for c in (learner.critic, learner.target_critic))
            following = target(further, answers[name][row, i][None])[0]
            over = steps.terminated[row] | steps.each[name].gone[row, i]
            goal = steps.each[name].reward[row, i] + 0.99 * jnp.where(over, 0.0, following)
            losses.append((critic(seen, steps.action[name][row, i][None])[0] - goal) ** 2)
        np.testing.assert_allclose(report.metrics[f"{name}_critic_loss"], np.mean(losses), rtol=1e-4)


@pytest.mark.slow
def test_with_critics_that_see_their_own_mappo_is_ippo():
    spec = Crew().spec
    alone, central = IPPO(ppo()), MAPPO(ppo(), critics=Own())
    state, batch = experienced(alone, spec)
    same_bits(state, central.init(spec, KEY), "a fresh state")
    same_bits(alone.update(state, batch, KEY), central.update(state, batch, KEY), "an update")


@pytest.mark.parametrize("method", [ppo(), CASES["a2c"].method, CASES["impala"].method], ids=["ppo", "a2c", "impala"])
def test_an_on_policy_critic_that_is_told_what_the_actor_sees_learns_the_same(method):
    method = dataclasses.replace(method, memory=None)
    spec = Walk(Discrete(4)).spec
    told = dataclasses.replace(spec, privileged=spec.observation)
    state, batch = experienced(method, spec)
    other = made_up.begun(method, told)
    steps = dataclasses.replace(
        batch.steps, privileged=batch.steps.view.observation, next_privileged=batch.steps.next_view.observation
    )
    update = jax.jit(method.update)
    one, same = update(state, batch, KEY), update(other, dataclasses.replace(batch, steps=steps), KEY)
    same_bits(jax.tree.leaves(one), jax.tree.leaves(same), "told what it sees")
    away = {name: -np.asarray(getattr(steps, name)) for name in ("privileged", "next_privileged")}
    noise = dataclasses.replace(steps, **away)
    with pytest.raises(Exception, match="differs"):
        same_bits(same, update(other, dataclasses.replace(batch, steps=noise), KEY), "told something else")


def test_the_critic_of_a_team_sees_the_state_where_there_is_one_and_who_it_judges():
    spec = dataclasses.replace(Crew().spec, privileged=Box((7,)))
    steps = random_steps(spec, np.random.default_rng(0), 2, 3)
    batch = Batch(steps, jnp.ones((2, 3), bool), (), jnp.int32(0))
    shown = jax.jit(lambda batch: Everyone().shown(spec.groups, batch, dict))(batch)
    now, following = jax.tree.map(np.asarray, shown["movers"])
    np.testing.assert_array_equal(now["all"][:, :, 1], steps.privileged)
    np.testing.assert_array_equal(following["all"][:, :, 0], steps.next_privileged)
    np.testing.assert_array_equal(now["own"], steps.view.observation["movers"])
    np.testing.assert_array_equal(now["which"][1, 2], [0, 1])


def test_what_does_not_fit_is_refused():
    with pytest.raises(UserError, match="one agent"):
        VDN().init(Walk(Discrete(4)).spec, KEY)
    with pytest.raises(UserError, match="discrete choice"):
        QMIX().init(CASES["maddpg"].world.spec, KEY)
    with pytest.raises(UserError, match="continuous actions"):
        MADDPG().init(Crew(action=MultiDiscrete((2, 2)), legal=False).spec, KEY)
