"""Cooperative multi-agent methods: absent agents, monotone mixers, TD targets and losses, against loops."""

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import synthetic_batches
from method_cases import CASES, SMALL, ppo, replay
from small_envs import Crew, Walk

from thespis.core.errors import UserError
from thespis.core.laws.assertions import assert_same_bits
from thespis.core.laws.random_samples import random_transitions
from thespis.core.records import Batch
from thespis.core.spaces import Box, Discrete, MultiDiscrete
from thespis.critics.critic_inputs import GlobalState, LocalObs, joint_observation, joint_space
from thespis.critics.mixers import MonotonicMixer, SumMixer
from thespis.data.feeds import Rollouts
from thespis.learners.multi_agent.value_decomposition import mix_q_values, team_q_values
from thespis.methods.multi_agent.ippo import IPPO
from thespis.methods.multi_agent.maddpg import MADDPG
from thespis.methods.multi_agent.mappo import MAPPO
from thespis.methods.multi_agent.qmix import QMIX
from thespis.methods.multi_agent.vdn import VDN
from thespis.runtime.keys import seed_key

KEY = synthetic_batches.quick_key(0)
SMALL_QMIX = QMIX(mixer=MonotonicMixer(4, (8,)), hidden_sizes=SMALL, feed=replay(sequence_length=2), double_q=False)


def init_and_batch(method, spec, seed=0):
    """An initial state and a batch of random steps with actions of its policy."""
    feed = method.feed
    rows = feed.num_envs if isinstance(feed, Rollouts) else feed.batch_size
    length = feed.num_steps if isinstance(feed, Rollouts) else feed.sequence_length
    steps = random_transitions(spec, np.random.default_rng(seed), length, rows)
    return synthetic_batches.init_and_batch(method, spec, steps)


def perturb(batch, spec, absent, *, include_next):
    """The batch with other values where agents are present, or where they are absent."""
    other_steps = jax.tree.map(np.asarray, random_transitions(spec, np.random.default_rng(9), *batch.mask.shape))
    steps = jax.tree.map(np.asarray, batch.steps)

    def choose(mask, old, new):
        use_new = ~mask if absent else mask
        return jax.tree.map(
            lambda x, y: np.where(use_new.reshape(use_new.shape + (1,) * (x.ndim - use_new.ndim)), y, x).astype(
                x.dtype
            ),
            old,
            new,
        )

    def choose_groups(masks, old, new):
        return {name: choose(mask, old[name], new[name]) for name, mask in masks.items()}

    def choose_view(masks, view, new):
        legal = None if view.action_mask is None else choose_groups(masks, view.action_mask, new.action_mask)
        return dataclasses.replace(
            view, observation=choose_groups(masks, view.observation, new.observation), action_mask=legal
        )

    alive, next_alive = steps.view.alive, steps.next_view.alive
    # agents that wait at the next step without having terminated still bootstrap from it
    next_alive = {name: next_alive[name] | (alive[name] & ~steps.agent_outcomes[name].terminated) for name in alive}

    extras = steps.extras
    if jax.tree.leaves(extras):
        extras = choose_groups(
            alive,
            extras,
            jax.tree.map(lambda x: x + np.float32(1) if jnp.issubdtype(x.dtype, jnp.floating) else 0 * x, extras),
        )
    perturbed = dataclasses.replace(
        steps,
        view=choose_view(alive, steps.view, other_steps.view),
        action=choose_groups(alive, steps.action, other_steps.action),
        extras=extras,
    )
    if include_next:
        perturbed = dataclasses.replace(
            perturbed,
            next_view=choose_view(next_alive, steps.next_view, other_steps.next_view),
            agent_outcomes=choose_groups(alive, steps.agent_outcomes, other_steps.agent_outcomes),
        )
    return dataclasses.replace(batch, steps=jax.device_put(perturbed))


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        "vdn",
        "maddpg",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in (
                "ippo in a team",
                "mappo",
                "rode",
                "independent maddpg with choices",
                "independent masac with choices",
            )
        ),
    ],
)
def test_absent_agents_change_no_bit(name):
    """Its observations, masks and actions; off-policy also its rewards and next views, which on-policy methods use."""
    method, spec = CASES[name].method, CASES[name].env.spec
    state, batch = init_and_batch(method, spec)
    update = jax.jit(method.update)
    include_next = not isinstance(method.feed, Rollouts)
    updated = update(state, batch, KEY)
    assert_same_bits(
        updated, update(state, perturb(batch, spec, True, include_next=include_next), KEY), "absent agents"
    )
    with pytest.raises(Exception, match="differs"):
        assert_same_bits(
            updated, update(state, perturb(batch, spec, False, include_next=include_next), KEY), "present agents"
        )


