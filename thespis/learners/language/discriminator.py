"""Adversarial imitation for language models: a discriminator of expert and policy responses as reward."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.actors.lm_policy import DialogueSpec
from thespis.core.errors import UserError
from thespis.core.records import Number
from thespis.data.datasets import read_dataset
from thespis.data.samplers import make_episode_table
from thespis.learners.language.dialogues import Dialogues, SampledDialogues
from thespis.learners.language.lm_agent import LMWithValueHead, add_value_head
from thespis.learners.language.progress_attribution import turn_scores
from thespis.learners.language.rollout_transforms import RolloutTransform
from thespis.learners.optim.optimizers import Adam, gradient_step
from thespis.nets.decoder import Decoder
from thespis.objectives.statistics import masked_mean
from thespis.runtime.cache import cache_path
from thespis.runtime.keys import fold

EXPERT_CACHE_PREFIX = "shown:"
"""Prefix of the digests of expert dialogues that were cached before training started."""


class DiscriminatorState(eqx.Module):
    """State of the discriminator: model, optimizer and the expert dialogues."""

    model: LMWithValueHead
    opt_state: PyTree
    expert_dialogues: SampledDialogues


class Discriminator(RolloutTransform):
    r"""Discriminator reward: every turn earns the log-odds of being an expert's (Deng et al. 2024, StepAgent).

    .. math:: r = \log D(s, a) - \log (1 - D(s, a)), \qquad \max_D \; E_{expert} \log D + E_{own} \log (1 - D)

    :math:`D` reads a dialogue up to the end of a response; each batch is scored before the discriminator is trained on
    it. The environment's reward is not used. Not verified: the paper's form of the reward, as its text could not be
    read beyond the abstract. Differs from GAIL: either half of :math:`r` alone would reward long dialogues or short
    ones, whatever is said in them.
    """

    expert_data: str = eqx.field(static=True, default="demonstrations:512")
    """Experts: demonstrations:N of the environment's demonstrator, demonstrations:N:ENV of another's, or a dataset."""
    learning_rate: Number = 1e-3
    """Step size of the discriminator."""
    num_gradient_steps: int = eqx.field(static=True, default=2)
    """Gradient steps of the discriminator on each batch, with as many expert dialogues."""
    max_reward: Number = 3.0
    """Largest reward of a turn; rewards are clipped to [-max_reward, max_reward]."""

    @property
    def optimizer(self) -> Adam:
        """Optimizer of the discriminator."""
        return Adam(self.learning_rate, 1.0)

    def init(
        self, model: Decoder, dialogue_spec: DialogueSpec, num_turns: int, key: Key[Array, ""]
    ) -> DiscriminatorState:
        """A copy of the policy's decoder with a value head of 0, and the expert dialogues.

        Raises ``UserError`` if the expert data is missing.
        """
        discriminator = add_value_head(jax.tree.map(jnp.copy, model), model.config.hidden_size)
        return DiscriminatorState(discriminator, self.optimizer.init(discriminator), load_experts(self.expert_data))

    def __call__(
        self, state: DiscriminatorState, dialogues: SampledDialogues, group_size: int, key: Key[Array, ""]
    ) -> tuple[DiscriminatorState, SampledDialogues, dict[str, Array]]:
        """Dialogues with rewards from the discriminator, which is then trained on them."""
        rows = dialogues.alive.shape[1]
        reward = jnp.where(
            dialogues.alive, jnp.clip(turn_scores(state.model, dialogues), -self.max_reward, self.max_reward), 0.0
        )

        def step(carry: Any, tick: Array) -> Any:
            indices = jax.random.randint(fold(key, "experts", tick), (rows,), 0, state.expert_dialogues.alive.shape[1])
            experts = state.expert_dialogues.take_rows(indices)
            model, opt, loss, _ = gradient_step(
                self.optimizer, lambda model: discriminator_loss(model, experts, dialogues), *carry
            )
            return (model, opt), loss

        (model, opt), loss = jax.lax.scan(step, (state.model, state.opt_state), jnp.arange(self.num_gradient_steps))
        metrics = {"discriminator_loss": loss.mean(), "likeness": masked_mean(reward, dialogues.alive)}
        return (
            DiscriminatorState(model, opt, state.expert_dialogues),
            dataclasses.replace(dialogues, reward=reward),
            metrics,
        )


def discriminator_loss(
    model: LMWithValueHead, expert: Dialogues, policy: Dialogues
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Discriminator loss: cross-entropy over turns; expert's and policy's turns have equal weight."""
    expert_loss = masked_mean(jax.nn.softplus(-turn_scores(model, expert)), expert.alive)
    loss = expert_loss + masked_mean(jax.nn.softplus(turn_scores(model, policy)), policy.alive)
    return loss, loss


def load_experts(data: str) -> SampledDialogues:
    """Load expert dialogues from a dataset's directory, or from the cache.

    Raises ``UserError`` if there are none.
    """
    path = (
        expert_cache_path(data.removeprefix(EXPERT_CACHE_PREFIX))
        if data.startswith(EXPERT_CACHE_PREFIX)
        else Path(data)
    )
    if data.startswith(EXPERT_CACHE_PREFIX) and not path.exists():
        raise UserError(f"the expert dialogues cached in {path} are missing: start the run again")
    table = make_episode_table(read_dataset(path).steps)
    dialogues = Dialogues.from_transitions(*table.gather(jnp.arange(len(table.episode_starts))))
    return SampledDialogues(**vars(dialogues), log_probs=jnp.zeros(dialogues.responses.shape))


def expert_cache_path(digest: str) -> Path:
    """Path of cached expert dialogues."""
    return cache_path("shown", digest)
