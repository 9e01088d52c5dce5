"""Bayesian network policies over joint actions: against enumeration of all joint actions."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.records import EnvSpec
from thespis.core.spaces import AgentGroup, Box, Discrete, dict_space, tuple_space
from thespis.papers.bayesian_joint_policy.graph_policy import BayesianNetworkPolicy, CompleteGraph, LearnedGraph
from thespis.runtime.keys import indexed_keys, seed_key

SPEC = EnvSpec(
    "three",
    dict_space(a=Box((2,)), b=Box((3,))),
    dict_space(a=Discrete(3), b=Discrete(2)),
    groups=(AgentGroup("a", 2), AgentGroup("b", 1)),
)
OBS_SPACE = dict_space(a=tuple_space(Box((2,)), Box((2,))), b=tuple_space(Box((3,))))
OBS = {"a": (jnp.array([1.0, -1.0]), jnp.array([0.5, 2.0])), "b": (jnp.array([1.0, 0.0, -2.0]),)}
LEGAL = {"a": jnp.array([[True, True, True], [True, False, True]]), "b": jnp.ones((1, 2), bool)}
ACTIONS = jnp.array(list(itertools.product(range(3), range(3), range(2))), "int32")


def make_policy(graph):
    """A joint policy whose probabilities are far from uniform."""
    policy = BayesianNetworkPolicy(SPEC, OBS_SPACE, graph, (8,), seed_key(1))
    return jax.tree.map(lambda x: x + 0.7 * jax.random.normal(seed_key(2), x.shape), policy)


@pytest.mark.long
@pytest.mark.parametrize("edges", [[], [(2, 0)], [(2, 0), (0, 1)], [(0, 1), (0, 2), (1, 2)]], ids=str)
def test_samples_have_their_log_probs_and_dependencies(edges):
    """For any order of agents; an agent's probabilities depend on the actions of its parents and on no others."""
    policy, graph = make_policy(CompleteGraph()), np.zeros((3, 3), "float32")
    for parent, child in edges:
        graph[parent, child] = 1.0
    conditionals = jax.jit(
        jax.vmap(lambda actions: policy.conditional_distribution(jnp.asarray(graph), OBS, LEGAL, actions))
    )(ACTIONS)
    probs = np.exp(jax.vmap(lambda distribution, actions: distribution.log_prob(actions))(conditionals, ACTIONS))
    assert probs.sum() == pytest.approx(1.0, abs=1e-5)
    sample = jax.jit(jax.vmap(lambda key: policy.sample(jnp.asarray(graph), OBS, LEGAL, key, greedy=False)))
    samples, log_prob = sample(indexed_keys(seed_key(3), 20_000))
    index = np.asarray(samples) @ [6, 2, 1]
    np.testing.assert_allclose(np.exp(log_prob), probs[index], rtol=1e-4)
    np.testing.assert_allclose(np.bincount(index, minlength=18) / 20_000, probs, atol=0.015)
    for child, component in enumerate(conditionals.components):
        conditional_probs, actions = np.exp(component.log_probs), np.asarray(ACTIONS)
        for agent in range(3):
            other_actions = np.delete(actions, agent, axis=1)
            pairs = itertools.combinations(range(18), 2)
            difference = max(
                np.abs(conditional_probs[i] - conditional_probs[j]).max()
                for i, j in pairs
                if (other_actions[i] == other_actions[j]).all()
            )
            assert (difference > 1e-3) == ((agent, child) in edges), (agent, child)


@pytest.mark.slow
def test_learned_graphs_are_acyclic_and_differentiable():
    policy = make_policy(LearnedGraph())
    graphs = np.asarray(
        jax.jit(jax.vmap(lambda key: policy.graph_sampler(OBS, key, 1.0)))(indexed_keys(seed_key(4), 500))
    )
    assert set(np.unique(graphs)) == {0.0, 1.0} and len(np.unique(graphs, axis=0)) > 5
    assert not np.einsum("nij,njk,nkl->nil", graphs, graphs, graphs).any()  # no path of three edges, so no cycle
    likeliest = policy.graph_sampler(OBS, seed_key(5), 0.0)
    np.testing.assert_array_equal(likeliest, policy.graph_sampler(OBS, seed_key(6), 0.0))
    others = [jax.tree.map(lambda x, s=s: s * x, OBS) for s in (-3.0, -1.0, 0.0, 2.0)]
    assert any((policy.graph_sampler(other, seed_key(5), 0.0) != likeliest).any() for other in others)

    def log_prob(graph_sampler):
        return policy.conditional_distribution(
            graph_sampler(OBS, seed_key(7), 1.0), OBS, LEGAL, jnp.array([1, 2, 1])
        ).log_prob(jnp.array([1, 2, 1]))

    gradients = jax.grad(log_prob)(policy.graph_sampler)
    assert jnp.abs(gradients.order_scores.weight).max() > 0 and jnp.abs(gradients.edge_logits.weight).max() > 0
