"""Soft actor-critic as first published: a net of its own for the state value, and a fixed weight of entropy.

The state value ``V`` regresses on ``E_a[min_i Q_i(s, a) - alpha log pi(a|s)]``; both critics ``Q_i`` on
``r + gamma V_target(s')``, so that no action is drawn in the next state; the actor descends
``E_a[alpha log pi(a|s) - min_i Q_i(s, a)]``. Only ``V`` has a target, which follows slowly.

Source: Haarnoja et al., 2018a, algorithm 1. Differs: the paper multiplies rewards by 5 (Humanoid: 20) at ``alpha = 1``;
here rewards stay as they are and ``alpha`` is the inverse, 0.2, which is the same objective in the world's units.
Critics step first, ``V`` and actor on the critics after their step; choices have exact sums (Christodoulou, 2019).
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from thespis.actors.soft import SoftActor
from thespis.core.feeds import Replay
from thespis.core.records import Batch, Citation, EnvSpec, Report, View
from thespis.critics.hyper import CriticNet, Joined
from thespis.critics.values import (
    ActionValue,
    Value,
    ensemble,
    evaluate_ensemble,
    for_critics,
    seen_by_critics,
)
from thespis.learners.backup import backup, fit_critics
from thespis.learners.gradient import Adam, Number, gradient_step, polyak
from thespis.learners.held import Hold, Loose
from thespis.learners.soft import SoftActorCritic, Verdict, climb, least, soft_value
from thespis.learners.temperature import FixedTemperature, Temperature
from thespis.nets.body import Body
from thespis.nets.mlp import uniform_fan_in
from thespis.objectives.normalise import mean


class SACVState(eqx.Module):
    """All that SAC with a state value learns; ``opts`` are those of actor, critics and value."""

    actor: SoftActor
    critics: ActionValue
    value: Value
    target: Value
    held: PyTree
    temperature: PyTree
    opts: tuple[PyTree, PyTree, PyTree]
    scale: PyTree
    updates: Int[Array, ""]


class SACV(SoftActorCritic):
    """Soft actor-critic with a state value; continuous boxes and discrete choices."""

    learning_rate: Number = 3e-4
    """Step size of actor, critics and state value."""
    target_rate: Number = 0.005
    """Share by which the target value moves at each update."""
    temperature: Temperature = FixedTemperature(0.2)
    """Weight of entropy, the inverse of the paper's reward scale: FixedTemperature or TunedTemperature."""
    hold: Hold = Loose()
    """What holds the actor to what it was: Loose or Steps."""
    critics: int = eqx.field(static=True, default=2)
    """Members of the ensemble of action values; the least counts."""
    critic: CriticNet = Joined()
    """What values actions: Joined or Hypernetwork."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    """Units of each hidden layer, of actor, critics and state value."""
    feed: Replay = eqx.field(static=True, default=Replay(batch=256, warmup=1_000))
    """Replay: capacity, batch, warmup, updates."""

    name: ClassVar[str] = "sac-v"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Soft Actor-Critic: Off-Policy Maximum Entropy Deep RL", "Haarnoja et al.", 2018, "arXiv:1801.01290"),
    )
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps, termination does not",
        "uniformly random actions until the first update",
        "log-probabilities from the value before squashing",
        "all critics fitted to the target state value; values include the entropy bonus",
        "state value and actor step on the critics after their step, with the same sampled actions",
    )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> SACVState:
        """Fresh actor, critics and state value, and its copy."""
        actor_key, critic_key, body_key, value_key = jax.random.split(key, 4)
        actor = SoftActor(spec, self.hidden, actor_key)
        critics = ensemble(lambda k: self.critic.build(spec, self.hidden, k), self.critics, critic_key)
        body = Body(for_critics(spec).observation, self.hidden, body_key, init=uniform_fan_in, activation=jax.nn.relu)
        value = Value(body, uniform_fan_in, value_key)
        adam = Adam(self.learning_rate)
        opts = adam.init(actor), adam.init(critics), adam.init(value)
        scale, temperature = self.observations.init(spec.observation), self.temperature.init(spec)
        held, begun = self.hold.init(actor), jnp.zeros((), "int32")
        return SACVState(actor, critics, value, value, held, temperature, opts, scale, begun)

    def verdict(self, state: SACVState, view: View, told: PyTree, actions: PyTree, key: Key[Array, ""]) -> Verdict:
        """Least action value, its advantage over the state value, disagreement, and entropy's bonus."""
        seen = seen_by_critics(told, view.observation)
        q = evaluate_ensemble(state.critics, seen, actions)[:, 0]
        value, _ = state.value((), seen)
        alpha = self.temperature.alpha(state.temperature)
        _, entropy = soft_value(state.actor, least(state.critics), alpha, view, key, told)
        return jnp.min(q), jnp.min(q) - value, jnp.std(q), alpha * entropy

    def update(self, state: SACVState, batch: Batch, key: Key[Array, ""]) -> tuple[SACVState, Report]:
        """One step of critics, actor, state value, temperature and target."""
        scale = self.observations.update(state.scale, batch.steps.view.observation, batch.mask)
        data = backup(batch, self.discount, lambda view: self.scaled(scale, view))
        alpha, adam = self.temperature.alpha(state.temperature), Adam(self.learning_rate)
        actor_opt, critic_opt, value_opt = state.opts

        def values(net, seen):
            return jax.vmap(lambda o: net((), o)[0])(seen)

        target = data.earned + data.discount * values(state.target, data.next_seen)
        critics, critic_opt, metrics = fit_critics(adam, state.critics, critic_opt, data, target)
        actor, actor_opt, (soft, entropy), norm = climb(
            adam,
            state.actor,
            actor_opt,
            least(critics),
            alpha,
            data.view,
            jax.random.split(key, data.earned.shape[0]),
            data.privileged,
            data.alive,
            lambda now, view: self.hold.cost(state.held, now, view, alpha),
        )

        def value_loss(net):
            loss = mean((values(net, data.seen) - soft) ** 2, data.alive)
            return loss, loss

        value, value_opt, loss, _ = gradient_step(adam, value_loss, state.value, value_opt)
        state = SACVState(
            actor, critics, value, polyak(state.target, value, self.target_rate),
            self.hold.renewed(state.held, actor, state.updates + 1),
            self.temperature.update(state.temperature, entropy), (actor_opt, critic_opt, value_opt), scale,
            state.updates + 1,
        )  # fmt: skip
        return state, Report(metrics | {"value_loss": loss, "entropy": entropy, "actor_gradient": norm})