@pytest.mark.slow
def test_agents_that_are_never_present_have_no_role():
    """It is neither attended to nor clustered; agents with memory that only wait still observe."""
    method, spec = CASES["acorm"].method, CASES["acorm"].env.spec
    state, batch = init_and_batch(method, spec)
    # the contrastive loss is used every second update
    state = eqx.tree_at(lambda s: s.num_updates, state, jnp.int32(1))
    update = jax.jit(method.update)

    def with_alive(batch, alive):
        alive_of = lambda b: (b.steps.view.alive, b.steps.next_view.alive)  # noqa: E731
        return eqx.tree_at(alive_of, batch, alive)

    def without(alive):
        return alive | {"movers": alive["movers"].at[..., 1].set(False)}

    alive_masks = jax.tree.map(jnp.asarray, (batch.steps.view.alive, batch.steps.next_view.alive))
    without_agent = tuple(without(alive) for alive in alive_masks)
    only_agent_absent = tuple(without(jax.tree.map(jnp.ones_like, alive)) for alive in alive_masks)
    batch = with_alive(batch, without_agent)
    updated = update(state, batch, KEY)
    perturbed = with_alive(perturb(with_alive(batch, only_agent_absent), spec, True, include_next=True), without_agent)
    assert_same_bits(updated, update(state, perturbed, KEY), "an agent that is never present")
    with pytest.raises(Exception, match="differs"):
        assert_same_bits(updated, update(state, with_alive(batch, alive_masks), KEY), "a present agent")


@pytest.mark.long
def test_mixers_are_monotone():
    spec, count = Crew().spec, 3
    view = random_transitions(spec, np.random.default_rng(1), 1, 50).view

    @jax.jit
    def both(key, values, view):
        monotonic, additive = (
            mixer.build(joint_space(spec), count, 0, key) for mixer in (MonotonicMixer(8, (16,)), SumMixer())
        )
        state = jax.tree.map(lambda x: x[0], joint_observation(spec.groups, view, None))
        return [jax.vmap(jax.grad(mixer))(values, state) for mixer in (monotonic, additive)]

    values = (5 * np.random.default_rng(2).normal(size=(50, count))).astype("float32")
    gradients, additive_gradients = map(np.asarray, both(KEY, values, view))
    assert gradients.min() >= 0 and (gradients > 1e-4).mean() > 0.9 and gradients.std() > 1e-3
    np.testing.assert_array_equal(additive_gradients, 1.0)


