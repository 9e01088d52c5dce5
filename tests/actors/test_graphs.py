"""Joint policies along graphs: against every joint choice, one by one."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.actors.graphs import Complete, Learnt, Ordered
from thespis.core.agents import Group
from thespis.core.keys import key_of, per_index
from thespis.core.records import EnvSpec
from thespis.core.spaces import Box, Discrete, dict_space, tuple_space

SPEC = EnvSpec(
    "three", dict_space(a=Box((2,)), b=Box((3,))), dict_space(a=Discrete(3), b=Discrete(2)),
    groups=(Group("a", 2), Group("b", 1)),
)  # fmt: skip
SEEN = dict_space(a=tuple_space(Box((2,)), Box((2,))), b=tuple_space(Box((3,))))
LOOK = {"a": (jnp.array([1.0, -1.0]), jnp.array([0.5, 2.0])), "b": (jnp.array([1.0, 0.0, -2.0]),)}
LEGAL = {"a": jnp.array([[True, True, True], [True, False, True]]), "b": jnp.ones((1, 2), bool)}
ALL = jnp.array(list(itertools.product(range(3), range(3), range(2))), "int32")


def team(graph):
    """A team whose responses are far from uniform."""
    made = Ordered(SPEC, SEEN, graph, (8,), key_of(1))
    return jax.tree.map(lambda x: x + 0.7 * jax.random.normal(key_of(2), x.shape), made)


@pytest.mark.parametrize("edges", [[], [(2, 0)], [(2, 0), (0, 1)], [(0, 1), (0, 2), (1, 2)]], ids=str)
def test_draws_have_the_probabilities_that_are_told_and_those_sum_to_one(edges):
    """Whatever the order; an agent's chances change with what its parents do, and with nothing else."""
    actors, graph = team(Complete()), np.zeros((3, 3), "float32")
    for parent, child in edges:
        graph[parent, child] = 1.0
    given = jax.jit(jax.vmap(lambda done: actors.given(jnp.asarray(graph), LOOK, LEGAL, done)))(ALL)
    told = np.exp(jax.vmap(lambda policy, done: policy.log_prob(done))(given, ALL))
    assert told.sum() == pytest.approx(1.0, abs=1e-5)
    draw = jax.jit(jax.vmap(lambda key: actors.draw(jnp.asarray(graph), LOOK, LEGAL, key, best=False)))
    drawn, log_prob = draw(per_index(key_of(3), 20_000))
    index = np.asarray(drawn) @ [6, 2, 1]
    np.testing.assert_allclose(np.exp(log_prob), told[index], rtol=1e-4)
    np.testing.assert_allclose(np.bincount(index, minlength=18) / 20_000, told, atol=0.015)
    for child, part in enumerate(given.parts):
        chances, plans = np.exp(part.log_probs), np.asarray(ALL)
        for other in range(3):
            same = np.delete(plans, other, axis=1)
            pairs = itertools.combinations(range(18), 2)
            moved = max(np.abs(chances[i] - chances[j]).max() for i, j in pairs if (same[i] == same[j]).all())
            assert (moved > 1e-3) == ((other, child) in edges), (other, child)


@pytest.mark.slow
def test_drawn_graphs_have_no_cycles_depend_on_what_is_seen_and_pass_gradients_on():
    actors = team(Learnt())
    graphs = np.asarray(jax.jit(jax.vmap(lambda key: actors.graph(LOOK, key, 1.0)))(per_index(key_of(4), 500)))
    assert set(np.unique(graphs)) == {0.0, 1.0} and len(np.unique(graphs, axis=0)) > 5
    assert not np.einsum("nij,njk,nkl->nil", graphs, graphs, graphs).any()  # no path of three edges: no cycle
    likeliest = actors.graph(LOOK, key_of(5), 0.0)
    np.testing.assert_array_equal(likeliest, actors.graph(LOOK, key_of(6), 0.0))
    others = [jax.tree.map(lambda x, s=s: s * x, LOOK) for s in (-3.0, -1.0, 0.0, 2.0)]
    assert any((actors.graph(other, key_of(5), 0.0) != likeliest).any() for other in others)

    def log_prob(net):
        return actors.given(net(LOOK, key_of(7), 1.0), LOOK, LEGAL, jnp.array([1, 2, 1])).log_prob(jnp.array([1, 2, 1]))

    slopes = jax.grad(log_prob)(actors.graph)
    assert jnp.abs(slopes.scores.weight).max() > 0 and jnp.abs(slopes.edges.weight).max() > 0
