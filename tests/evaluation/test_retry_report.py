"""Report on second tries: scripted actors and reflectors, whose success is known by enumeration."""

import dataclasses
import itertools
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.errors import UserError
from thespis.core.spaces import END
from thespis.data.feeds import Episodes
from thespis.envs.text.conversation import ConversationEnv, SoloConversationEnv
from thespis.envs.text.correction import Correction
from thespis.envs.text.hidden_rule import HiddenRule
from thespis.envs.text.registry import make_text_env
from thespis.envs.text.retry import RetryConversation
from thespis.envs.text.task import TextEnv
from thespis.evaluation.retry_report import report_on_retries, success_by_try
from thespis.learners.language.frozen_model import FrozenModel
from thespis.learners.language.scripted_seat import ScriptedSeat
from thespis.learners.multi_agent.cast import Cast
from thespis.methods.language.grpo import GRPO


def scripted_report(num_retries=1, **settings):
    task = HiddenRule(base=5, **settings)
    env = ConversationEnv(RetryConversation(task, num_retries=num_retries, max_reflection_tokens=2))
    return report_on_retries(env, num_episodes=4_000)


def random_hint_success():
    """How often a random rule picks the digit of the hidden one: with three digits of five."""
    orders = list(itertools.permutations(range(3)))  # of the digits of the prompt
    picked = [(order[0], order[2], 2, 0) for order in orders]
    return np.mean([a == b for digits in picked for a, b in itertools.product(digits, repeat=2)])


@pytest.mark.long
def test_the_hidden_rule_as_a_hint_makes_every_second_try_succeed():
    report = scripted_report(demonstrator_noise=0.7)
    assert report.first_success[0] == pytest.approx(0.3, abs=0.03)
    assert report.retry_success[0] == report.success[0] == 1
    assert "100.0% in all" in report.sentence


@pytest.mark.long
def test_random_hints_and_no_hints_are_guesses():
    """A random hint, or none where the actor guesses itself, is right by chance."""
    report = scripted_report(demonstrator_noise=1.0, critic_noise=1.0)
    assert random_hint_success() == pytest.approx(5 / 12)
    assert report.first_success[0] == 0 and report.retry_success[0] == pytest.approx(5 / 12, abs=0.03)


@pytest.mark.long
def test_more_retries_find_more():
    report = scripted_report(num_retries=3, demonstrator_noise=1.0, critic_noise=1.0)
    assert report.retry_success[0] > 0.75


@pytest.mark.long
def test_without_failures_there_are_no_second_tries():
    report = scripted_report(demonstrator_noise=0.0)
    assert report.first_success[0] == report.success[0] == 1 and np.isnan(report.retry_success[0])


@pytest.mark.slow
def test_a_models_reflections_in_the_place_of_the_scripts():
    """A model that knows nothing writes no hints, with which the scripted actor guesses."""
    env = ConversationEnv(RetryConversation(HiddenRule(base=5, demonstrator_noise=1.0), max_reflection_tokens=2))
    blank = {"model": "blank", "num_layers": 1, "hidden_size": 32}
    cast = Cast({"actor": FrozenModel(**blank), "reflector": GRPO(**blank, feed=Episodes(3, 4, num_envs=8))})
    states = eqx.filter_jit(jax.vmap(lambda key: cast.init(env.spec, key)))(jax.random.split(jax.random.key(0), 2))
    report = report_on_retries(env, cast, states, 1_000, scripted=["actor"])
    np.testing.assert_allclose(report.retry_success, 5 / 12, atol=0.05)
    assert report_on_retries(env, cast, states, 500, scripted=["reflector"]).success.max() < 0.1


def test_other_environments_are_refused():
    with pytest.raises(UserError, match="no conversation with second tries"):
        report_on_retries(make_text_env("kuhn-duel"))


class ScriptedSpeaker(ScriptedSeat):
    """Says a random digit of the prompt ``4 2 7 >`` in all its turns."""

    feed: Episodes = eqx.field(static=True, default=Episodes())
    name: ClassVar[str] = "scripted-speaker"

    def respond(self, transcripts, key):
        digits = jax.random.randint(key, (len(transcripts),), 0, 3)
        spoken = jnp.take_along_axis(transcripts, digits[:, None], axis=1)[:, 0]
        return jnp.stack([spoken, jnp.full_like(spoken, HiddenRule().task_spec.encode_word(END))], axis=1)


@pytest.mark.long
@pytest.mark.parametrize("memory", ["attempts", "reflections", "none"])
def test_success_by_number_of_tries_of_who_guesses(memory):
    """A guess among three digits is right in a third of the tries, whatever was tried before."""
    rules = RetryConversation(HiddenRule(), num_retries=2, self_reflection=True, max_reflection_tokens=2)
    env = TextEnv(HiddenRule())
    if memory != "none":
        env = SoloConversationEnv(dataclasses.replace(rules, memory=memory))
    success = success_by_try(env, ScriptedSpeaker(), jnp.zeros(2), 3_000, num_tries=3 if memory == "none" else None)
    np.testing.assert_allclose(success, np.tile(1 - (2 / 3) ** np.arange(1, 4), (2, 1)), atol=0.04)
    assert (np.diff(success, axis=1) > 0).all()


@pytest.mark.long
def test_tries_as_if_the_task_were_new():
    """The first attempt of a conversation, again and again."""
    rules = RetryConversation(HiddenRule(), num_retries=1, memory="attempts")
    success = success_by_try(SoloConversationEnv(rules), ScriptedSpeaker(), jnp.zeros(1), 3_000, num_tries=4)
    np.testing.assert_allclose(success[0], 1 - (2 / 3) ** np.arange(1, 5), atol=0.04)


def test_success_by_tries_is_refused_where_there_are_none():
    with pytest.raises(UserError, match="num_tries=N"):
        success_by_try(TextEnv(HiddenRule()), ScriptedSpeaker(), jnp.zeros(1))
    with pytest.raises(UserError, match="several turns"):
        success_by_try(TextEnv(Correction()), ScriptedSpeaker(), jnp.zeros(1), num_tries=2)
