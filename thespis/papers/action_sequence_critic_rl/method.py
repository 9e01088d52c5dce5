"""Coarse-to-fine Q-network, of single actions or of action sequences: critic-only control by ever finer action bins.

Actions are continuous. Every level, dimension and, with ``action_sequence_length`` above 1, every action of the
sequence has a Q-value of its own, fitted to the n-step target ``r + gamma V``. ``V`` is the target network's value, at
the same level, dimension and position in the sequence, of the action that the online critic currently prefers. The
executed action is a mean of what was planned for this step (see
:mod:`thespis.papers.action_sequence_critic_rl.coarse_to_fine`). Sequences that reach beyond an episode's end repeat its
last action.

:class:`CQNAS` learns the values of the next several actions instead of the current one.

With ``bc_coef``, a margin loss also raises the values of demonstrated bins (``feed.demos``) above those of others.

Source: Seo et al., 2024; sequences: Seo and Abbeel, 2025; read were their abstracts and the second paper's code, which
holds both. Hyperparameters of :class:`CQN` are those of that code for the control suite with state observations, those
of :class:`CQNAS` those for humanoids. Both fit scalar values; the code's return distributions, with a loss of their own
on demonstrations, and advantage streams, all for images, are left out.

Differs: one network of the same size for sequences and single actions; weights are initialized as in sac; the agent's
own successful episodes do not become demonstrations.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from thespis.core.errors import UserError
from thespis.core.feeds import WindowFeed
from thespis.core.records import Batch, Citation, EnvSpec, Number, Report, View
from thespis.data.feeds import Replay
from thespis.learners.off_policy.critic_updates import n_step_batch
from thespis.learners.optim.optimizers import AdamW, gradient_step, polyak_update
from thespis.objectives.statistics import masked_mean
from thespis.papers.action_sequence_critic_rl.coarse_to_fine import (
    ActionBins,
    CoarseToFineMethod,
    CoarseToFineQ,
    CQNState,
    action_sequence,
    margin_loss,
    own_bin_values,
    require_bounded_box,
)


class CQN(CoarseToFineMethod):
    """Coarse-to-fine Q-network: Q-learning over action bins refined level by level, without an actor; box actions."""

    learning_rate: Number = 1e-4
    """Learning rate."""
    weight_decay: Number = 0.1
    """Weight decay, multiplied by the learning rate (decoupled, as in AdamW)."""
    num_levels: int = eqx.field(static=True, default=3)
    """Number of levels, each of which refines the chosen bin."""
    num_bins: int = eqx.field(static=True, default=5)
    """Number of bins per level and dimension."""
    n_step: int = eqx.field(static=True, default=3)
    """Number of steps (n) of the n-step target."""
    target_update_interval: int = eqx.field(static=True, default=100)
    """Updates between copies of the network to the target network."""
    hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=(512, 512))
    """Units of each hidden layer."""
    bc_coef: float = eqx.field(static=True, default=0.0)
    """Weight of the margin loss on demonstrations, the rows from ``feed.demos``; the critic's error weighs 1."""
    bc_margin: Number = 0.1
    """By how much the value of a demonstrated bin shall exceed those of others."""
    feed: WindowFeed = eqx.field(static=True, default=Replay(batch_size=256, learning_starts=8_000, sequence_length=3))
    """Replay buffer: buffer_size, batch_size, learning_starts, num_updates, sequence_length (at least n_step and
    action_sequence_length)."""

    name: ClassVar[str] = "cqn"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "Continuous Control with Coarse-to-fine Reinforcement Learning", "Seo et al.", 2024, "arXiv:2407.07787"
        ),
    )
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps, termination does not",
        "uniformly random actions until the first update; ties between bins are broken at random",
        "the critic chooses the action, its target copy evaluates it",
        "windows are cut at an episode's end and discounted by their own length",
    )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> CQNState:
        """Initialize the network and its target copy."""
        require_bounded_box(spec, self.name)
        if self.feed.batch_shape[0] < max(self.action_sequence_length, self.n_step):
            raise UserError(
                f"{self.name} needs windows of {max(self.action_sequence_length, self.n_step)} steps: "
                "set feed.sequence_length"
            )
        critic = CoarseToFineQ(
            spec, self.hidden_sizes, ActionBins(self.num_levels, self.num_bins), self.action_sequence_length, key
        )
        return CQNState(critic, critic, self.make_optimizer().init(critic), jnp.zeros((), "int32"))

    def make_optimizer(self) -> AdamW:
        """Build the optimizer of the networks from the settings."""
        return AdamW(self.learning_rate, self.weight_decay)

    def update(self, state: CQNState, batch: Batch, key: Key[Array, ""]) -> tuple[CQNState, Report]:
        """One gradient step of the network; the target is copied every ``target_update_interval`` updates."""
        steps, mask = jax.tree.map(lambda x: x[: self.n_step], (batch.steps, batch.mask))
        data = n_step_batch(Batch(steps, mask, batch.memory, batch.update_index), self.discount)
        last = jnp.sum(batch.mask, axis=0) - 1
        actions = jax.vmap(action_sequence, (1, None, 0, None))(
            batch.steps.action, 0, last, self.action_sequence_length
        )

        def next_value(view: View, key: Key[Array, ""]) -> Array:
            return state.target_critic(view.observation, state.critic.greedy_actions(view.observation, key))

        keys = jax.random.split(key, last.shape[0])
        next_values = jax.vmap(next_value)(data.next_view, keys)
        target = (data.reward + data.discount * next_values.T).T

        def loss(critic: CoarseToFineQ):
            all_values, digits = jax.vmap(critic.all_bin_values)(data.view.observation, actions)
            values = jax.vmap(own_bin_values)(all_values, digits)
            error = jnp.mean(jnp.square(values - target))
            metrics = {"critic_loss": error, "value": jnp.mean(values)}
            if self.bc_coef == 0.0:
                return error, metrics
            cloning = jax.vmap(margin_loss, (0, 0, None))(all_values, digits, self.bc_margin)
            cloning = masked_mean(cloning, jnp.asarray(batch.is_from("demos")))
            return error + self.bc_coef * cloning, metrics | {"margin_loss": cloning}

        critic, opt, metrics, norm = gradient_step(self.make_optimizer(), loss, state.critic, state.opt_state)
        num_updates = state.num_updates + 1
        target_critic = polyak_update(
            state.target_critic, critic, (num_updates % self.target_update_interval == 0).astype("float32")
        )
        return CQNState(critic, target_critic, opt, num_updates), Report(metrics | {"critic_gradient": norm})


class CQNAS(CQN):
    """Coarse-to-fine Q-network with action sequences: values the next several actions together; box actions."""

    learning_rate: Number = 5e-5
    """Learning rate."""
    exploration_noise: Number = 0.01
    """Standard deviation of the exploration noise on actions, in canonical units."""
    action_sequence_length: int = eqx.field(static=True, default=4)
    """Number of actions in a sequence, starting with the current one."""
    hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=(1024, 1024))
    """Units of each hidden layer, and of the recurrent layer."""
    feed: WindowFeed = eqx.field(
        static=True, default=Replay(batch_size=128, learning_starts=10_000, update_interval=2, sequence_length=4)
    )
    """Replay buffer: buffer_size, batch_size, learning_starts, update_interval, num_updates, sequence_length (at least
    n_step and action_sequence_length)."""

    name: ClassVar[str] = "cqn-as"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "Coarse-to-fine Q-Network with Action Sequence for Data-Efficient Robot Learning",
            "Seo and Abbeel",
            2025,
            "arXiv:2411.12155",
        ),
        *CQN.citations,
    )
