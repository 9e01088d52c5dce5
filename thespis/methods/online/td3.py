"""Twin delayed deterministic policy gradient: DDPG with three remedies against over-estimation.

Twin critics are fitted to ``r + gamma min_i Q_i(s', mu(s') + clip(noise))`` of the targets: the lesser of two
critics, at a smoothed target action. Actor and targets move at every ``actor_every``-th update only.

Source: Fujimoto et al., 2018, algorithm 1. Each remedy can be taken away: ``critics=1``, ``smoothing=0``,
``actor_every=1``.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from thespis.actors.deterministic import Deterministic, DeterministicActor, NoisyPolicy
from thespis.core.contracts import Mode
from thespis.core.feeds import Replay
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Report, Transition
from thespis.critics.hyper import CriticNet, Joined
from thespis.critics.values import ActionValue, ensemble, evaluate_ensemble, seen_by_critics
from thespis.learners.backup import Backup, backup, fit_critics
from thespis.learners.gradient import Adam, Number, gradient_step, polyak
from thespis.objectives.normalise import mean


class Moving(eqx.Module):
    """What moves at every ``actor_every``-th update only."""

    actor: DeterministicActor
    target_actor: DeterministicActor
    targets: ActionValue
    actor_opt: PyTree
    actor_loss: Array


class TD3State(eqx.Module):
    """All that TD3 learns."""

    moving: Moving
    critics: ActionValue
    critic_opt: PyTree
    updates: Int[Array, ""]


class TD3(Deterministic):
    """Twin delayed deterministic policy gradient for one bounded box of actions."""

    learning_rate: Number = 3e-4
    """Step size of actor and critics."""
    discount: Number = 0.99
    """Discount per step, in [0, 1]."""
    target_rate: Number = 0.005
    """Share by which the targets move."""
    smoothing: Number = 0.2
    """Standard deviation of the noise on target actions, in canonical units."""
    smoothing_clip: Number = 0.5
    """Largest such noise."""
    critics: int = eqx.field(static=True, default=2)
    """Members of the critic ensemble; the least value counts."""
    actor_every: int = eqx.field(static=True, default=2)
    """Updates between steps of the actor and the targets."""
    critic: CriticNet = Joined()
    """What values actions: Joined or Hypernetwork."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    """Units of each hidden layer, of actor and critics."""
    feed: Replay = eqx.field(static=True, default=Replay(batch=256, warmup=1_000))
    """Replay: capacity, batch, warmup, updates."""

    name: ClassVar[str] = "td3"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Addressing Function Approximation Error (TD3)", "Fujimoto et al.", 2018, "arXiv:1802.09477"),
    )
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps, termination does not",
        "uniformly random actions until the first update",
        "least of the target critics; smoothed target actions; delayed actor and targets",
        "the actor climbs the first critic",
    )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> TD3State:
        """Fresh actor and critics, and their copies."""
        actor_key, critic_key = jax.random.split(key)
        actor = DeterministicActor(spec, self.hidden, actor_key)
        critics = ensemble(lambda k: self.critic.build(spec, self.hidden, k), self.critics, critic_key)
        optimiser = Adam(self.learning_rate)
        moving = Moving(actor, actor, critics, optimiser.init(actor), jnp.zeros(()))
        return TD3State(moving, critics, optimiser.init(critics), jnp.zeros((), "int32"))

    def policy(self, state: TD3State, mode: Mode) -> NoisyPolicy:
        """The actor, with noise while it explores."""
        return self.exploring(state.moving.actor, state.updates, mode)

    def judge(self, state: TD3State, episode: Transition) -> Critique:
        """Least values of the actions taken, their advantage over the actor's own, and the critics' disagreement."""

        def one(o, privileged, action):
            seen = seen_by_critics(privileged, o)
            return evaluate_ensemble(state.critics, seen, jnp.stack([action, state.moving.actor(o)]))

        values = jax.vmap(one)(episode.view.observation, episode.privileged, episode.action)
        least = jnp.min(values, axis=1)
        spread = jnp.std(values[:, :, 0], axis=1)
        return Critique(least[:, 0], least[:, 0] - least[:, 1], spread, discount=self.discount)

    def update(self, state: TD3State, batch: Batch, key: Key[Array, ""]) -> tuple[TD3State, Report]:
        """One step of the critics; at every ``actor_every``-th also of actor and targets."""
        data = backup(batch, self.discount)
        keys = jax.random.split(key, data.earned.shape[0])

        def next_value(o, seen, key):
            action = state.moving.target_actor(o)
            limit = self.smoothing_clip
            noise = jnp.clip(self.smoothing * jax.random.normal(key, action.shape), -limit, limit)
            return jnp.min(evaluate_ensemble(state.moving.targets, seen, jnp.clip(action + noise, -1.0, 1.0)[None]))

        next_values = jax.vmap(next_value)(data.next_view.observation, data.next_seen, keys)
        target = data.earned + data.discount * next_values
        adam = Adam(self.learning_rate)
        critics, critic_opt, metrics = fit_critics(adam, state.critics, state.critic_opt, data, target)
        # batch.index is the same for all seeds, so under vmap this stays a branch and half the work is saved
        moving = jax.lax.cond(
            (batch.index + 1) % self.actor_every == 0,
            lambda moving: self._move(moving, critics, data),
            lambda moving: moving,
            state.moving,
        )
        state = TD3State(moving, critics, critic_opt, state.updates + 1)
        return state, Report(metrics | {"actor_loss": moving.actor_loss})

    def _move(self, moving: Moving, critics: ActionValue, data: Backup) -> Moving:
        first = jax.tree.map(lambda x: x[:1], critics)

        def actor_loss(actor):
            value = jax.vmap(lambda o, seen: evaluate_ensemble(first, seen, actor(o)[None])[0, 0])
            loss = -mean(value(data.view.observation, data.seen), data.alive)
            return loss, loss

        actor, opt, loss, _ = gradient_step(Adam(self.learning_rate), actor_loss, moving.actor, moving.actor_opt)
        target_actor = polyak(moving.target_actor, actor, self.target_rate)
        return Moving(actor, target_actor, polyak(moving.targets, critics, self.target_rate), opt, loss)
