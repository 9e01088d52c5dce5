"""Messages change what is seen and nothing else; trainings are those of the compiled loop, step by step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import TREE, Walk

from thespis.core.conformance import check_environment
from thespis.core.errors import UserError
from thespis.core.feeds import Rollouts
from thespis.core.keys import fold, key_of
from thespis.core.spaces import Box, Discrete
from thespis.curricula.fixed import Fixed
from thespis.envs.compiled.cheap_talk import CheapTalk, Speech
from thespis.envs.compiled.trainings import Trainings
from thespis.feedback.environment import EnvironmentReward
from thespis.loops.compiled import CompiledLoop
from thespis.loops.parts import Parts
from thespis.methods.online.a2c import A2C
from thespis.methods.online.es import ES

WALK = Walk(Discrete(3))
TALK = CheapTalk(WALK, size=2, hidden=4, scale=3.0)
LEARNER = A2C(hidden=(4,), feed=Rollouts(length=3, envs=2))


def said(speaker: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """The equation of the module, by numpy: 4 units see 3 numbers and say 2."""
    first, bias, last, end = speaker[:12].reshape(4, 3), speaker[12:16], speaker[16:24].reshape(2, 4), speaker[24:]
    return 3.0 * np.tanh(last @ np.tanh(first @ seen / 3**0.5 + bias) / 2 + end)


def test_a_message_is_a_function_of_what_is_seen_and_changes_nothing_else():
    speaker = np.asarray(jax.random.normal(key_of(1), (TALK.parameters,)))
    assert TALK.parameters == 26 and TALK.spec.observation == Box((5,)) and TALK.spec.time_limit == WALK.limit
    params = Speech(jnp.asarray(speaker), WALK.spec.params)
    (spoken, heard), (alone, plain) = TALK.reset(params, key_of(2)), WALK.reset(WALK.spec.params, key_of(2))
    for t in range(4):
        np.testing.assert_array_equal(heard.observation[:3], plain.observation)
        np.testing.assert_allclose(heard.observation[3:], said(speaker, np.asarray(plain.observation)), rtol=1e-5)
        assert (heard.reward, heard.terminated, heard.truncated) == (plain.reward, plain.terminated, plain.truncated)
        action, key = jnp.int32(t % 3), fold(key_of(3), "step", t)
        (spoken, heard), (alone, plain) = TALK.step(spoken, action, key), WALK.step(alone, action, key)
    assert (TALK.reset(TALK.spec.params, key_of(2))[1].observation[3:] == 0).all(), "silence says 0"


@pytest.mark.slow
def test_a_training_is_that_of_the_compiled_loop():
    """The same learner in the same world: only the keys have other addresses, so means of many agree."""
    trainings = Trainings(TALK, LEARNER, updates=20)
    silent = jnp.zeros(TALK.parameters)
    within = jax.jit(jax.vmap(lambda key: trainings.returns(silent, key)))(jax.random.split(key_of(0), 200))
    loop = CompiledLoop(Parts(LEARNER, EnvironmentReward(), Fixed()), TALK, 2, list(range(200)), 1_000)
    carry = loop.advance(loop.init(), 20)
    tally = loop.take_tally(carry)[1]
    per_step = tally.returns.sum() / tally.lengths.sum()
    steps, ended = 20 * 6 * 200, tally.episodes.sum()
    expected = per_step * steps / (ended + 200 * 20 * 2)
    assert np.asarray(within).mean() == pytest.approx(expected, abs=0.05)


@pytest.mark.slow
def test_trainings_are_a_world_and_a_learner_of_speakers_helps_or_harms():
    trainings = Trainings(TALK, LEARNER, updates=1)
    check_environment(trainings, ticks=2)
    step = jax.jit(trainings.step)
    state, _ = trainings.reset((), key_of(0))
    harm = step(state, jnp.ones(26), key_of(5))[1].reward
    helped = Trainings(TALK, LEARNER, updates=1, sign=1.0).step(state, jnp.ones(26), key_of(5))[1].reward
    assert harm == pytest.approx(-float(helped)) and float(helped) != 0


def test_pictures_cannot_be_talked_to_and_choices_not_searched():
    with pytest.raises(UserError, match="one vector"):
        _ = CheapTalk(Walk(observation=TREE)).spec
    with pytest.raises(UserError, match="one box"):
        ES().init(WALK.spec, key_of(0))
