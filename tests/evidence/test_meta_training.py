"""Measures of the bench of meta-training, on runs whose scores are written out by hand, and its silent sender."""

from unittest.mock import Mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.evaluation.run import Run
from thespis.evidence.benches import meta_training
from thespis.evidence.benches.meta_training import (
    HARM_ENV,
    HELP_ENV,
    SILENT_SENDER,
    harm_of_sender,
    silent_return,
    training_return,
)
from thespis.papers.adversarial_cheap_talk.envs import CheapTalkParams


def finished(env, scores):
    """A finished run with these returns of greedy play, ``[seed, episode]``."""
    return Mock(spec=Run, config={"env": env, "seeds": [0, 1]}, final_scores={"greedy": {"scores": scores}})


@pytest.mark.parametrize(("env", "sign"), [(HARM_ENV, -1.0), (HELP_ENV, 1.0)])
def test_measures_against_a_silent_sender(monkeypatch, env, sign):
    monkeypatch.setattr(meta_training, "_silent_training_return", lambda name: 20.0)
    run = finished(env, [[sign * 10.0, sign * 20.0], [sign * 25.0, sign * 25.0]])
    np.testing.assert_allclose(training_return().compute(run), [15.0, 25.0])
    np.testing.assert_allclose(harm_of_sender().compute(run), [0.25, -0.25])
    np.testing.assert_allclose(silent_return().compute(run), [sign * 20.0, sign * 20.0])


def test_a_silent_sender_sends_zeros():
    env = meta_training.HARM.env
    mean = SILENT_SENDER.init(meta_training.HARM.spec, jax.random.key(0)).mean
    _, first = env.reset(CheapTalkParams(mean, env.spec.params.env_params), jax.random.key(1))
    np.testing.assert_array_equal(first.observation[-2:], jnp.zeros(2))
