"""Coarse-to-fine Q-network: continuous actions as choices among bins that are cut ever finer, and nothing but a critic.

Every level, dimension and, with ``sequence`` above 1, every action in a row has a value of its own, fitted to
``r + gamma V`` of several steps. ``V`` is the slow copy's value, at the same level, dimension and place in the row, of
what the critic now thinks best. The action of now is a mean of what was planned for it (see
:mod:`thespis.actors.ensembling`). Sequences that reach beyond an episode's end repeat its last action.

Source: Seo et al., 2024; sequences: Seo and Abbeel, 2025; read were their abstracts and the second paper's code, which
holds both. Sizes are those of that code for the control suite seen by its state, which, like that for humanoids, fits
single values; its distributions of returns, advantage streams and demonstrations, all for pictures, are left out.
Differs: one net of the same units for sequences and single actions; dimensions start as the layers of sac do here.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from thespis.core.errors import UserError
from thespis.core.feeds import Replay
from thespis.core.records import Batch, Citation, EnvSpec, Report, View
from thespis.critics.coarse import CoarseValue, Grid, require_box
from thespis.learners.backup import backup
from thespis.learners.coarse import CoarseLearner, CoarseState, in_a_row
from thespis.learners.gradient import AdamW, Number, gradient_step, polyak


class CQN(CoarseLearner):
    """Coarse-to-fine Q-network for one bounded box of actions."""

    learning_rate: Number = 1e-4
    """Step size."""
    weight_decay: Number = 0.1
    """Share of the weights that a step takes away, times its size."""
    levels: int = eqx.field(static=True, default=3)
    """How often an action is cut."""
    bins: int = eqx.field(static=True, default=5)
    """Into how many parts."""
    returns: int = eqx.field(static=True, default=3)
    """Steps of reward in a target."""
    target_every: int = eqx.field(static=True, default=100)
    """Updates between copies of the net to the target."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(512, 512))
    """Units of each hidden layer."""
    feed: Replay = eqx.field(static=True, default=Replay(batch=256, warmup=8_000, length=3))
    """Replay: capacity, batch, warmup, updates, length (no less than returns and sequence)."""

    name: ClassVar[str] = "cqn"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Continuous Control with Coarse-to-fine Reinforcement Learning", "Seo et al.", 2024,
                 "arXiv:2407.07787"),
    )  # fmt: skip
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps, termination does not",
        "uniformly random actions until the first update; bins as good as each other are drawn",
        "the critic chooses what its slow copy values",
        "windows are cut at an episode's end and discounted by their own length",
    )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> CoarseState:
        """A fresh net and its copy."""
        require_box(spec, self.name)
        if self.feed.length < max(self.sequence, self.returns):
            raise UserError(f"{self.name} needs windows of {max(self.sequence, self.returns)} steps: set feed.length")
        critic = CoarseValue(spec, self.hidden, Grid(self.levels, self.bins), self.sequence, key)
        return CoarseState(critic, critic, self.stepper().init(critic), jnp.zeros((), "int32"))

    def stepper(self) -> AdamW:
        """How gradients become steps."""
        return AdamW(self.learning_rate, self.weight_decay)

    def update(self, state: CoarseState, batch: Batch, key: Key[Array, ""]) -> tuple[CoarseState, Report]:
        """One step of the net; the target is copied every ``target_every`` updates."""
        steps, mask = jax.tree.map(lambda x: x[: self.returns], (batch.steps, batch.mask))
        data = backup(Batch(steps, mask, batch.memory, batch.index), self.discount)
        last = jnp.sum(batch.mask, axis=0) - 1
        actions = jax.vmap(in_a_row, (1, None, 0, None))(batch.steps.action, 0, last, self.sequence)

        def following(view: View, key: Key[Array, ""]) -> Array:
            return state.target(view.observation, state.critic.best(view.observation, key))

        keys = jax.random.split(key, last.shape[0])
        onward = jax.vmap(following)(data.next_view, keys)
        target = (data.earned + data.discount * onward.T).T

        def loss(critic: CoarseValue):
            values = jax.vmap(critic)(data.view.observation, actions)
            errors = jnp.mean(jnp.square(values - target))
            return errors, {"critic_loss": errors, "value": jnp.mean(values)}

        critic, opt, metrics, norm = gradient_step(self.stepper(), loss, state.critic, state.opt)
        updates = state.updates + 1
        target_net = polyak(state.target, critic, (updates % self.target_every == 0).astype("float32"))
        return CoarseState(critic, target_net, opt, updates), Report(metrics | {"critic_gradient": norm})
