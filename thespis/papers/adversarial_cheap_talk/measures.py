"""Cheap-talk trials: environments that train learners under a speaker, and measures of its influence on them."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thespis.core.contracts import Mode
from thespis.core.records import View
from thespis.data.feeds import Rollouts
from thespis.envs.compiled.gymnax import Gymnax
from thespis.envs.registry import make_compiled
from thespis.evaluation.run import Run
from thespis.evidence.measures import Measure
from thespis.methods.online.ppo import PPO
from thespis.papers.adversarial_cheap_talk.envs import CheapTalk, MetaTrainingEnv
from thespis.runtime.keys import fold, indexed_keys, seed_key

VICTIM_PPO = PPO(
    learning_rate=5e-3,
    ent_coef=0.01,
    hidden_sizes=(32,),
    num_epochs=4,
    minibatch_size=128,
    feed=Rollouts(num_steps=64, num_envs=8),
)
"""A small PPO that learns within 8,192 steps."""
ADVERSARY_ENV = MetaTrainingEnv(CheapTalk(Gymnax("CartPole-v1")), VICTIM_PPO)
"""The speaker's reward is the negative of the learner's."""
ALLY_ENV = MetaTrainingEnv(CheapTalk(Gymnax("CartPole-v1")), VICTIM_PPO, reward_sign=1.0)
"""The speaker's reward is the learner's."""
NUM_VICTIMS = 16
"""Number of fresh learners, unseen in the speaker's training and the same for all speakers."""


def victim_return() -> Measure:
    """Mean return of fresh learners over their whole training under the learned speaker."""
    return Measure("mean training return of fresh learners", lambda run: _victim_returns("learnt", run))


def victim_return_gain(speaker: str, sign: float = 1.0) -> Measure:
    """Gain of the same learners' return over that with a ``silent`` or a ``random`` speaker, times ``sign``."""
    verb = "gained" if sign > 0 else "lost"

    def gains(run: Run) -> Float[np.ndarray, " seed"]:
        return sign * (_victim_returns("learnt", run) - _victim_returns(speaker, run))

    return Measure(f"mean training return that fresh learners have {verb} to a {speaker} speaker", gains)


@functools.cache
def _victim_returns(speaker: str, run: Run) -> Float[np.ndarray, " seed"]:
    env: Any = make_compiled(run.config["env"])
    random_speakers = jax.vmap(lambda seed: jax.random.normal(fold(seed_key(seed), "speaker"), (env.env.num_params,)))
    learned = jax.vmap(lambda state: _speaker_parameters(run, state))(run.states)
    speakers = {
        "learnt": learned,
        "silent": jnp.zeros_like(learned),
        "random": random_speakers(jnp.arange(len(learned))),
    }
    keys = indexed_keys(fold(seed_key(0), "fresh"), NUM_VICTIMS)
    returns_of_all = jax.vmap(env.training_returns, in_axes=(None, 0))
    returns = jax.jit(lambda stacked: jax.lax.map(lambda parameters: returns_of_all(parameters, keys), stacked))(
        speakers[speaker]
    )
    return np.asarray(returns).mean(axis=(1, 2))


def _speaker_parameters(run: Run, state: Any) -> Array:
    policy = run.method.policy(state, Mode.EXPLOIT)
    return run.method.act(policy, run.method.init_memory(policy, 1), View(jnp.zeros((1, 1))), seed_key(0))[0][0]
