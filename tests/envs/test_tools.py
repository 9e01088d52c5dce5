"""Tool task: which calls are right, what is left to do, what critiques say, and the conversation with a critic."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from text_rules import RULES

from thespis.envs.rollout import select_rows
from thespis.envs.text.conversation import ConversationEnv
from thespis.envs.text.pre_act import RIGHT_ACTIONS, RIGHT_VERDICTS, SUCCEEDS, PreActConversation
from thespis.envs.text.registry import make_text_env
from thespis.envs.text.tools import NEVER, TOOLS, Tools, calls_to_make
from thespis.evaluation.report_card import report_card
from thespis.language.tokenizer import word_tokenizer
from thespis.runtime.keys import indexed_keys, seed_key

TASK = Tools(num_tools=6)
TOKENIZER = word_tokenizer(TASK.task_spec.vocabulary.words)
NUM_EPISODES = 60


def encoded(text, length):
    tokens = TOKENIZER.encode(text)
    return jnp.array([*tokens, *[-1] * (length - len(tokens))], "int32")


@pytest.fixture(scope="module")
def episodes():
    """States of episodes after up to three random calls each, and their references."""
    keys = indexed_keys(seed_key(3), NUM_EPISODES)
    states, _ = jax.jit(jax.vmap(TASK.init))(keys)
    references = [
        RULES["tools"](TASK, jax.tree.map(lambda x, i=i: np.asarray(x)[i], states)) for i in range(NUM_EPISODES)
    ]
    step, rng = jax.jit(jax.vmap(TASK.step)), np.random.default_rng(0)
    for number in range(3):
        calls = rng.choice(TOOLS, NUM_EPISODES)
        responses = jnp.stack([encoded(f"{call} <end>", 2) for call in calls])
        is_stopped = np.arange(NUM_EPISODES) % 4 <= number
        following, results = step(states, responses, keys)
        goes_on = ~np.asarray(results.terminated) & ~is_stopped
        states = select_rows(jnp.asarray(goes_on), following, states)
        for i in np.flatnonzero(goes_on):
            references[i].respond(calls[i])
    return states, references


def test_right_calls_are_those_of_a_search(episodes):
    states, references = episodes
    responses = [encoded(f"{tool} <end>", 2) for tool in TOOLS]
    is_right = np.stack([jax.jit(jax.vmap(TASK.is_right_action, (0, None)))(states, r) for r in responses], axis=-1)
    expected = np.array([[tool in reference.right_calls for tool in TOOLS] for reference in references])
    assert np.array_equal(is_right, expected)
    assert 0 < (~expected.any(axis=1)).sum() < NUM_EPISODES, "some calls of others made the wanted item impossible"
    right = np.asarray(jax.jit(jax.vmap(TASK.right_command))(states))
    assert all(row[i] for row, i in zip(expected, right, strict=True) if row.any())


def test_calls_that_are_left_are_those_of_a_search(episodes):
    states, references = episodes
    bits = 2 ** np.arange(7)
    left = jax.jit(calls_to_make)
    for i, reference in enumerate(references[:20]):
        tools = reference.tools.values()
        used = jnp.array([sum(bits["abcdefg".index(item)] for item in takes) for takes, _ in tools])
        made = jnp.array([bits["abcdefg".index(item)] for _, item in tools])
        computed = np.asarray(left(used, made, jnp.asarray(bits)[states.wanted[i]]))
        for number in range(0, 128, 7):
            items = frozenset(np.array(list("abcdefg"))[(number & bits) > 0].tolist())
            assert min(reference.calls_left(items), NEVER) == computed[number]


def test_all_items_can_be_made_in_as_many_calls_as_the_longest_chain():
    task = Tools(num_tools=4, min_calls=1, max_calls=3)
    keys = indexed_keys(seed_key(0), 400)
    states, openings = jax.jit(jax.vmap(task.init))(keys)
    references = [RULES["tools"](task, jax.tree.map(lambda x, i=i: np.asarray(x)[i], states)) for i in range(400)]
    lengths = np.array([reference.calls_left(reference.items) for reference in references])
    assert set(lengths) == {1, 2, 3}
    assert abs((lengths == 3).mean() - 1 / 3) < 0.1, "few shortcuts"
    assert len({TOKENIZER.decode(np.asarray(opening)) for opening in openings}) == 400


def test_critiques_approve_each_call_on_a_shortest_way(episodes):
    states, references = episodes
    row = next(i for i, reference in enumerate(references) if 0 < len(reference.right_calls) < 6)
    state, right_calls = jax.tree.map(lambda x: x[row], states), references[row].right_calls
    for tool in TOOLS:
        critique = TOKENIZER.decode(
            np.asarray(TASK.demonstrator_critique(state, encoded(f"{tool} <end>", 2), seed_key(0)))
        )
        assert (critique == "yes <end>") == (tool in right_calls)
        assert critique == "yes <end>" or critique.split()[1] in right_calls


@pytest.mark.long
def test_a_critic_of_calls_prevents_mistakes_that_cannot_be_undone():
    assert isinstance(make_text_env("checked-tools"), ConversationEnv)

    def card(**settings):
        task = Tools(**settings)
        return report_card(ConversationEnv(PreActConversation(task, max_proposals=12)), num_episodes=200).shares

    exact, random = card(), card(critic_noise=1.0)
    assert exact[RIGHT_VERDICTS][0] == 1.0 and abs(random[RIGHT_VERDICTS][0] - 0.5) < 0.08
    assert exact[SUCCEEDS][0] > random[SUCCEEDS][0] + 0.2
    assert exact[RIGHT_ACTIONS][0] > random[RIGHT_ACTIONS][0] + 0.2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_tools": 7}, "num_tools=7: 1 to 6"),
        ({"num_tools": 0}, "num_tools=0: 1 to 6"),
        ({"num_tools": 2, "max_calls": 3}, "min_calls=2, max_calls=3: 1 to 2"),
        ({"num_tools": 6, "max_calls": 5}, "max_calls=5: 1 to 4"),
        ({"min_calls": 3, "max_calls": 2}, "min_calls=3, max_calls=2"),
    ],
)
def test_tools_and_chains_that_do_not_exist_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Tools(**settings)
