"""Parts of a package that knows Thespis and that Thespis does not know: a sampler, a temperature, critics, feedback."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from thespis.core.feeds import ReplaySampler
from thespis.critics.hypernetwork import CriticArchitecture
from thespis.critics.value_functions import build_q_function
from thespis.data.feeds import Replay
from thespis.feedback.text_feedback import TextFeedback
from thespis.learners.language.response_critics import TurnAdvantageCritic
from thespis.learners.off_policy.temperature import Temperature


@dataclasses.dataclass(frozen=True)
class NewestFirst(ReplaySampler):
    """Samples the newest windows alone."""

    num_newest: int = 40

    def init(self, num_windows):
        return jnp.full(num_windows, -1, "int32")

    def add(self, state, windows, is_complete):
        newest = jnp.max(state) + 1 + jnp.cumsum(is_complete)
        return state.at[windows].set(jnp.where(is_complete, newest, -1))

    def forget(self, state, windows, is_gone):
        return state.at[windows].set(jnp.where(is_gone, -1, state[windows]))

    def draw(self, state, batch_size, key):
        return jax.lax.top_k(state, self.num_newest)[1][jax.random.randint(key, (batch_size,), 0, self.num_newest)]

    def weights(self, state, indices, num_windows, update_index):
        return jnp.ones(indices.shape)

    def revise(self, state, indices, priorities):
        return state


class FallingTemperature(Temperature):
    """Temperature that falls with the number of updates."""

    init_value: float = 0.5
    timescale: float = 20.0

    def init(self, spec):
        return jnp.zeros((), "int32")

    def alpha(self, state):
        return self.init_value / (1.0 + state / self.timescale)

    def update(self, state, entropy):
        return state + 1


class NarrowCritic(CriticArchitecture):
    """Critic with a single small hidden layer."""

    width: int = eqx.field(static=True, default=6)

    def build(self, spec, hidden_sizes, key, options):
        return build_q_function(spec, (self.width,), key, options)


@dataclasses.dataclass(frozen=True)
class SmallReplay(Replay):
    """Replay buffer with small defaults."""

    buffer_size: int = 200
    batch_size: int = 8
    learning_starts: int = 60
    update_interval: int = 4
    num_envs: int = 2


class FirstTokenReward(TextFeedback):
    """Rewards a response for beginning as few others do, by counts of first tokens that it learns."""

    coef: float = 1.0

    name: ClassVar[str] = "garden-words"
    citations: ClassVar[tuple] = ()

    def init_state(self, spec, dialogue_spec, key):
        return jnp.ones(spec.action_space.vocabulary.size)

    def score_turns(self, state, dialogues, key):
        return self.coef * (1.0 - state[dialogues.responses[..., 0]] / state.sum())

    def learn(self, state, dialogues, own_dialogues, key):
        first = jnp.where(dialogues.alive, dialogues.responses[..., 0], len(state))
        state = state.at[first].add(1.0, mode="drop")
        return state, {"counted": state.sum()}


class ShortIsGood(TurnAdvantageCritic):
    """Critic that expects responses of a mean length, which it learns, and likes shorter ones."""

    ema_rate: float = 0.1
    num_critic_pretrain_updates: ClassVar[int] = 0
    needs_log_ratio: ClassVar[bool] = False

    def init_from(self, model, dialogue_spec, key):
        return jnp.zeros(())

    def values(self, critic, reference, dialogues):
        return None

    def turn_advantages(self, critic, reference, dialogues):
        return critic - dialogues.response_mask.sum(axis=-1)

    def update(self, critic, reference, dialogues, log_ratio, update_index, key):
        length = dialogues.response_mask.sum() / jnp.maximum(dialogues.alive.sum(), 1)
        return critic + self.ema_rate * (length - critic), (), {"mean_length": critic}
