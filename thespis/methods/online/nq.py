"""N-step Q-learning and Sarsa on fresh rollouts, without replay: regress ``Q(s, a)`` on returns of the rollout.

The target is ``G_t = r_t + gamma [(1 - trace) q_t + trace G_{t+1}]`` with ``G_{t+1} = q_t`` at the rollout's end and
``q_t`` what the target net says of the next choice, the best or the one taken. Trace 0 gives one-step targets, trace 1
the longest return in the rollout; neither corrects for exploratory choices on the way.

Source: Mnih et al., 2016, algorithms 1, S1 and S2, in a synchronous form; traces between: Peng and Williams, 1996.
Differs from common code: an episode, not a thread, draws its final epsilon; the chance of a random choice falls with
updates; truncation bootstraps with the true final observation; illegal choices are neither taken nor maximised over.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.actors.greedy import epsilon_greedy
from thespis.actors.heads import act_rows
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.feeds import Rollouts
from thespis.core.records import Batch, Citation, Report, View
from thespis.critics.values import ChoiceValue
from thespis.learners.backup import Backup, fit_critics
from thespis.learners.choices import ChoiceLearner, ChoiceState, choice_values, legal_values
from thespis.learners.following import Following, QLearning
from thespis.learners.gradient import Number, RMSProp
from thespis.objectives.returns import lambda_returns

_NOT_DRAWN = -1.0


class NQPolicy(eqx.Module):
    """Critic, and the chance of a random choice as ``common + share * final`` with the episode's final epsilon."""

    critic: ChoiceValue
    common: Float[Array, ""]
    share: Float[Array, ""]


class NQ(ChoiceLearner):
    """N-step Q-learning or Sarsa for one discrete choice, every episode with an epsilon of its own."""

    learning_rate: Number = 7e-4
    """Step size."""
    trace: Number = 1.0
    """Lambda of the returns, in [0, 1]: 0 for one-step targets, 1 for the longest in the rollout."""
    epsilon_updates: Number = 1_000.0
    """Updates over which the chance of a random choice falls, linearly, from 1 to the episode's final epsilon."""
    following: Following = QLearning()
    """What the next choice is worth: QLearning or Sarsa."""
    epsilons: tuple[float, ...] = eqx.field(static=True, default=(0.1, 0.01, 0.5))
    """Final epsilons, of which every episode draws one."""
    chances: tuple[float, ...] = eqx.field(static=True, default=(0.4, 0.3, 0.3))
    """With which chance each of them is drawn."""
    target_every: int = eqx.field(static=True, default=100)
    """Updates between copies of the net to the target."""
    feed: Rollouts = eqx.field(static=True, default=Rollouts(length=5, envs=8))
    """Rollouts: length, envs."""

    members: ClassVar[int] = 1
    name: ClassVar[str] = "nq"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Asynchronous Methods for Deep Reinforcement Learning", "Mnih et al.", 2016, "arXiv:1602.01783"),
        Citation("Incremental Multi-Step Q-Learning", "Peng and Williams", 1996, "Machine Learning 22"),
    )
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps with the true final observation",
        "synchronous: one step on all environments' rollouts",
        "every episode draws its final epsilon at its first step",
        "Sarsa takes the mean over epsilon-greedy choices where the rollout ends or an episode is truncated",
        "mean squared error, RMSProp with epsilon 1e-5, started at 1; global gradient norm clipped",
    )

    def policy(self, state: ChoiceState, mode: Mode) -> NQPolicy:
        """The net; epsilons falling while it explores, the final ones when sampled, 0 when greedy."""
        progress = jnp.clip(state.updates / self.epsilon_updates, 0.0, 1.0)
        common, share = {
            Mode.EXPLORE: (1.0 - progress, progress), Mode.SAMPLE: (0.0, 1.0), Mode.EXPLOIT: (0.0, 0.0)
        }[mode]  # fmt: skip
        return NQPolicy(state.critic, jnp.asarray(common, "float32"), jnp.asarray(share, "float32"))

    def begin(self, policy: NQPolicy, n: int) -> Float[Array, " n"]:
        """Final epsilons, none of them drawn. Raises ``UserError`` where their chances do not fit."""
        if len(self.epsilons) != len(self.chances) or abs(sum(self.chances) - 1) > 1e-6:
            raise UserError(f"nq draws its epsilons from {self.epsilons}: give as many chances, which sum to 1")
        return jnp.full(n, _NOT_DRAWN)

    def act(
        self, policy: NQPolicy, memory: Float[Array, " n"], view: View, key: Key[Array, ""]
    ) -> tuple[PyTree, Float[Array, " n"], PyTree]:
        """The best legal choice, or a random legal one with the chance that is stored beside it."""

        def one(final, view, key):
            draw_key, key = jax.random.split(key)
            drawn = jax.random.choice(draw_key, jnp.array(self.epsilons), p=jnp.array(self.chances))
            final = jnp.where(final < 0, drawn, final)
            epsilon = policy.common + policy.share * final
            action = epsilon_greedy(legal_values(policy.critic, view)[0], view.legal, epsilon, key)
            return action, final, {"epsilon": epsilon}

        return act_rows(one, memory, view, key)

    def update(self, state: ChoiceState, batch: Batch, key: Key[Array, ""]) -> tuple[ChoiceState, Report]:
        """One step of the net on one rollout."""
        steps = batch.steps
        values = jax.vmap(jax.vmap(lambda view: choice_values(state.target, view)[0]))(steps.next_view)
        returns = jax.vmap(lambda_returns, in_axes=(1, 1, 1, 1, None, None), out_axes=1)(
            steps.reward, self.following.value(values, steps), steps.terminated, steps.ended, self.discount, self.trace
        )
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (steps, returns))
        data = Backup(flat[0].view, flat[0].action, flat[1], jnp.zeros_like(flat[1]), flat[0].next_view)
        critic, opt, metrics = fit_critics(self.stepper(), state.critic, state.opt, data, data.earned)
        return self.renewed(state, critic, opt), Report(metrics | {"epsilon": jnp.mean(steps.extras["epsilon"])})

    def stepper(self) -> RMSProp:
        """How gradients become steps."""
        return RMSProp(self.learning_rate, self.max_gradient_norm)
