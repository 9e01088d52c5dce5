"""Role learning (ACORM): contrastive loss and attention mixer, against loops over agents in numpy."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from method_cases import CASES
from method_cases import CREW as CREW_ENV

from thespis.core.errors import UserError
from thespis.core.laws.random_samples import random_transitions, random_value
from thespis.core.records import Batch
from thespis.core.spaces import Box
from thespis.critics.critic_inputs import with_agent_id
from thespis.critics.mixers import LinearUtility
from thespis.critics.role_encoding import AttentionMixer, RoleUtility
from thespis.learners.multi_agent.role_contrast import RoleContrast
from thespis.learners.multi_agent.value_decomposition import team_q_values
from thespis.methods.multi_agent.qmix import QMIX
from thespis.nets.mlp import Linear, uniform_fan_in
from thespis.runtime.keys import seed_key

KEY = seed_key(0)
CREW = CREW_ENV.spec


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.long
def test_contrastive_loss_compares_roles_of_one_step():
    rng, contrast = np.random.default_rng(0), RoleContrast(num_clusters=2)
    clusters = np.where(rng.random((2, 3, 4)) < 0.5, -5.0, 5.0).astype("float32")
    clusters[..., :2] = -5.0, 5.0  # both clusters occur in every step, else k-means would split one
    points = (clusters[..., None] + rng.normal(0, 0.1, (2, 3, 4, 2))).astype("float32")
    present = rng.random((2, 3, 4)) < 0.8
    present[..., :2] = True
    present[0, 0] = False
    layer, target_layer = (Linear(2, 3, uniform_fan_in, seed_key(i)) for i in (1, 2))
    bilinear = np.asarray(jax.random.normal(KEY, (3, 3)))
    roles, target_roles = (sigmoid(points @ np.asarray(x.weight)) for x in (layer, target_layer))
    losses = []
    for t, r in np.ndindex(2, 3):
        agents = np.flatnonzero(present[t, r])
        scores = np.exp(roles[t, r] @ bilinear @ target_roles[t, r].T)
        for i in agents:
            same_cluster = [j for j in agents if clusters[t, r, j] == clusters[t, r, i]]
            losses.append(-np.log(scores[i, same_cluster].sum() / scores[i, agents].sum()))
    embeddings = {"all": {"embedding": jnp.asarray(points)}}
    result = jax.jit(contrast.loss)(
        {"all": layer}, jnp.asarray(bilinear), {"all": target_layer}, embeddings, {"all": jnp.asarray(present)}
    )
    np.testing.assert_allclose(result, np.mean(losses), rtol=1e-4)


@pytest.mark.long
def test_attention_averages_roles_of_present_agents():
    network = AttentionMixer(query_size=3, num_heads=2, attention_size=4, output_size=2).build(Box((5,)), 3, 6, KEY)
    rng = np.random.default_rng(1)
    queries, roles = rng.normal(0, 3, (3, 3)).astype("float32"), rng.normal(0, 3, (3, 6)).astype("float32")
    present = np.array([True, False, True])
    query_weight, key_weight, value_weight, output_weight = (
        np.asarray(x.weight) for x in (network.query_proj, network.key_proj, network.value_proj, network.output_proj)
    )
    expected = []
    for q in queries:
        heads = []
        for head in (slice(0, 2), slice(2, 4)):
            scores = [np.exp((q @ query_weight)[head] @ (r @ key_weight)[head] / np.sqrt(2.0)) for r in roles[present]]
            heads.append(
                sum(w * (r @ value_weight)[head] for w, r in zip(scores, roles[present], strict=True)) / sum(scores)
            )
        expected.append(np.concatenate(heads) @ output_weight)
    result = network.attend(jnp.asarray(queries), jnp.asarray(roles), jnp.asarray(present))
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    state = {
        "state": jnp.ones(5),
        "queries": jnp.asarray(queries.ravel()),
        "roles": jnp.asarray(roles),
        "there": jnp.asarray(present),
    }
    assert jax.grad(network)(jnp.array([1.0, -2.0, 3.0]), state).min() >= 0


def test_utility_networks_without_roles_are_rejected():
    with pytest.raises(UserError, match="RoleUtility"):
        AttentionMixer().build(Box((5,)), 3, LinearUtility().role_size, KEY)
    with pytest.raises(UserError, match="RoleUtility"):
        RoleContrast().init({}, QMIX().utility_network.role_size, KEY)


PRETRAINED = dataclasses.replace(
    CASES["acorm"].method,
    auxiliary_loss=RoleContrast(
        update_interval=2, num_clusters=2, num_embedding_updates=2, num_role_updates=2, tau=0.5
    ),
)


def crew_batch(update_index):
    steps = jax.tree.map(jnp.asarray, random_transitions(CREW, np.random.default_rng(update_index), 3, 4))
    return Batch(steps, jnp.ones((3, 4), bool), (), jnp.asarray(update_index))


def updates(num_updates):
    """The states before each of the first updates, and after the last one."""
    states, update = [PRETRAINED.init(CREW, KEY)], jax.jit(PRETRAINED.update)
    for i in range(num_updates):
        states.append(update(states[-1], crew_batch(i), KEY)[0])
    return states


def layers(state):
    """By name: all parts of the networks of the first group of agents, and the mixer."""
    network = next(iter(state.network.agent_networks.values()))
    return {
        "embedding": (network.body.history_body, network.body.embedding_layer),
        "role": network.body.role_layer,
        "utility": (network.body.utility_body, network.out),
        "mixer": state.network.mixer,
    }


@pytest.mark.slow
def test_embeddings_then_roles_then_values_are_trained():
    states = updates(5)
    for index, trained in enumerate([{"embedding"}, {"embedding"}, {"role"}, {"role"}]):
        before, after = (layers(states[i]) for i in (index, index + 1))
        changed = {
            name
            for name in before
            if any((x != y).any() for x, y in zip(*map(jax.tree.leaves, (before[name], after[name])), strict=True))
        }
        assert changed == trained
        assert states[index + 1].num_updates == 0
        target = jax.tree.leaves(states[index + 1].target_network), jax.tree.leaves(states[index + 1].network)
        assert all((x == y).all() for x, y in zip(*target, strict=True))
    assert states[-1].num_updates == 1
    last, before = layers(states[-1]), layers(states[-2])
    assert all(
        any((x != y).any() for x, y in zip(*map(jax.tree.leaves, (before[n], last[n])), strict=True))
        for n in ("embedding", "utility", "mixer")
    )


@pytest.mark.long
def test_embeddings_predict_next_observations_and_indices():
    state, steps = PRETRAINED.init(CREW, KEY), crew_batch(0).steps
    contrast, outputs = PRETRAINED.auxiliary_loss, team_q_values(state.network, steps)[0].aux_outputs
    decoders, inputs, errors = state.auxiliary_state.pretraining.decoders, {}, []
    for group in CREW.groups:
        next_observation = steps.next_view.observation[group.name]
        indices = jnp.broadcast_to(jnp.arange(group.num_agents, dtype="int32"), (3, 4, group.num_agents))
        inputs[group.name] = {"own": next_observation, "which": indices}
        for t, r, agent in np.ndindex(3, 4, group.num_agents):
            if not steps.view.alive[group.name][t, r, agent]:
                continue
            parts = [np.ravel(x[t, r, agent]) for x in jax.tree.leaves(next_observation)]
            target = np.concatenate([*parts, np.eye(group.num_agents)[agent]])
            prediction = decoders[group.name](outputs[group.name]["embedding"][t, r, agent])
            errors.append(np.mean((np.asarray(prediction) - target) ** 2))
    alive = steps.view.alive
    result = contrast.prediction_error(state.network.agent_networks, decoders, outputs, inputs, alive)
    np.testing.assert_allclose(result, np.mean(errors), rtol=1e-4)


@pytest.mark.parametrize("index_visible", [True, False])
def test_agents_differ_by_their_index_only_if_they_see_it(index_visible):
    group = CREW.groups[0]
    spec = with_agent_id(CREW, group)
    network = RoleUtility(3, 4, index_visible).build(spec, (5,), None, KEY)
    own = random_value(spec.observation_space, np.random.default_rng(2))["own"]

    def values(index):
        observation = {"own": own, "which": jnp.int32(index)}
        memory = jax.tree.map(lambda x: x[0], network.body.init_memory(1))
        features, _ = network.body(memory, network.body_input(observation))
        return network.q_values(features, observation)

    assert (values(0) != values(1)).any() == index_visible
