"""Cheap-talk environments in which a speaker's step is the whole training of a learner on CartPole."""

from __future__ import annotations

from thespis.data.feeds import Rollouts
from thespis.envs.compiled.gymnax import Gymnax
from thespis.methods.online.ppo import PPO
from thespis.papers.adversarial_cheap_talk.envs import CheapTalk, MetaTrainingEnv

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
