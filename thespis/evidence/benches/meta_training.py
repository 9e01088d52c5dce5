"""Bench of meta-training: an outer learner influences inner learners whose whole training is one step to it.

PPO learns to balance a pole within 3,072 steps, and observes two more numbers that a sender computes from its
observation. The sender cannot change dynamics or rewards. A random sender already costs the learner some of its return:
the messages are features that mean nothing.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from thespis.data.feeds import Rollouts
from thespis.envs.compiled.gymnax import Gymnax
from thespis.envs.registry import make_compiled
from thespis.evaluation.run import Run
from thespis.evidence.bench import Bench, Headroom, Symptom
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import Measure, final_return
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm
from thespis.methods.online.ppo import PPO
from thespis.papers.adversarial_cheap_talk.envs import CheapTalk, MetaTrainingEnv
from thespis.papers.adversarial_cheap_talk.method import ES
from thespis.runtime.keys import fold, indexed_keys, seed_key

LEARNER = PPO(
    learning_rate=1e-2,
    ent_coef=0.01,
    hidden_sizes=(16,),
    num_epochs=4,
    minibatch_size=256,
    feed=Rollouts(num_steps=32, num_envs=8),
)
"""The learner that is influenced, whose settings nobody else changes."""
HARM = MetaTrainingEnv(CheapTalk(Gymnax("CartPole-v1")), LEARNER, num_updates=12)
HELP = MetaTrainingEnv(CheapTalk(Gymnax("CartPole-v1")), LEARNER, num_updates=12, reward_sign=1.0)
"""The sender is rewarded for the learner's failure, or for its success."""
HARM_ENV, HELP_ENV = (f"{__name__}:{name}" for name in ("HARM", "HELP"))
SAMPLES = Rollouts(num_steps=1, num_envs=32)
STEPS = 640
"""20 generations of 32 trainings."""
NUM_SILENT = 64
"""Trainings with a silent sender, which are averaged."""


def training_return() -> Measure:
    """Mean return of learners over their whole training under the learned sender: those of the final evaluation."""

    def returns(run: Run) -> Float[np.ndarray, " seed"]:
        env: Any = make_compiled(run.config["env"])
        return env.reward_sign * final_return().compute(run)

    return Measure("mean return of learners during their training", returns)


def silent_return() -> Measure:
    """The sender's return if it is silent: the same for all seeds."""

    def returns(run: Run) -> Float[np.ndarray, " seed"]:
        env: Any = make_compiled(run.config["env"])
        return np.full(len(run.config["seeds"]), env.reward_sign * _silent_training_return(run.config["env"]))

    return Measure("return of a silent sender", returns)


def harm_of_sender() -> Measure:
    """Share of the learner's return with a silent sender that the learned sender takes from it."""

    def shares(run: Run) -> Float[np.ndarray, " seed"]:
        return 1 - training_return().compute(run) / _silent_training_return(run.config["env"])

    return Measure("share of the learner's return that the sender costs", shares)


@functools.cache
def _silent_training_return(env_name: str) -> float:
    env: Any = make_compiled(env_name)
    keys = indexed_keys(fold(seed_key(0), "silent"), NUM_SILENT)
    train = jax.jit(jax.vmap(lambda key: env.training_returns(jnp.zeros(env.env.num_params), key)))
    return float(np.asarray(train(keys)).mean())


RANDOM_SENDER = ES(learning_rate=0.0, feed=SAMPLES)
SILENT_SENDER = ES(learning_rate=0.0, init_std=0.0, feed=SAMPLES)
TRAINED_SENDER = ES(feed=SAMPLES)
_COPY = ES(learning_rate=0.0, init_std=1.01, feed=SAMPLES)
"""Its messages are larger by up to a hundredth. With a ten-thousandth less than half of its scores differed."""
ONE_GENERATION = 32
"""Steps of senders that do not learn."""

BENCH = Bench(
    name="meta-training",
    version=1,
    summary="Trainings of PPO as steps of an environment: outer learners that harm or help an inner one by messages.",
    envs=(HARM_ENV,),
    steps=STEPS,
    num_episodes=16,
    arms=(
        Arm("random sender", RANDOM_SENDER, steps=ONE_GENERATION),
        Arm("random sender again", _COPY, steps=ONE_GENERATION),
        Arm("silent sender", SILENT_SENDER, steps=ONE_GENERATION),
        Arm("trained sender", TRAINED_SENDER),
    ),
    positive=Comparison("random sender", "silent sender", final_return()),
    negative=Comparison("random sender", "random sender again", final_return()),
    headroom=Headroom("random sender", "trained sender", final_return(), silent_return()),
    symptoms=(Symptom("random sender", harm_of_sender(), 0.05),),
    tuning="Learners, by 128 trainings: with 12 updates of four epochs and minibatches of 256 their mean return is "
    "19.8 with a silent sender and 17.0 with random ones; with 16 updates and minibatches of 128 it is 22.3 and 19.6, "
    "for twice the time. The first was kept. On seeds 1,100 to 1,119 learners return 16.7 with random senders, and "
    "15.0 with senders that were trained for 640 steps with the default settings of ES, and 23.1 with senders that are "
    "rewarded for their success. A random sender has no settings to tune.",
    looks=plan_looks((20, 40)),
)
