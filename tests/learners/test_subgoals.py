"""Subgoals of GMAH: when they are reached, renewed and rewarded, against numpy."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import synthetic_batches
from method_cases import CASES, replay
from small_envs import Crew
from test_team_methods import init_and_batch

from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.laws.random_samples import random_transitions
from thespis.core.records import View
from thespis.envs.compiled.harvest import Harvest
from thespis.learners.multi_agent.value_decomposition import team_q_values
from thespis.papers.gmah.envs import GROUP, SWITCH_FEATURES, TwoRooms
from thespis.papers.gmah.subgoals import SubgoalSpace, TaskReward
from thespis.runtime.keys import fold

KEY = synthetic_batches.quick_key(0)
GMAH = CASES["gmah"].method
GOALS = SubgoalSpace((0, -1))


def random_subgoal_steps():
    """Random steps of several agents, their subgoals, and in numpy whether each is reached."""
    spec, rng = Crew().spec, np.random.default_rng(0)
    steps = random_transitions(spec, rng, 5, 6)
    subgoals = {g.name: rng.integers(0, 2, (5, 6, g.num_agents)).astype("int32") for g in spec.groups}
    reached = {}
    for name, obs in jax.tree.map(np.asarray, steps.next_view.observation).items():
        reached[name] = np.zeros(subgoals[name].shape, bool)
        for index in np.ndindex(subgoals[name].shape):
            reached[name][index] = obs[index][[0, -1][subgoals[name][index]]] > 0.5
    assert 0 < reached["movers"].mean() < 1
    return steps, jax.device_put(subgoals), reached


def test_lower_level_is_rewarded_for_reached_subgoals():
    steps, subgoals, reached = random_subgoal_steps()

    @jax.jit
    def both(steps, subgoals):
        low_level = GOALS.low_level_transitions((), steps, subgoals, jax.tree.map(lambda x: 1 - x, subgoals))
        return low_level, dataclasses.replace(GOALS, low_level_reward=TaskReward()).low_level_transitions(
            (), steps, subgoals, subgoals
        )

    steps, subgoals, (low_level, task_reward) = jax.tree.map(np.asarray, (steps, subgoals, both(steps, subgoals)))
    alive, next_alive = steps.view.alive, steps.next_view.alive
    expected = sum((reached[name] & alive[name]).sum(-1) for name in reached)
    np.testing.assert_array_equal(low_level.reward, expected)
    for name, is_reached in reached.items():
        np.testing.assert_array_equal(low_level.next_view.alive[name], next_alive[name] & ~(is_reached & alive[name]))
        for view, plain in ((low_level.view, steps.view), (low_level.next_view, steps.next_view)):
            np.testing.assert_array_equal(view.observation[name]["goal"], subgoals[name])
            np.testing.assert_array_equal(view.observation[name]["own"], plain.observation[name])
    np.testing.assert_array_equal(task_reward.reward, steps.reward)
    assert all((task_reward.next_view.alive[name] == next_alive[name]).all() for name in next_alive)


def test_subgoals_terminate_when_all_agents_have_reached_theirs():
    steps, subgoals, reached = random_subgoal_steps()
    alive = jax.tree.map(np.asarray, steps.next_view.alive)
    expected = np.concatenate([reached[name] | ~np.asarray(alive[name]) for name in reached], -1).all(-1)
    assert 0 < expected.mean() < 1
    np.testing.assert_array_equal(jax.jit(GOALS.should_terminate)((), steps.next_view, subgoals), expected)


@pytest.mark.long
def test_agents_at_their_subgoal_are_not_bootstrapped():
    """TD target: the reward plus the best next values of the agents that have not reached their subgoal."""
    state, batch = init_and_batch(GMAH, Crew().spec)
    lower = dataclasses.replace(GMAH.low_level, double_q=False)

    @jax.jit
    def low_level_targets(state, steps):
        steps = GMAH._with_state(steps, Crew().spec.groups)
        subgoals = {name: extras["chosen"] for name, extras in steps.extras.items()}
        low_level = GMAH.high_level_actions.low_level_transitions((), steps, subgoals, subgoals)
        steps = dataclasses.replace(low_level, extras=dict.fromkeys(subgoals, ()))
        return (
            steps,
            team_q_values(state.low_level.target_network, steps)[1].q_values,
            lower.td_targets(state.low_level, steps),
        )

    steps, next_values, targets = jax.tree.map(np.asarray, low_level_targets(state, batch.steps))
    best_values = {}
    for name, x in next_values.items():
        legal = steps.next_view.action_mask[name]
        alive = steps.next_view.alive[name]
        best_values[name] = np.where(alive, np.where(legal, x, -np.inf).max(-1), 0.0)
    total = sum(x.sum(-1) for x in best_values.values())
    expected = steps.reward + lower.discount * np.where(steps.terminated, 0.0, total)
    np.testing.assert_allclose(targets, expected, rtol=1e-4, atol=1e-5)


def test_subgoals_are_kept_until_reached_or_interval_ends():
    env = TwoRooms(time_limit=100)
    low_level = dataclasses.replace(GMAH.low_level, feed=replay(sequence_length=7))
    method = dataclasses.replace(
        GMAH, low_level=low_level, high_level_actions=SubgoalSpace(SWITCH_FEATURES), high_level_interval=4
    )
    at_switches = [([0, 0], [0, 0])] * 6 + [([1, 1], [1, 1])] + [([1, 0], [0, 0])] * 5
    observations = np.zeros((len(at_switches), 1, 2, 44), "float32")
    # nobody at a switch; then both agents at both switches; then only agent 0 at the near switch
    observations[:, 0, :, -2], observations[:, 0, :, -1] = np.array(at_switches).transpose(1, 0, 2)

    @jax.jit
    def subgoal_is_due(key, observations):
        policy = method.policy(method.init(env.spec, key), Mode.EXPLORE)

        def act(memory, inputs):
            obs, index = inputs
            view = View({GROUP: obs}, None, {GROUP: jnp.ones((1, 2), bool)})
            _, memory, extras = method.act(policy, memory, view, fold(key, "act", index))
            return memory, extras[GROUP]["due"][0, 0]

        return jax.lax.scan(act, method.init_memory(policy, 1), (observations, jnp.arange(len(observations))))[1]

    due = subgoal_is_due(KEY, observations).tolist()
    assert due == [True, False, False, False, True, False, True, False, False, False, True, False]


def test_unsuitable_subgoals_are_rejected():
    with pytest.raises(UserError, match="between -20 and 19"):
        SubgoalSpace((20,)).level_specs(Harvest().spec)
    high_level, low_level = SubgoalSpace().level_specs(Harvest().spec)
    assert dict(high_level.action_space.spaces)["pickers"].n == 20  # every feature of the observation
    with pytest.raises(UserError, match="entries of a vector"):
        SubgoalSpace().level_specs(low_level)
