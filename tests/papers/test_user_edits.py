"""PRELUDE and CIPHER: edit distances by recursion, the environment's rules, and what agents remember."""

import functools
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.contracts import Mode
from thespis.core.laws.components import check_environment, check_method_shapes
from thespis.envs.host.wrapper import HostWrapper
from thespis.evaluation.rollout import play_episodes
from thespis.evidence.benches.user_edits import USER_EDITS, preference_accuracy
from thespis.papers.prelude_cipher.edit_distance import levenshtein
from thespis.papers.prelude_cipher.envs import UserEdits
from thespis.papers.prelude_cipher.method import (
    EditLearner,
    FirstPreference,
    NearestPreferences,
    PlainStyle,
    RecentPreference,
    RetrievedEdits,
    majority,
)

ENV = UserEdits(num_types=3, num_attributes=3, num_rounds=30, context_noise=0.0, writing_noise=0.0)


def recursive_distance(a, b):
    """Levenshtein's distance by its definition."""

    @functools.cache
    def distance(m, n):
        if not m or not n:
            return m + n
        return min(distance(m - 1, n) + 1, distance(m, n - 1) + 1, distance(m - 1, n - 1) + (a[m - 1] != b[n - 1]))

    return distance(len(a), len(b))


def test_levenshtein_is_that_of_the_definition():
    rng = np.random.default_rng(0)
    pairs = [(rng.integers(0, 3, rng.integers(0, 8)), rng.integers(0, 3, rng.integers(0, 7))) for _ in range(100)]

    def pad(sequences, length):
        return jnp.asarray([[*x, *[-1] * (length - len(x))] for x in sequences])

    distances = jax.jit(jax.vmap(levenshtein))(pad([a for a, _ in pairs], 8), pad([b for _, b in pairs], 7))
    assert distances.tolist() == [recursive_distance(a.tolist(), b.tolist()) for a, b in pairs]


def test_texts_and_costs():
    """Of style i a phrase has i + 1 words; only the phrases differ."""
    wording = jnp.asarray([0, 3, 1])
    texts = {styles: ENV.write(wording, jnp.asarray(styles)) for styles in ((0, 0, 0), (2, 0, 1), (2, 1, 1))}
    lengths = {styles: int((text >= 0).sum()) for styles, text in texts.items()}
    assert lengths == {(0, 0, 0): 6, (2, 0, 1): 9, (2, 1, 1): 10}
    assert levenshtein(texts[2, 0, 1], texts[2, 1, 1]) == 2  # one word is replaced and one inserted
    assert levenshtein(texts[0, 0, 0], texts[2, 0, 1]) == 3 + 2
    other = ENV.write(jnp.asarray([1, 3, 1]), jnp.asarray((0, 0, 0)))
    assert levenshtein(texts[0, 0, 0], other) == 1  # other words for the first attribute


def test_rewards_are_edit_distances_to_what_the_user_wants():
    state, _ = ENV.reset((), jax.random.key(0))
    step = jax.jit(ENV.step)
    for i in range(10):
        style = jnp.asarray([i % 3, (i // 2) % 3, 0])
        wanted = state.wishes[state.document_type]
        texts = [np.asarray(ENV.write(state.wording, x)) for x in (style, wanted)]
        expected = recursive_distance(*(text[text >= 0].tolist() for text in texts))
        state, timestep = step(state, style, jax.random.key(i))
        assert timestep.reward == -expected
        np.testing.assert_array_equal(timestep.observation["edited"], wanted)
        np.testing.assert_array_equal(timestep.observation["draft"], style)


def test_environment_contract():
    check_environment(UserEdits(num_rounds=4), num_envs=3, num_steps=7)


def cost(rule, env=ENV, **settings):
    method = EditLearner(rule, **settings)
    state = method.init(env.spec, jax.random.key(0))
    states = jax.tree.map(lambda x: x[None], state)
    result = play_episodes(method, states, HostWrapper(env, 30), [0], Mode.SAMPLE, stream="test")
    return -result.episode_returns.mean()


def test_a_memory_without_errors_pays_for_each_type_once():
    """With clear contexts and perfect inference each type of document is edited the first time only."""
    perfect = cost(NearestPreferences(1), inference_accuracy=1.0)
    plain = cost(PlainStyle())
    per_round = plain / ENV.num_rounds
    assert perfect == pytest.approx(3 * per_round, rel=0.45)
    assert cost(RetrievedEdits(5)) > perfect


def test_rules_are_in_their_order():
    settings = {"inference_accuracy": 0.8}
    near, recent = cost(NearestPreferences(5), **settings), cost(RecentPreference(5), **settings)
    first, plain = cost(FirstPreference(5), **settings), cost(PlainStyle())
    assert near < 0.6 * min(recent, first, plain)


def test_majority():
    styles = jnp.asarray([[0, 1, 2], [1, 1, 2], [1, 2, 1], [0, 2, 0]])
    assert majority(styles, jnp.ones((4, 3), bool), 3).tolist() == [0, 1, 2]  # a tie goes to the first
    counts = jnp.asarray([[False, True, False], [True, True, False], [True, True, False], [True, True, False]])
    assert majority(styles, counts, 3).tolist() == [1, 1, 0]


def test_examples_count_where_the_wording_is_the_same():
    method = EditLearner()
    memory = method.init_memory(method.init(ENV.spec, jax.random.key(0)), 1)
    memory = jax.tree.map(lambda x: x[0], memory)
    memory = eqx.tree_at(
        lambda m: (m.contexts, m.wordings, m.revised, m.count),
        memory,
        (
            memory.contexts.at[:2, 0].set(1.0),
            memory.wordings.at[:2].set(jnp.asarray([[0, 1, 2], [0, 2, 2]])),
            memory.revised.at[:2].set(jnp.asarray([[1, 2, 1], [1, 1, 1]])),
            jnp.asarray(2),
        ),
    )
    context = jnp.zeros(8).at[0].set(1.0)
    assert RetrievedEdits(5)(memory, context, jnp.asarray([0, 2, 1]), 3).tolist() == [1, 1, 0]


def test_the_method_keeps_its_contract():
    check_method_shapes(EditLearner(), UserEdits(num_rounds=4).spec)


def test_the_share_of_right_styles_by_hand():
    """Plain styles are right where the user wants them, a third of the attributes; perfect memories nearly always."""
    run = SimpleNamespace(config={"env": "thespis.evidence.benches.user_edits:USER_EDITS", "seeds": [1100]})
    shares = []
    for method in (EditLearner(PlainStyle()), EditLearner(NearestPreferences(4), inference_accuracy=1.0)):
        run.method = method
        run.states = jax.tree.map(lambda x: x[None], method.init(USER_EDITS.spec, jax.random.key(0)))
        shares.append(preference_accuracy().compute(run)[0])
    assert shares[0] == pytest.approx(1 / 3, abs=0.1) and shares[1] > 0.85
