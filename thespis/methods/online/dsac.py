"""Distributional soft actor-critic: the critic is a normal distribution of the soft return, not its mean alone.

One critic, of mean ``Q`` and deviation ``sigma``, is fitted by likelihood to sampled returns
``y = r + gamma (Z(s', a') - alpha log pi(a'|s'))`` with ``Z`` drawn from the target critic and ``a'`` from the target
actor. The step of ``Q`` is divided by ``sigma**2``: it is short where returns are uncertain, which mitigates
over-estimation without a second critic. The actor climbs ``Q - alpha log pi``; it, the temperature and all targets
move at every second update only.

Source: Duan et al., 2021, and the authors' code of that year, from which the defaults are. Differs: constant step
sizes (there annealed to 1e-6 by a cosine); ``sigma`` is a floor plus a softplus (there it is squashed between 0.9 and
55); the actor's mean and deviation share all layers (there the last two are apart); layers start as SAC's do; actions
are random until the first update; one learner beside the actors (there several of each, asynchronous).
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.actors.heads import SquashedGaussian
from thespis.actors.soft import SoftActor
from thespis.core.feeds import Replay
from thespis.core.records import Batch, Citation, EnvSpec, Report, View
from thespis.critics.values import PairReturn, for_critics, seen_by_critics
from thespis.learners.backup import Backup, backup, fit_returns
from thespis.learners.gradient import Adam, Number, polyak
from thespis.learners.soft import SoftActorCritic, Verdict, climb, soft_value
from thespis.learners.temperature import Temperature, TunedTemperature


class DSACState(eqx.Module):
    """All that DSAC learns, and the actor's entropy at its last step."""

    actor: SoftActor
    critic: PairReturn
    target_actor: SoftActor
    target_critic: PairReturn
    temperature: PyTree
    actor_opt: PyTree
    critic_opt: PyTree
    scale: PyTree
    entropy: Float[Array, ""]
    updates: Int[Array, ""]


