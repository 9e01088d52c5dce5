"""Subgoals: reached where they are seen, renewed when all are there, and paid for to the level below."""

import dataclasses

import jax
import jax.numpy as jnp
import made_up
import numpy as np
import pytest
from cases import CASES, replay
from test_teams import experienced
from worlds import Crew

from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.keys import fold
from thespis.core.records import View
from thespis.core.samples import random_steps
from thespis.envs.compiled.harvest import Harvest
from thespis.envs.compiled.two_rooms import GROUP, MARKS, TwoRooms
from thespis.learners.factored import valued
from thespis.learners.subgoals import Subgoals, WorldsReward

KEY = made_up.quick_key(0)
GMAH = CASES["gmah"].method
GOALS = Subgoals((0, -1))


def drawn():
    """Steps of a crew, what they have chosen, and by hand who reaches it."""
    spec, rng = Crew().spec, np.random.default_rng(0)
    steps = random_steps(spec, rng, 5, 6)
    chosen = {g.name: rng.integers(0, 2, (5, 6, g.count)).astype("int32") for g in spec.groups}
    reached = {}
    for name, seen in jax.tree.map(np.asarray, steps.next_view.observation).items():
        reached[name] = np.zeros(chosen[name].shape, bool)
        for at in np.ndindex(chosen[name].shape):
            reached[name][at] = seen[at][[0, -1][chosen[name][at]]] > 0.5
    assert 0 < reached["movers"].mean() < 1
    return steps, jax.device_put(chosen), reached


def test_the_lower_level_is_paid_for_each_agent_that_is_there_and_goes_on_without_it():
    steps, chosen, reached = drawn()

    @jax.jit
    def both(steps, chosen):
        under = GOALS.lower((), steps, chosen, jax.tree.map(lambda x: 1 - x, chosen))
        return under, dataclasses.replace(GOALS, pay=WorldsReward()).lower((), steps, chosen, chosen)

    steps, chosen, (under, as_world) = jax.tree.map(np.asarray, (steps, chosen, both(steps, chosen)))
    alive, after = steps.view.alive, steps.next_view.alive
    wanted = sum((reached[name] & alive[name]).sum(-1) for name in reached)
    np.testing.assert_array_equal(under.reward, wanted)
    for name, who in reached.items():
        np.testing.assert_array_equal(under.next_view.alive[name], after[name] & ~(who & alive[name]))
        for view, plain in ((under.view, steps.view), (under.next_view, steps.next_view)):
            np.testing.assert_array_equal(view.observation[name]["goal"], chosen[name])
            np.testing.assert_array_equal(view.observation[name]["own"], plain.observation[name])
    np.testing.assert_array_equal(as_world.reward, steps.reward)
    assert all((as_world.next_view.alive[name] == after[name]).all() for name in after)


def test_it_is_over_when_all_who_decide_are_there():
    steps, chosen, reached = drawn()
    alive = jax.tree.map(np.asarray, steps.next_view.alive)
    wanted = np.concatenate([reached[name] | ~np.asarray(alive[name]) for name in reached], -1).all(-1)
    assert 0 < wanted.mean() < 1
    np.testing.assert_array_equal(jax.jit(GOALS.over)((), steps.next_view, chosen), wanted)


def test_what_is_reached_adds_no_value_of_what_follows():
    """The target of a step is what is paid and, of those still under way alone, the best that follows."""
    state, batch = experienced(GMAH, Crew().spec)
    lower = dataclasses.replace(GMAH.lower, double=False)

    @jax.jit
    def told(state, steps):
        steps = GMAH._stated(steps, Crew().spec.groups)
        chosen = {name: said["chosen"] for name, said in steps.extras.items()}
        under = GMAH.choices.lower((), steps, chosen, chosen)
        steps = dataclasses.replace(under, extras=dict.fromkeys(chosen, ()))
        return steps, valued(state.lower.target, steps)[1].values, lower.targets(state.lower, steps)

    steps, following, targets = jax.tree.map(np.asarray, told(state, batch.steps))
    best = {}
    for name, x in following.items():
        legal = steps.next_view.legal[name]
        there = steps.next_view.alive[name]
        best[name] = np.where(there, np.where(legal, x, -np.inf).max(-1), 0.0)
    total = sum(x.sum(-1) for x in best.values())
    wanted = steps.reward + lower.discount * np.where(steps.terminated, 0.0, total)
    np.testing.assert_allclose(targets, wanted, rtol=1e-4, atol=1e-5)


def test_subgoals_are_held_until_both_are_there_or_it_is_time():
    world = TwoRooms(limit=100)
    lower = dataclasses.replace(GMAH.lower, feed=replay(length=7))
    method = dataclasses.replace(GMAH, lower=lower, choices=Subgoals(MARKS), every=4)
    places = [([0, 0], [0, 0])] * 6 + [([1, 1], [1, 1])] + [([1, 0], [0, 0])] * 5
    seen = np.zeros((len(places), 1, 2, 44), "float32")
    # nobody anywhere; then everyone everywhere, whatever was chosen; then the first one alone at the near switch
    seen[:, 0, :, -2], seen[:, 0, :, -1] = np.array(places).transpose(1, 0, 2)

    @jax.jit
    def played(key, seen):
        policy = method.policy(method.init(world.spec, key), Mode.EXPLORE)

        def act(memory, given):
            seen, number = given
            view = View({GROUP: seen}, None, {GROUP: jnp.ones((1, 2), bool)})
            _, memory, extras = method.act(policy, memory, view, fold(key, "act", number))
            return memory, extras[GROUP]["due"][0, 0]

        return jax.lax.scan(act, method.begin(policy, 1), (seen, jnp.arange(len(seen))))[1]

    due = played(KEY, seen).tolist()
    assert due == [True, False, False, False, True, False, True, False, False, False, True, False]


def test_what_does_not_fit_is_refused():
    with pytest.raises(UserError, match="between -20 and 19"):
        Subgoals((20,)).specs(Harvest().spec)
    above, below = Subgoals().specs(Harvest().spec)
    assert dict(above.action.parts)["pickers"].n == 20  # every number that is seen
    with pytest.raises(UserError, match="numbers of a vector"):
        Subgoals().specs(below)
