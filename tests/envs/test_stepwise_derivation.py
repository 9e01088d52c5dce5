"""Stepwise derivations: right steps, and a conversation with a critic that reads each step before the next one."""

import jax
import jax.numpy as jnp
import pytest

from thespis.envs.text.conversation import ConversationEnv
from thespis.envs.text.derivation import Chain, Derivation
from thespis.envs.text.pre_act import RIGHT_ACTIONS, RIGHT_PROPOSALS, SUCCEEDS, PreActConversation
from thespis.envs.text.registry import make_text_env
from thespis.envs.text.stepwise_derivation import StepwiseDerivation
from thespis.envs.text.task import TextEnv
from thespis.evaluation.report_card import report_card
from thespis.language.tokenizer import word_tokenizer
from thespis.runtime.keys import seed_key
from thespis.training.demonstrations import demonstration_returns

TASK = StepwiseDerivation(num_steps=3)
TOKENIZER = word_tokenizer(TASK.task_spec.vocabulary.words)


def encoded(text, length=2):
    tokens = TOKENIZER.encode(text)
    return jnp.array([*tokens, *[-1] * (length - len(tokens))], "int32")


def test_steps_are_right_if_they_follow_from_the_value_before():
    chain = Chain(jnp.array(4), jnp.array([0, 1, 0]), jnp.array([7, 2, 5]))  # 4 + 7 - 2 + 5
    state, _ = TASK.init(seed_key(0))
    state = type(state)(chain, chain.start, state.num_written)
    step, is_right = jax.jit(TASK.step), jax.jit(TASK.is_right_action)
    rewards = []
    for value, right in (("1", True), ("8", False), ("3", True)):
        assert bool(is_right(state, encoded(f"{value} <end>"))) is right
        state, result = step(state, encoded(f"{value} <end>"), seed_key(0))
        rewards.append(float(result.reward))
    assert rewards == [0.0, 0.0, 0.0] and bool(result.terminated), "the last step follows, and the result is wrong"


@pytest.mark.long
def test_the_demonstrator_is_that_of_whole_derivations():
    """Both are right equally often, as both make each step at random with the same probability."""
    stepwise, whole = (
        demonstration_returns(TextEnv(task), 3_000)[3].mean() for task in (StepwiseDerivation(), Derivation())
    )
    assert abs(stepwise - whole) < 0.04


@pytest.mark.long
def test_a_critic_of_steps_stops_an_error_before_the_next_step_builds_on_it():
    assert isinstance(make_text_env("checked-stepwise-derivation"), ConversationEnv)

    def shares(**settings):
        conversation = PreActConversation(StepwiseDerivation(demonstrator_noise=0.3, **settings), max_proposals=8)
        return report_card(ConversationEnv(conversation), num_episodes=300).shares

    exact, lenient = shares(), shares(leniency=1.0)
    assert exact[RIGHT_ACTIONS][0] == exact[SUCCEEDS][0] == 1.0
    assert lenient[RIGHT_ACTIONS][0] == lenient[RIGHT_PROPOSALS][0] < 0.8
    assert lenient[SUCCEEDS][0] < 0.5


def test_chains_without_steps_are_refused():
    with pytest.raises(ValueError, match="num_steps=0, base=10"):
        StepwiseDerivation(num_steps=0)
    with pytest.raises(ValueError, match="base=11"):
        StepwiseDerivation(base=11)