class DSAC(SoftActorCritic):
    """Distributional soft actor-critic for one bounded box of actions."""

    learning_rate: Number = 8e-5
    """Step size of the critic."""
    actor_learning_rate: Number = 5e-5
    """Step size of the actor."""
    target_rate: Number = 0.001
    """Share by which target critic and target actor move."""
    temperature: Temperature = TunedTemperature(learning_rate=5e-5)
    """Weight of entropy: TunedTemperature or FixedTemperature."""
    reward_scale: Number = 0.2
    """Factor of rewards, to suit the task: scaled returns should be far above ``least_deviation``. Deviations and the
    bound are in scaled units, verdicts in the world's."""
    bound: Number = 10.0
    """Largest distance of a sampled return from the mean that counts for the deviation (the paper's ``b``)."""
    least_deviation: Number = 0.9
    """Floor of the deviation."""
    noise_clip: Number = 2.0
    """Largest distance of a sampled return from its mean, in deviations."""
    actor_every: int = eqx.field(static=True, default=2)
    """Updates between steps of actor, temperature and targets."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256, 256, 256, 256))
    """Units of each hidden layer, of actor and critic; the critic's last two are doubled, for mean and deviation."""
    feed: Replay = eqx.field(static=True, default=Replay(capacity=500_000, batch=256, warmup=2_000))
    """Replay: capacity, batch, warmup, updates."""

    name: ClassVar[str] = "dsac"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Distributional Soft Actor-Critic", "Duan et al.", 2021, "arXiv:2001.02811"),
    )
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps, termination does not",
        "uniformly random actions until the first update",
        "one critic; target returns are samples of the target critic at actions of the target actor",
        "bounded errors for the deviation's gradient, unbounded ones for the mean's",
        "actor steps on the critic after its step; delayed actor, temperature and targets",
    )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> DSACState:
        """Fresh actor, critic and temperature, and copies of the first two."""
        actor_key, critic_key = jax.random.split(key)
        critic = PairReturn(for_critics(spec), self.hidden, critic_key, activation=jax.nn.gelu)
        head = SquashedGaussian(lowest_log_std=-5.0, highest_log_std=1.0)
        actor = SoftActor(spec, self.hidden, actor_key, activation=jax.nn.gelu, continuous=head)
        opts = Adam(self.actor_learning_rate).init(actor), Adam(self.learning_rate).init(critic)
        scale, temperature = self.observations.init(spec.observation), self.temperature.init(spec)
        return DSACState(actor, critic, actor, critic, temperature, *opts, scale, jnp.zeros(()), jnp.zeros((), "int32"))

    def verdict(self, state: DSACState, view: View, told: PyTree, actions: PyTree, key: Key[Array, ""]) -> Verdict:
        """Mean return, its advantage over the soft value, nobody to disagree with, and entropy's bonus."""
        q, _ = state.critic(seen_by_critics(told, view.observation), actions)
        alpha = self.temperature.alpha(state.temperature)
        value, entropy = soft_value(state.actor, lambda o, a: state.critic(o, a)[0], alpha, view, key, told)
        return q[0] / self.reward_scale, (q[0] - value) / self.reward_scale, None, alpha * entropy / self.reward_scale

    def update(self, state: DSACState, batch: Batch, key: Key[Array, ""]) -> tuple[DSACState, Report]:
        """One step of the critic; at every ``actor_every``-th also of actor, temperature and targets."""
        scale = self.observations.update(state.scale, batch.steps.view.observation, batch.mask)
        data = backup(batch, self.discount, lambda view: self.scaled(scale, view))
        keys, noise_keys, actor_keys = jax.random.split(key, (3, data.earned.shape[0]))
        alpha = self.temperature.alpha(state.temperature)

        def next_return(view, key, noise_key, privileged):
            noise = jnp.clip(jax.random.normal(noise_key), -self.noise_clip, self.noise_clip)

            def sample(o, actions):
                mean, excess = state.target_critic(o, actions)
                return mean + noise * (self.least_deviation + excess)

            return soft_value(state.target_actor, sample, alpha, view, key, privileged)[0]

        sampled = jax.vmap(next_return)(data.next_view, keys, noise_keys, data.next_privileged)
        critic, critic_opt, metrics = fit_returns(
            Adam(self.learning_rate), state.critic, state.critic_opt, data,
            self.reward_scale * data.earned + data.discount * sampled, floor=self.least_deviation, bound=self.bound,
        )  # fmt: skip
        state = eqx.tree_at(
            lambda s: (s.critic, s.critic_opt, s.scale, s.updates),
            state,
            (critic, critic_opt, scale, state.updates + 1),
        )
        # batch.index is the same for all seeds, so under vmap this stays a branch and half the work is saved
        due = (batch.index + 1) % self.actor_every == 0
        state = jax.lax.cond(due, lambda s: self._move(s, data, alpha, actor_keys), lambda s: s, state)
        metrics |= {name: metrics[name] / self.reward_scale for name in ("value", "deviation")}
        return state, Report(metrics | {"entropy": state.entropy, "temperature": alpha})

    def _move(self, state: DSACState, data: Backup, alpha: Array, keys: Key[Array, " row"]) -> DSACState:
        adam, critic = Adam(self.actor_learning_rate), state.critic
        actor, opt_state, (_, entropy), _ = climb(
            adam, state.actor, state.actor_opt, lambda o, a: critic(o, a)[0], alpha, data.view, keys, data.privileged,
            data.alive,
        )  # fmt: skip
        moved = (
            actor, opt_state, self.temperature.update(state.temperature, entropy), entropy,
            polyak(state.target_actor, actor, self.target_rate), polyak(state.target_critic, critic, self.target_rate),
        )  # fmt: skip
        return eqx.tree_at(
            lambda s: (s.actor, s.actor_opt, s.temperature, s.entropy, s.target_actor, s.target_critic), state, moved
        )
