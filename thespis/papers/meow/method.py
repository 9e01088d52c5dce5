r"""MEow: maximum-entropy RL with one normalizing flow as both actor and critic, and exact soft values.

The flow's log-density, times alpha, is a soft Q-value minus its exact soft value (see :mod:`thespis.papers.meow.flow`);
it is fitted to

.. math:: r + \gamma \min_i \bar V_i(s')

for each of two learned reward shifts, of which the target network, a Polyak average, takes the smaller. That is the
only loss; there is no separate actor update.

Source: Chao et al., 2024; algorithm and hyperparameters as in the authors' code, which has an alpha, a range of
standard deviations and a ``tau`` for each task; the defaults are those of the Hopper. Exploiting by the mean of the
flow's base distribution is as in that code.

Not implemented: dropout (0.1) in the coupling networks, the learned slopes of their swish, and zero initialization of
all layers of the networks for standard deviations and shifts, of which only the last starts at zero here.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from thespis.core.feeds import WindowFeed
from thespis.core.records import Batch, Citation, EnvSpec, Number, Report, View
from thespis.data.feeds import Replay
from thespis.learners.off_policy.critic_updates import n_step_batch
from thespis.learners.off_policy.soft_actor_critic import ActionEvaluation, SoftActorCritic
from thespis.learners.optim.normalizers import IDENTITY
from thespis.learners.optim.optimizers import Adam, gradient_step, polyak_update
from thespis.papers.meow.flow import FlowActor


class MEowState(eqx.Module):
    """Training state of MEow: flow, target flow, optimizer and normalizer state."""

    actor: FlowActor
    target_actor: FlowActor
    opt_state: PyTree
    obs_normalizer_state: PyTree
    num_updates: Int[Array, ""]


class MEow(SoftActorCritic):
    """MEow: off-policy maximum-entropy RL with a normalizing flow as actor and critic; box actions."""

    learning_rate: Number = 1e-3
    """Learning rate."""
    temperature: Number = 0.25
    """Entropy coefficient (alpha), in units of reward."""
    tau: Number = 0.005
    """Polyak step size of the target network at each update."""
    max_grad_norm: Number = 30.0
    """Global norm to which the gradient is clipped."""
    log_std_range: tuple[float, float] = eqx.field(static=True, default=(-5.0, -0.3))
    """Range of the log standard deviation of the flow's base distribution."""
    num_coupling_pairs: int = eqx.field(static=True, default=2)
    """Number of pairs of coupling layers."""
    num_reward_shifts: int = eqx.field(static=True, default=2)
    """Number of learned reward shifts; the target takes the minimum."""
    hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    """Units of each hidden layer of the coupling networks and of the standard deviation's network."""
    shift_hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    """Units of each hidden layer of the reward-shift networks."""
    feed: WindowFeed = eqx.field(static=True, default=Replay(batch_size=256, learning_starts=5_000))
    """Replay buffer: buffer_size, batch_size, learning_starts, num_updates."""

    name: ClassVar[str] = "meow"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "Maximum Entropy Reinforcement Learning via Energy-Based Normalizing Flow",
            "Chao et al.",
            2024,
            "arXiv:2405.13629",
        ),
    )
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps, termination does not",
        "uniformly random actions until the first update",
        "minimum of the target's exact soft values; all shifts fitted to the same target",
        "log-densities of actions very close to their bounds are those of actions slightly inside",
    )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> MEowState:
        """Initialize the flow and its target copy."""
        actor = FlowActor(
            spec,
            key,
            num_coupling_pairs=self.num_coupling_pairs,
            num_reward_shifts=self.num_reward_shifts,
            hidden_sizes=self.hidden_sizes,
            shift_hidden_sizes=self.shift_hidden_sizes,
            log_std_range=self.log_std_range,
        )
        opt = self.make_optimizer().init(actor)
        return MEowState(
            actor, actor, opt, (self.obs_normalizer or IDENTITY).init(spec.observation_space), jnp.zeros((), "int32")
        )

    def make_optimizer(self) -> Adam:
        """Build the optimizer of the networks from the settings."""
        return Adam(self.learning_rate, self.max_grad_norm)

    def evaluate_action(
        self, state: MEowState, view: View, privileged: PyTree, actions: PyTree, key: Key[Array, ""]
    ) -> ActionEvaluation:
        """Minimum soft Q-value of the action, its advantage, disagreement of the shifts, and entropy bonus."""
        flow = state.actor(view)
        q_values = self.temperature * flow.action_values(actions[0])
        entropy = -flow.log_prob(flow.sample(key))
        return (
            jnp.min(q_values),
            self.temperature * flow.log_prob(actions[0]),
            jnp.std(q_values),
            self.temperature * entropy,
        )

    def update(self, state: MEowState, batch: Batch, key: Key[Array, ""]) -> tuple[MEowState, Report]:
        """One gradient step of the flow, and one Polyak step of its target copy."""
        normalizer_state = (self.obs_normalizer or IDENTITY).update(
            state.obs_normalizer_state, batch.steps.view.observation, batch.mask
        )
        data = n_step_batch(batch, self.discount, lambda view: self.normalize_view(normalizer_state, view))
        next_values = jax.vmap(lambda view: self.temperature * jnp.min(state.target_actor(view).state_values()))(
            data.next_view
        )
        target = data.reward + data.discount * next_values

        def loss(actor):
            q_values = self.temperature * jax.vmap(lambda view, action: actor(view).action_values(action))(
                data.view, data.action
            )
            error = jnp.mean(data.masked_mean(jnp.square(q_values - target[:, None])))
            return error, {"critic_loss": error, "value": jnp.mean(data.masked_mean(q_values))}

        actor, opt, metrics, norm = gradient_step(self.make_optimizer(), loss, state.actor, state.opt_state)
        target_actor = polyak_update(state.target_actor, actor, self.tau)
        state = MEowState(actor, target_actor, opt, normalizer_state, state.num_updates + 1)
        return state, Report(metrics | {"critic_gradient": norm})
