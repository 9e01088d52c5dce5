"""State-dependent exploration noise: its distribution, its smoothness, and the densities that learners use."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_envs import TREE_ACTION, VECTOR

import thespis
from thespis.actors.policy_heads import PolicyHead
from thespis.actors.state_dependent_noise import SquashedStateDependentNoise, StateDependentNoise, renew_noise
from thespis.actors.stochastic import SoftActor, SoftPolicy
from thespis.core.contracts import Mode
from thespis.core.records import EnvSpec, View
from thespis.core.spaces import Box
from thespis.learners.on_policy.actor_critic import ActorCritic, OnPolicyActor
from thespis.learners.optim.normalizers import IDENTITY
from thespis.nets.mlp import orthogonal

KEY = jax.random.key(0)
BOX = Box((2,), -1.0, 1.0)
FEATURES = jnp.array([0.5, -1.0, 2.0])
HEAD = StateDependentNoise(log_std_init=-1.0, resample_interval=3)
SPEC = EnvSpec("small", VECTOR, BOX)


def make_head(space=BOX, head=HEAD) -> PolicyHead:
    return PolicyHead(space, 3, KEY, init=orthogonal(1.0), continuous_head=head)


def make_actor(mode: Mode) -> OnPolicyActor:
    network = ActorCritic(SPEC, (8,), KEY, policy_head=HEAD)
    return OnPolicyActor(network, (), IDENTITY, mode)


def first_views(n: int) -> View:
    return View(jax.random.normal(KEY, (n, *VECTOR.shape)), None)


def test_the_density_is_that_of_all_directions():
    """Variance of each action dimension: sum of squared features times squared standard deviations."""
    policy = make_head()(FEATURES)
    np.testing.assert_allclose(jnp.exp(policy.log_std), np.exp(-1.0) * np.linalg.norm(FEATURES), rtol=1e-5)


def test_actions_over_many_directions_have_the_density_s_moments():
    head, n = make_head(), 20_000
    noise = head.init_noise(n)

    def act(noise, key):
        return head(FEATURES, None, renew_noise(noise, key)).sample_with_log_prob(key)

    actions, log_probs = jax.jit(jax.vmap(act))(noise, jax.random.split(KEY, n))
    policy = head(FEATURES)
    np.testing.assert_allclose(actions.mean(0), policy.mean, atol=0.03)
    np.testing.assert_allclose(actions.std(0), jnp.exp(policy.log_std), rtol=0.03)
    np.testing.assert_allclose(log_probs.mean(), -policy.entropy(), atol=0.03)


def test_a_direction_holds_for_the_interval_and_an_episode_starts_with_a_new_one():
    actor, views = make_actor(Mode.EXPLORE), first_views(2)
    memory, steps = actor.network.init_memory(2), []
    act = jax.jit(lambda *arguments: actor.act(*arguments))
    for t in range(7):
        action, memory, extras = act(memory, views, jax.random.fold_in(KEY, t))
        steps.append(np.asarray(action))
        assert extras["log_prob"].shape == (2,)
    np.testing.assert_array_equal(memory[2].age, [7, 7])
    for same in ((0, 1, 2), (3, 4, 5)):  # one state: one action
        np.testing.assert_array_equal(steps[same[0]], steps[same[1]])
        np.testing.assert_array_equal(steps[same[0]], steps[same[2]])
    assert (np.abs(steps[2] - steps[3]) > 1e-3).all() and (np.abs(steps[5] - steps[6]) > 1e-3).all()
    fresh = jax.tree.map(lambda m: m.at[0].set(0), memory)  # the loop resets row 0
    action, memory, _ = act(fresh, views, KEY)
    assert (np.abs(action[0] - steps[6][0]) > 1e-3).all()
    np.testing.assert_array_equal(action[1], steps[6][1])
    np.testing.assert_array_equal(memory[2].age, [1, 8])


def test_learners_see_the_log_probs_of_acting():
    actor, views = make_actor(Mode.EXPLORE), first_views(4)
    memory = actor.network.init_memory(4)
    action, _, extras = actor.act(memory, views, KEY)
    rollout = jax.tree.map(lambda x: x[None], views)
    policy = actor.network.distributions(memory, rollout, jnp.zeros((1, 4), bool))
    log_prob = jax.vmap(jax.vmap(lambda p, a: p.log_prob(a)))(policy, action[None])
    np.testing.assert_allclose(log_prob[0], extras["log_prob"], rtol=1e-5)


def test_greedy_actions_have_no_noise():
    actor, views = make_actor(Mode.EXPLOIT), first_views(2)
    memory = actor.network.init_memory(2)
    action, after, _ = actor.act(memory, views, KEY)
    np.testing.assert_array_equal(after[2].age, [0, 0])
    np.testing.assert_array_equal(
        action, jax.vmap(lambda m, v: actor.action_distribution(m, v)[0].mode())(memory, views)
    )


def test_the_noise_has_no_gradient_to_the_features():
    head = make_head()
    gradient = jax.grad(lambda x: jnp.sum(head(x).log_std))(FEATURES)
    np.testing.assert_array_equal(gradient, jnp.zeros(3))
    gradient = jax.grad(lambda x: jnp.sum(head(x).mean))(FEATURES)
    assert jnp.abs(gradient).min() > 0


def test_boxes_within_other_actions_have_directions_of_their_own():
    head = make_head(TREE_ACTION)
    noise = renew_noise(jax.tree.map(lambda x: x[0], head.init_noise(1)), KEY)
    action = head(FEATURES, None, noise).sample(KEY)
    assert jax.tree.structure(action) == jax.tree.structure(head(FEATURES).sample(KEY))
    assert [direction.shape for direction in noise.directions] == [(3, 2)]


def test_memories_without_noise_stay_as_they_are():
    memory = (jnp.ones(3), ())
    assert renew_noise(memory, KEY) is memory
    assert make_head(BOX, None or thespis.PPO().policy_head).init_noise(2) is None


def test_squashed_noise_is_added_before_squashing():
    head = make_head(head=SquashedStateDependentNoise(log_std_init=-1.0, resample_interval=3))
    noise = renew_noise(jax.tree.map(lambda x: x[0], head.init_noise(1)), KEY)
    policy, acting = head(FEATURES), head(FEATURES, None, noise)
    offset = FEATURES @ (jnp.exp(-1.0) * noise.directions[0])
    np.testing.assert_allclose(acting.sample(KEY), jnp.tanh(policy.mean + offset), rtol=1e-5)
    np.testing.assert_allclose(acting.mode(), jnp.tanh(policy.mean), rtol=1e-5)
    assert jnp.abs(head(1e3 * FEATURES).mean).max() == 2.0  # clipped


def test_soft_actors_keep_a_direction_after_the_random_start():
    head = SquashedStateDependentNoise(log_std_init=-1.0, resample_interval=2)
    policy = SoftPolicy(SoftActor(SPEC, (8,), KEY, continuous_head=head), (), jnp.asarray(False), Mode.EXPLORE)
    memory, views = policy.init_memory(2), first_views(2)
    sac, actions = thespis.SAC(policy_head=head), []
    act = jax.jit(lambda *arguments: sac.act(*arguments))
    for t in range(4):
        action, memory, _ = act(policy, memory, views, jax.random.fold_in(KEY, t))
        actions.append(np.asarray(action))
    np.testing.assert_array_equal(actions[0], actions[1])
    np.testing.assert_array_equal(actions[2], actions[3])
    assert (np.abs(actions[1] - actions[2]) > 1e-3).all()
    plain = SoftPolicy(SoftActor(SPEC, (8,), KEY), (), jnp.asarray(False), Mode.EXPLORE)
    assert plain.init_memory(2) == ()


@pytest.mark.slow
def test_sac_trains_with_it(tmp_path):
    head = SquashedStateDependentNoise()
    settings = {"hidden_sizes": "8,8", "feed.learning_starts": 64, "feed.batch_size": 16}
    method = thespis.SAC(policy_head=head)
    run = thespis.train(
        method, "probe:match-continuous", steps=512, seeds=2, settings=settings, episodes=2, out=tmp_path / "run"
    )
    log_std = run.states.actor.head.free_params[0]
    assert log_std.shape == (2, 8, 1) and jnp.abs(log_std - head.log_std_init).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("method", [thespis.PPO, thespis.A2C])
def test_training_with_it_moves_its_standard_deviations(tmp_path, method):
    run = thespis.train(
        method(policy_head=HEAD, hidden_sizes=(8,)),
        "probe:match-continuous",
        steps=4_096,
        seeds=2,
        out=tmp_path / "run",
    )
    log_std = run.states.network.policy_head.free_params[0]
    assert log_std.shape == (2, 8, 1) and jnp.abs(log_std - HEAD.log_std_init).max() > 1e-3
