"""What methods that value actions from coarse to fine have in common: how they act and are judged.

A concrete method adds its fields, ``init`` and ``update``; nothing here is overridden.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.actors.ensembling import Plans, no_plans
from thespis.actors.heads import act_rows
from thespis.core.contracts import Mode
from thespis.core.records import Critique, Transition, View
from thespis.critics.coarse import CoarseValue
from thespis.learners.gradient import Number


class CoarseState(eqx.Module):
    """All that is learnt."""

    critic: CoarseValue
    target: CoarseValue
    opt: PyTree
    updates: Int[Array, ""]


class CoarsePolicy(eqx.Module):
    """The critic; ``random`` until the first update."""

    critic: CoarseValue
    random: Bool[Array, ""]
    mode: Mode = eqx.field(static=True)


class CoarseLearner(eqx.Module):
    """Values of the bins of one box of actions, or of several actions in a row."""

    discount: Number = 0.99
    """Discount per step, in [0, 1]."""
    noise: Number = 0.1
    """Standard deviation of what is added to actions while it explores, in canonical units."""
    gain: Number = 0.01
    """How much less a plan weighs than the one made a step earlier; only with sequences."""
    sequence: int = eqx.field(static=True, default=1)
    """Actions that are valued in a row, from now on."""

    def policy(self, state: CoarseState, mode: Mode) -> CoarsePolicy:
        """The net."""
        return CoarsePolicy(state.critic, state.updates == 0, mode)

    def begin(self, policy: CoarsePolicy, n: int) -> Plans:
        """Nothing was planned."""
        return no_plans(n, *policy.critic.shape)

    def act(self, policy: CoarsePolicy, memory: Plans, view: View, key: Key[Array, ""]) -> tuple[PyTree, Plans, PyTree]:
        """What this plan and those before it have for now, with noise while it explores."""

        def one(plans: Plans, view: View, key: Key[Array, ""]) -> Any:
            tie_key, noise_key, random_key = jax.random.split(key, 3)
            drawn = None if policy.mode is Mode.EXPLOIT else tie_key
            plans = plans.after(policy.critic.best(view.observation, drawn))
            action = plans.now(self.gain)
            if policy.mode is Mode.EXPLORE:
                noisy = jnp.clip(action + self.noise * jax.random.normal(noise_key, action.shape), -1.0, 1.0)
                uniform = jax.random.uniform(random_key, action.shape, minval=-1.0)
                action = jnp.where(policy.random, uniform, noisy)
            return action.reshape(policy.critic.space.shape), plans, ()

        return act_rows(one, memory, view, key)

    def judge(self, state: CoarseState, episode: Transition) -> Critique:
        """Values of what was done, over levels, steps and dimensions their mean, and their advantage over the best."""
        last = jnp.asarray(episode.reward.shape[0] - 1)

        def one(start: Int[Array, ""], observation: PyTree) -> Array:
            done = in_a_row(episode.action, start, last, self.sequence)
            best = state.critic.best(observation)
            return jnp.stack([jnp.mean(state.critic(observation, actions)) for actions in (done, best)])

        values = jax.vmap(one)(jnp.arange(episode.reward.shape[0]), episode.view.observation)
        return Critique(values[:, 0], values[:, 0] - values[:, 1], discount=self.discount)


def in_a_row(
    actions: Float[Array, "time *action"], start: int | Int[Array, ""], last: Int[Array, ""], count: int
) -> Float[Array, "count dimension"]:
    """``count`` actions of one episode from ``start`` on, flat; the one at ``last`` stands for all behind it."""
    return actions[jnp.minimum(start + jnp.arange(count), last)].reshape(count, -1)
