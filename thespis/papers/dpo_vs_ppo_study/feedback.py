"""Reward model of logged pairs: what PPO maximizes, learned from the pairs that DPO learns from directly."""

from __future__ import annotations

import functools
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from thespis.actors.lm_policy import DialogueSpec
from thespis.core.feeds import DatasetSampler
from thespis.core.records import Batch, EnvSpec, Number
from thespis.data.feeds import PreferencePairs
from thespis.feedback.learned_reward import LearnedReward
from thespis.learners.language.lm_agent import LMWithValueHead, init_opt_state
from thespis.methods.language.rm import RM, RMState
from thespis.runtime.keys import fold
from thespis.training.data_sources import demonstration_dataset


@functools.cache
def logged_pairs(env: str, num_dialogues: int, batch_size: int) -> DatasetSampler:
    """Sampler of preference pairs of an environment's demonstrations, the data ``demonstrations:N:ENV``."""
    with jax.ensure_compile_time_eval():  # the cache must not hold tracers
        sampler = PreferencePairs(batch_size=batch_size).make_sampler(demonstration_dataset(env, num_dialogues).steps)
    if not isinstance(sampler, DatasetSampler):
        raise TypeError(f"demonstrations of {env} differ too much in length for one sampler")
    return sampler


class LoggedReward(LearnedReward):
    """Logged reward, for text: a reward model that is fitted to logged preference pairs before the first update.

    The pairs are those of a dataset, the same for all seeds, and the reward model learns nothing afterwards.
    """

    logging_env: str = eqx.field(static=True, default="")
    """Environment whose demonstrations are logged; its rewards say which of two with the same prompt is preferred."""
    num_dialogues: int = eqx.field(static=True, default=2_048)
    """Logged demonstrations."""
    num_reward_steps: int = eqx.field(static=True, default=600)
    """Gradient steps of the reward model."""
    reward_batch_size: int = eqx.field(static=True, default=32)
    """Pairs per gradient step."""
    reward_learning_rate: Number = 1e-3
    """Step size of the reward model, which starts as a copy of the initial model with a small random head."""

    name: ClassVar[str] = "logged-reward"

    def init_state(self, spec: EnvSpec, dialogue_spec: DialogueSpec, key: Key[Array, ""]) -> LMWithValueHead:
        """The fitted reward model."""
        pairs = logged_pairs(self.logging_env, self.num_dialogues, self.reward_batch_size)
        method = RM(learning_rate=self.reward_learning_rate)
        scorers = LearnedReward.init_state(self, spec, dialogue_spec, key)
        opt_states = jax.vmap(lambda scorer: init_opt_state(method.make_optimizer(), scorer))(scorers)

        def step(state: RMState, tick: Array) -> tuple[RMState, None]:
            batch = Batch(*pairs.sample(fold(key, "pairs", tick)), (), tick)
            return method.update(state, batch, fold(key, "update", tick))[0], None

        initial = RMState(scorers, opt_states, self.initial_model(spec, key), dialogue_spec)
        return jax.lax.scan(step, initial, jnp.arange(self.num_reward_steps))[0].scorers
