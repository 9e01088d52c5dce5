"""Privileged observations of text environments: equal dialogues, the right secret, and actors that never observe it."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.laws.components import check_environment
from thespis.envs.text.echo import Echo
from thespis.envs.text.questions import ANIMALS, Questions
from thespis.envs.text.registry import make_text_env
from thespis.envs.text.task import TextEnv
from thespis.envs.text.wordle import WORDS
from thespis.papers.sweet_rl.method import SWEET
from thespis.runtime.keys import indexed_keys, seed_key
from thespis.training.data_sources import demonstration_dataset

ROWS = 20


def decode(env: TextEnv, tokens) -> list[str]:
    """The words of a row of tokens."""
    return [env.task.task_spec.vocabulary.words[int(i)] for i in tokens if i >= 0]


@pytest.mark.long
@pytest.mark.parametrize("name", ["questions", pytest.param("wordle", marks=pytest.mark.slow)])
def test_privileged_observation_is_the_secret_and_the_dialogue(name):
    plain_env, privileged_env = make_text_env(name), make_text_env(f"{name}-told")
    assert (
        plain_env.spec.privileged_space is None
        and dataclasses.replace(privileged_env.spec, privileged_space=None) == plain_env.spec
    )
    check_environment(privileged_env, num_envs=3, num_steps=privileged_env.spec.time_limit + 3)
    keys = indexed_keys(seed_key(4), ROWS)

    @jax.jit
    def reset_both(keys):
        return [jax.vmap(env.reset, in_axes=(None, 0))((), keys) for env in (plain_env, privileged_env)]

    @jax.jit
    def step_both(states, keys, demonstrator_keys):
        responses = jax.vmap(plain_env.demonstrator_action)(states[0], demonstrator_keys)
        return [
            jax.vmap(env.step)(s, responses, keys) for env, s in zip((plain_env, privileged_env), states, strict=True)
        ]

    states, steps = zip(*reset_both(keys), strict=True)
    for t in range(3):
        tasks, steps = jax.tree.map(np.asarray, (states[1].task_state, steps))
        assert steps[0].privileged is None
        np.testing.assert_array_equal(steps[0].observation, steps[1].observation)
        np.testing.assert_array_equal(steps[0].reward, steps[1].reward)
        privileged, width = (
            steps[1].privileged,
            privileged_env.spec.privileged_space.max_length - privileged_env.spec.observation_space.max_length,
        )
        np.testing.assert_array_equal(privileged[:, width:], steps[1].observation)
        for row in range(ROWS):
            task = jax.tree.map(lambda x, row=row: x[row], tasks)
            secret = "".join(decode(privileged_env, privileged[row, :width]))
            assert secret == (WORDS[int(task.hidden_word)] if name == "wordle" else list(ANIMALS)[int(task.animal)])
        states, steps = zip(*step_both(states, keys, indexed_keys(seed_key(t), ROWS)), strict=True)


@pytest.mark.long
def test_actor_does_not_depend_on_the_secret():
    """All episodes start with the same observation; only the privileged observation differs."""
    env = make_text_env("questions-told")
    method = SWEET(model="blank", num_layers=1, hidden_size=32)

    @jax.jit
    def reset_and_act():
        _, first = jax.vmap(env.reset, in_axes=(None, 0))((), indexed_keys(seed_key(0), ROWS))
        policy = method.policy(method.init(env.spec, seed_key(1)), Mode.EXPLOIT)
        return first, method.act(policy, method.init_memory(policy, ROWS), first.view, seed_key(2))[0]

    first, responses = jax.tree.map(np.asarray, reset_and_act())
    assert len(np.unique(first.privileged[:, 0])) > 5 and len(np.unique(first.observation, axis=0)) == 1
    assert [f.name for f in dataclasses.fields(first.view)] == ["observation", "action_mask", "alive", "game_state"]
    assert len(np.unique(responses, axis=0)) == 1


@pytest.mark.long
def test_demonstrations_contain_privileged_observations():
    """The last response of a won episode names the secret animal."""
    env = TextEnv(Questions(num_animals=6, max_turns=4), use_privileged=True)
    data = demonstration_dataset(env, 60)
    steps = data.steps
    assert data.spec.privileged_space is not None and steps.privileged is not None and steps.next_privileged is not None
    won = np.flatnonzero(steps.reward == 1)
    assert len(won) > 10
    np.testing.assert_array_equal(steps.privileged[won, 0], steps.action[won, 1])
    inside = ~steps.is_first
    np.testing.assert_array_equal(steps.privileged[inside], steps.next_privileged[np.flatnonzero(inside) - 1])
    np.testing.assert_array_equal(steps.next_privileged[:, 1:], steps.next_view.observation)
    assert demonstration_dataset(TextEnv(Questions(num_animals=6, max_turns=4)), 5).steps.privileged is None


@pytest.mark.long
def test_num_animals_limits_the_guesses():
    env = TextEnv(Questions(num_animals=3, max_turns=3, demonstrator_noise=0.0))
    steps = demonstration_dataset(env, 50).steps
    first = env.task.task_spec.encode_word(next(iter(ANIMALS)))
    guesses = steps.action[steps.action[:, 0] == env.task.task_spec.encode_word("guess"), 1] - first
    assert (
        set(guesses.tolist()) == {0, 1, 2}
        and env.spec.name == "text:questions(max_turns=3, demonstrator_noise=0.0, num_animals=3)"
    )
    assert steps.reward.sum() == 50, "for three animals, one question and two guesses suffice"


def test_env_without_hidden_information_is_an_error():
    with pytest.raises(UserError, match="text:echo has no hidden information"):
        _ = TextEnv(Echo(), use_privileged=True).spec
    assert (np.asarray(jax.jit(lambda: Questions().hidden_tokens(Questions().init(seed_key(0))[0]))()) >= 0).all()
