r"""Maximum entropy by one flow that is actor and critic: soft values are exact, and nothing climbs anything.

The flow's log-density, times alpha, is a soft action value less its exact soft value (see :mod:`thespis.actors.flow`);
it is fitted to

.. math:: r + \gamma \min_i \bar V_i(s')

for each of two learnt shifts of reward, of which the target, a slow copy, takes the lesser. That is the only loss.

Source: Chao et al., 2024, algorithm and sizes as in the authors' code, which has an alpha, a range of deviations and a
rate of the target for each task; the defaults are those of the Hopper. Not here: dropout (a tenth) in the couplings'
nets, the learnt slopes of their swish, and zeros in all layers of the nets for deviations and shifts, of which only
the last begins at zero here. That code plays greedily by the mean of the normal that flows, and so does this.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from thespis.actors.flow import FlowActor
from thespis.core.feeds import Replay
from thespis.core.records import Batch, Citation, EnvSpec, Report, View
from thespis.learners.backup import backup
from thespis.learners.gradient import Adam, Number, gradient_step, polyak
from thespis.learners.soft import SoftActorCritic, Verdict


class MEowState(eqx.Module):
    """All that MEow learns."""

    actor: FlowActor
    target: FlowActor
    opt: PyTree
    scale: PyTree
    updates: Int[Array, ""]


class MEow(SoftActorCritic):
    """Energy-based normalising flow for one bounded box of actions."""

    learning_rate: Number = 1e-3
    """Step size."""
    alpha: Number = 0.25
    """Weight of entropy, in units of reward."""
    target_rate: Number = 0.005
    """Share by which the target moves at each update."""
    max_gradient_norm: Number = 30.0
    """Global norm to which the gradient is clipped."""
    log_std: tuple[float, float] = eqx.field(static=True, default=(-5.0, -0.3))
    """Least and largest log standard deviation of the normal that flows."""
    pairs: int = eqx.field(static=True, default=2)
    """Pairs of couplings."""
    shifts: int = eqx.field(static=True, default=2)
    """Learnt shifts of reward; the target takes the least."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    """Units of each hidden layer, of the couplings' nets and that of the deviations."""
    shift_hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    """Units of each hidden layer of the shifts' nets."""
    feed: Replay = eqx.field(static=True, default=Replay(batch=256, warmup=5_000))
    """Replay: capacity, batch, warmup, updates."""

    name: ClassVar[str] = "meow"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Maximum Entropy Reinforcement Learning via Energy-Based Normalizing Flow", "Chao et al.", 2024,
                 "arXiv:2405.13629"),
    )  # fmt: skip
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps, termination does not",
        "uniformly random actions until the first update",
        "least of the target's exact soft values; all shifts fitted to the same target",
        "log-densities of actions within a hair of their bounds are those of actions a little inside",
    )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> MEowState:
        """A fresh flow and its copy."""
        actor = FlowActor(
            spec, key, pairs=self.pairs, shifts=self.shifts, hidden=self.hidden, shift_hidden=self.shift_hidden,
            log_std=self.log_std,
        )  # fmt: skip
        opt = self.stepper().init(actor)
        return MEowState(actor, actor, opt, self.observations.init(spec.observation), jnp.zeros((), "int32"))

    def stepper(self) -> Adam:
        """How gradients become steps."""
        return Adam(self.learning_rate, self.max_gradient_norm)

    def verdict(self, state: MEowState, view: View, told: PyTree, actions: PyTree, key: Key[Array, ""]) -> Verdict:
        """Least soft value of the action, what it is worth beyond the state's, disagreement, and entropy's bonus."""
        flow = state.actor(view)
        worth = self.alpha * flow.action_values(actions[0])
        entropy = -flow.log_prob(flow.sample(key))
        return jnp.min(worth), self.alpha * flow.log_prob(actions[0]), jnp.std(worth), self.alpha * entropy

    def update(self, state: MEowState, batch: Batch, key: Key[Array, ""]) -> tuple[MEowState, Report]:
        """One step of the flow and its copy."""
        scale = self.observations.update(state.scale, batch.steps.view.observation, batch.mask)
        data = backup(batch, self.discount, lambda view: self.scaled(scale, view))
        following = jax.vmap(lambda view: self.alpha * jnp.min(state.target(view).values()))(data.next_view)
        target = data.earned + data.discount * following

        def loss(actor):
            worth = self.alpha * jax.vmap(lambda view, action: actor(view).action_values(action))(
                data.view, data.action
            )
            missed = jnp.mean(data.means(jnp.square(worth - target[:, None])))
            return missed, {"critic_loss": missed, "value": jnp.mean(data.means(worth))}

        actor, opt, metrics, norm = gradient_step(self.stepper(), loss, state.actor, state.opt)
        copy = polyak(state.target, actor, self.target_rate)
        state = MEowState(actor, copy, opt, scale, state.updates + 1)
        return state, Report(metrics | {"critic_gradient": norm})
