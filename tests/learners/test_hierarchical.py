"""Two-level methods (RODE): high-level transitions against numpy, role intervals, and roles from action effects."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from method_cases import CASES, SMALL, replay
from small_envs import Crew
from test_team_methods import init_and_batch

from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.records import Batch, EnvSpec, Transition
from thespis.core.spaces import Box, Discrete, dict_space
from thespis.critics.role_matching import DotProductUtility, role_observation_space
from thespis.data.feeds import Replay
from thespis.envs.compiled.harvest import GROUP, Harvest
from thespis.learners.multi_agent.hierarchical import high_level_transition
from thespis.methods.multi_agent.qmix import QMIX
from thespis.nets.body import GRU
from thespis.papers.rode.action_roles import ActionRoles, RandomAssignment, RoleAssignment
from thespis.runtime.keys import fold, seed_key

KEY = seed_key(0)
RODE = CASES["rode"].method


def test_high_level_transition_ends_with_its_interval_or_episode():
    rng = np.random.default_rng(0)
    transition = jax.jit(high_level_transition)
    for _ in range(200):
        reward = rng.normal(size=7).astype("float32")
        begins, interval_ends, terminated, truncated = rng.random((4, 7)) < np.array([[0.5], [0.3], [0.1], [0.1]])
        begins[rng.integers(4)] = True
        start = end = begins.tolist().index(True)
        while end < 6 and not (interval_ends[end] or terminated[end] or truncated[end]):
            end += 1
        result = transition(reward, begins, interval_ends, terminated, truncated)
        expected = reward[start : end + 1].sum(), end - start + 1, terminated[end], truncated[end]
        np.testing.assert_allclose(np.array(result, "float32"), np.array(expected, "float32"), rtol=1e-5, atol=1e-5)


def experience_with_roles(method, spec, seed=0):
    """A state whose roles allow different actions, and a batch."""
    state, batch = init_and_batch(method, spec, seed)
    assignments = {
        name: RoleAssignment(
            s.action_embeddings,
            jnp.arange(s.role_masks.shape[1]) % s.role_masks.shape[0] == jnp.arange(s.role_masks.shape[0])[:, None],
        )
        for name, s in state.high_level_actions_state.assignments.items()
    }
    return eqx.tree_at(lambda s: s.high_level_actions_state.assignments, state, assignments), batch


@pytest.mark.slow
def test_role_lasts_its_interval_and_restricts_actions():
    env = Harvest(time_limit=100)
    method = dataclasses.replace(
        RODE, high_level_interval=3, low_level=dataclasses.replace(RODE.low_level, feed=replay(sequence_length=5))
    )
    state, _ = experience_with_roles(method, env.spec)
    policy = method.policy(state, Mode.EXPLORE)
    memory, (env_state, step) = (
        method.init_memory(policy, 4),
        jax.vmap(lambda k: env.reset((), k))(jax.random.split(KEY, 4)),
    )
    role_masks, roles = np.asarray(state.high_level_actions_state.assignments[GROUP].role_masks), []
    act = jax.jit(method.act)
    for tick in range(12):
        action, memory, extras = act(policy, memory, step.view, fold(KEY, "act", tick))
        assert role_masks[extras[GROUP]["chosen"], action[GROUP]].all()
        assert (extras[GROUP]["due"] == (tick % 3 == 0)).all() and (extras[GROUP]["last"] == (tick % 3 == 2)).all()
        roles.append(np.asarray(extras[GROUP]["chosen"]))
        env_state, step = jax.vmap(env.step)(env_state, action, jax.random.split(KEY, 4))
    by_interval = np.stack(roles).reshape(4, 3, 4, 2)
    assert (by_interval == by_interval[:, :1]).all() and (by_interval[1:, 0] != by_interval[:-1, 0]).any()


@pytest.mark.slow
def test_high_level_learns_from_whole_intervals():
    """The first interval of each window, built row by row in numpy."""
    spec = Crew().spec
    state, batch = experience_with_roles(RODE, spec)
    # in half of the windows the first role was chosen earlier
    later = {"due": jnp.array([0, 1, 0]), "last": jnp.array([1, 0, 1])}

    def shifted(name, x):
        half = jnp.arange(x.shape[1])[:, None] < x.shape[1] // 2
        return jnp.where(half, x, later[name][:, None, None] > 0) if name in later else x

    extras = {group: {k: shifted(k, x) for k, x in leaves.items()} for group, leaves in batch.steps.extras.items()}
    batch = eqx.tree_at(lambda b: b.steps.extras, batch, extras)
    _, report = jax.jit(RODE.update)(state, batch, KEY)
    steps, actor_state = (
        RODE._with_state(batch.steps, spec.groups),
        RODE.high_level_actions.actor_state(state.high_level_actions_state),
    )
    alive = np.concatenate(list(steps.view.alive.values()), -1)
    due, last = (
        (np.concatenate([x[what] for x in steps.extras.values()], -1) & alive).any(-1) for what in ("due", "last")
    )
    starts, reward, ends, mask = [], [], [], []
    for row in range(due.shape[1]):
        start = end = int(np.argmax(due[:, row]))
        while end < len(due) - 1 and not (last[end, row] or steps.done[end, row]):
            end += 1
        starts, ends = [*starts, start], [*ends, end]
        reward.append(float(sum(steps.reward[start : end + 1, row])))
        mask.append(bool(batch.mask[start, row] & due[start, row]))
    assert any(mask) and not all(mask) and len(set(ends)) > 1
    rows = np.arange(len(starts))
    first, final = (jax.tree.map(lambda x, i=i: x[np.array(i), rows][None], steps) for i in (starts, ends))
    transition = dataclasses.replace(
        first,
        view=RODE.high_level_actions.high_level_view(actor_state, first.view),
        action={k: v["chosen"] for k, v in first.extras.items()},
        reward=jnp.array(reward)[None],
        terminated=final.terminated,
        next_view=RODE.high_level_actions.high_level_view(actor_state, final.next_view),
        next_privileged=final.next_privileged,
    )
    high_level_batch = Batch(transition, jnp.array(mask)[None], (), batch.update_index)
    expected = jax.jit(RODE.high_level.update)(state.high_level, high_level_batch, fold(KEY, "upper"))
    for name, value in expected[1].metrics.items():
        np.testing.assert_allclose(report.metrics[f"upper_{name}"], value, rtol=1e-4, atol=1e-6)


@pytest.mark.long
def test_utilities_are_dot_products_with_the_role_key():
    spec = EnvSpec("seen", dict_space(own=role_observation_space(Box((3,)), 4, 2, 5), which=Discrete(2)), Discrete(4))
    network = DotProductUtility().build(spec, (6,), None, KEY)
    rng = np.random.default_rng(0)
    own, action_vectors = jnp.asarray(rng.normal(size=3), "float32"), jnp.asarray(rng.normal(size=(4, 2)), "float32")
    obs = {"own": {"own": own, "role": jnp.int32(3), "said": action_vectors}, "which": jnp.int32(1)}
    features, _ = network.body((), network.body_input(obs))
    expected = [sum(action_vectors[a, i] * network.role_keys[3, i] @ features for i in range(2)) for a in range(4)]
    np.testing.assert_allclose(network.q_values(features, obs), expected, rtol=1e-5)


def test_random_assignment_gives_roles_of_equal_size():
    labels = RandomAssignment().assign_roles(jnp.zeros((11, 2)), 3, KEY)
    assert sorted(np.bincount(labels).tolist()) == [3, 4, 4]
    assert (labels != RandomAssignment().assign_roles(jnp.zeros((11, 2)), 3, seed_key(1))).any()


@pytest.mark.slow
def test_actions_with_equal_effects_share_a_role():
    """Trained on random actions in Harvest: all variants of a tool are in one role."""
    env = Harvest(num_cells=3, num_tool_variants=3)
    roles = ActionRoles(num_roles=4, num_pretrain_updates=400.0, learning_rate=3e-3, embedding_size=6)
    state = roles.init(env.spec, KEY)

    def random_step(key):
        keys = jax.random.split(key, 3)
        action = {GROUP: jax.random.randint(keys[0], (2,), 0, env.num_actions)}
        env_state, step = env.reset((), keys[1])
        position = jax.random.randint(keys[2], (2,), 0, 3)
        env_state, step = env.step(
            eqx.tree_at(lambda s: s.positions, env_state, position), {GROUP: jnp.zeros(2, "int32")}, key
        )
        return step, action, env.step(env_state, action, key)[1]

    @jax.jit
    def update(state, index):
        step, action, next_step = jax.vmap(random_step)(jax.random.split(fold(KEY, "play", index), 64))
        steps = Transition(
            step.view,
            action,
            next_step.reward,
            next_step.terminated,
            next_step.truncated,
            next_step.view,
            step.terminated,
        )
        steps = jax.tree.map(lambda x: x[None], steps)
        return roles.update(state, Batch(steps, jnp.ones((1, 64), bool), (), index), KEY)[0]

    for index in range(400):
        state = update(state, jnp.int32(index))
    role_masks = np.asarray(state.assignments[GROUP].role_masks)
    assert (role_masks.sum(0) == 1).all()
    role_of_action = role_masks.argmax(0)
    assert (
        len(set(role_of_action[3:6])) == len(set(role_of_action[6:9])) == 1 and role_of_action[3] != role_of_action[6]
    )


@pytest.mark.long
def test_invalid_settings_are_refused():
    spec = Harvest().spec
    with pytest.raises(UserError, match=r"feed\.sequence_length to 9"):
        dataclasses.replace(RODE, high_level_interval=5).init(spec, KEY)
    with pytest.raises(UserError, match="without memory"):
        dataclasses.replace(
            RODE, high_level=QMIX(utility_network=DotProductUtility(), hidden_sizes=SMALL, memory=GRU(4))
        ).init(spec, KEY)
    with pytest.raises(UserError, match="discrete actions"):
        RODE.init(CASES["maddpg"].env.spec, KEY)
    assert isinstance(RODE.feed, Replay) and RODE.feed == replay(sequence_length=3)