@pytest.mark.long
def test_td_target_maximizes_over_joint_actions():
    """Against enumeration of all legal joint actions of the present agents."""
    spec = Crew().spec
    state, batch = init_and_batch(SMALL_QMIX, spec)
    state = eqx.tree_at(lambda s: s.target_network, state, synthetic_batches.init_state(SMALL_QMIX, spec, 5).network)
    targets, next_utilities = jax.jit(
        lambda state, steps: (SMALL_QMIX.td_targets(state, steps), team_q_values(state.target_network, steps)[1])
    )(state, batch.steps)
    steps = jax.tree.map(np.asarray, batch.steps)
    next_values, masks = jax.tree.map(np.asarray, (next_utilities.q_values, steps.next_view.action_mask))
    best_value = np.full(steps.reward.shape, -np.inf)
    mix = jax.jit(lambda chosen_values: mix_q_values(state.target_network, chosen_values, next_utilities))
    for a, b, c in itertools.product(range(4), range(4), range(2)):
        chosen_values = {"movers": next_values["movers"][..., [0, 1], [a, b]], "x": next_values["x"][..., c]}
        is_legal = masks["movers"][..., [0, 1], [a, b]].all(-1) & masks["x"][..., 0, c]
        best_value = np.where(is_legal, np.maximum(best_value, mix(chosen_values)), best_value)
    expected = steps.reward + SMALL_QMIX.discount * np.where(steps.terminated, 0.0, best_value)
    assert not steps.terminated.all() and steps.terminated.any()
    np.testing.assert_allclose(targets, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.long
def test_double_q_targets_use_both_networks():
    spec, method = Crew(legal=False).spec, dataclasses.replace(SMALL_QMIX, double_q=True, mixer=SumMixer())
    state, batch = init_and_batch(method, spec)
    state = eqx.tree_at(lambda s: s.target_network, state, synthetic_batches.init_state(method, spec, 5).network)
    both = jax.jit(
        lambda s, steps: [team_q_values(network, steps)[1].q_values for network in (s.network, s.target_network)]
    )
    online, target = jax.tree.map(np.asarray, both(state, batch.steps))
    alive = batch.steps.next_view.alive
    value = sum(
        np.where(alive[n], np.take_along_axis(target[n], np.argmax(online[n], -1)[..., None], -1)[..., 0], 0.0).sum(-1)
        for n in target
    )
    expected = np.asarray(batch.steps.reward) + method.discount * np.where(batch.steps.terminated, 0.0, value)
    np.testing.assert_allclose(jax.jit(method.td_targets)(state, batch.steps), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_maddpg_critic_loss_matches_the_equation():
    """``r_i + gamma Q_i'(x', mu'(o'))`` agent by agent, with target networks that differ from the online ones."""
    method = MADDPG(dataclasses.replace(CASES["maddpg"].method.method, feed=replay(batch_size=4, sequence_length=1)))
    spec = CASES["maddpg"].env.spec
    state, batch = init_and_batch(method, spec)
    target_state = method.init(spec, seed_key(7))
    for name in state.by_group:
        targets = target_state.by_group[name].actor, target_state.by_group[name].critic
        target_networks = lambda s, name=name: (s.by_group[name].target_actor, s.by_group[name].target_critic)  # noqa: E731
        state = eqx.tree_at(target_networks, state, targets)
    _, report = jax.jit(method.update)(state, batch, KEY)
    steps = jax.tree.map(lambda x: x[0], batch.steps)

    def critic_input(view, actions, row, name, i):
        def masked(values):
            return {
                g.name: tuple(
                    np.where(view.alive[g.name][row, j], values[g.name][row, j], 0.0).astype("float32")
                    for j in range(g.num_agents)
                )
                for g in spec.groups
            }

        other_actions = masked(actions)
        other_actions[name] = tuple(np.zeros_like(a) if j == i else a for j, a in enumerate(other_actions[name]))
        return jax.tree.map(jnp.asarray, ({"all": masked(view.observation), "which": np.int32(i)}, other_actions))

    target_actions = {
        n: jax.vmap(jax.vmap(s.target_actor))(steps.next_view.observation[n]) for n, s in state.by_group.items()
    }
    for name, learner in state.by_group.items():
        losses = []
        for row, i in itertools.product(range(4), range({g.name: g.num_agents for g in spec.groups}[name])):
            if not steps.view.alive[name][row, i]:
                continue
            inputs = critic_input(steps.view, steps.action, row, name, i)
            next_inputs = critic_input(steps.next_view, target_actions, row, name, i)
            critic, target = (jax.tree.map(lambda x: x[0], c) for c in (learner.critic, learner.target_critic))
            next_value = target(next_inputs, target_actions[name][row, i][None])[0]
            terminated = steps.terminated[row] | steps.agent_outcomes[name].terminated[row, i]
            td_target = steps.agent_outcomes[name].reward[row, i] + 0.99 * jnp.where(terminated, 0.0, next_value)
            losses.append((critic(inputs, steps.action[name][row, i][None])[0] - td_target) ** 2)
        np.testing.assert_allclose(report.metrics[f"{name}_critic_loss"], np.mean(losses), rtol=1e-4)


@pytest.mark.slow
def test_mappo_with_local_observations_equals_ippo():
    spec = Crew().spec
    ippo, mappo = IPPO(ppo()), MAPPO(ppo(), critic_input=LocalObs())
    state, batch = init_and_batch(ippo, spec)
    assert_same_bits(state, mappo.init(spec, KEY), "a fresh state")
    assert_same_bits(ippo.update(state, batch, KEY), mappo.update(state, batch, KEY), "an update")


@pytest.mark.long
@pytest.mark.parametrize("method", [ppo(), CASES["a2c"].method, CASES["impala"].method], ids=["ppo", "a2c", "impala"])
def test_privileged_copy_of_the_observation_changes_nothing(method):
    method = dataclasses.replace(method, memory=None)
    spec = Walk(Discrete(4)).spec
    privileged_spec = dataclasses.replace(spec, privileged_space=spec.observation_space)
    state, batch = init_and_batch(method, spec)
    privileged_state = synthetic_batches.init_state(method, privileged_spec)
    steps = dataclasses.replace(
        batch.steps, privileged=batch.steps.view.observation, next_privileged=batch.steps.next_view.observation
    )
    update = jax.jit(method.update)
    updated, privileged_updated = (
        update(state, batch, KEY),
        update(privileged_state, dataclasses.replace(batch, steps=steps), KEY),
    )
    assert_same_bits(jax.tree.leaves(updated), jax.tree.leaves(privileged_updated), "a privileged copy")
    negated = {name: -np.asarray(getattr(steps, name)) for name in ("privileged", "next_privileged")}
    noise = dataclasses.replace(steps, **negated)
    with pytest.raises(Exception, match="differs"):
        assert_same_bits(
            privileged_updated,
            update(privileged_state, dataclasses.replace(batch, steps=noise), KEY),
            "other privileged observations",
        )


def test_global_state_critic_inputs():
    spec = dataclasses.replace(Crew().spec, privileged_space=Box((7,)))
    steps = random_transitions(spec, np.random.default_rng(0), 2, 3)
    batch = Batch(steps, jnp.ones((2, 3), bool), (), jnp.int32(0))
    inputs = jax.jit(lambda batch: GlobalState().critic_observations(spec.groups, batch, dict))(batch)
    current, next_inputs = jax.tree.map(np.asarray, inputs["movers"])
    np.testing.assert_array_equal(current["all"][:, :, 1], steps.privileged)
    np.testing.assert_array_equal(next_inputs["all"][:, :, 0], steps.next_privileged)
    np.testing.assert_array_equal(current["own"], steps.view.observation["movers"])
    np.testing.assert_array_equal(current["which"][1, 2], [0, 1])


def test_unsuitable_environments_are_rejected():
    with pytest.raises(UserError, match="one agent"):
        VDN().init(Walk(Discrete(4)).spec, KEY)
    with pytest.raises(UserError, match="discrete choice"):
        QMIX().init(CASES["maddpg"].env.spec, KEY)
    with pytest.raises(UserError, match="continuous actions"):
        MADDPG().init(Crew(action=MultiDiscrete((2, 2)), legal=False).spec, KEY)
