"""Deep deterministic policy gradient: the actor climbs ``Q(s, mu(s))``, the critic regresses on the actor's own target.

The critic's target is ``r + gamma Q_target(s', mu_target(s'))``; both targets follow slowly; exploration is
noise on the action. Where an action is one choice, ``mu`` is a draw of the actor's, one-hot, with the gradient of
a Gumbel-softmax (straight-through; Lowe et al., 2017), and those draws are all the noise there is.

Source: Lillicrap et al., 2016. The defaults are those that Fujimoto et al., 2018, found better: one step size of 1e-3
and white noise. The paper's: ``actor_learning_rate=1e-4 noise=0.2 noise_pull=0.15 target_rate=0.001 batch=64``,
layers of 400 and 300. Not here: its weight decay, batch normalisation and small last layers.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from thespis.actors.choosing import Climbing, climbing
from thespis.actors.deterministic import Deterministic
from thespis.actors.heads import act_rows
from thespis.core.contracts import Mode
from thespis.core.feeds import Replay
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Report, Transition, View
from thespis.critics.values import ActionValue, action_value, ensemble, evaluate_ensemble, seen_by_critics
from thespis.learners.backup import backup, fit_critics
from thespis.learners.gradient import Adam, Number, gradient_step, polyak
from thespis.objectives.normalise import mean


class DDPGState(eqx.Module):
    """All that DDPG learns; the critic carries a leading axis of one member."""

    actor: Climbing
    critic: ActionValue
    target_actor: Climbing
    target_critic: ActionValue
    actor_opt: PyTree
    critic_opt: PyTree
    updates: Int[Array, ""]


class DDPG(Deterministic):
    """Deep deterministic policy gradient for one bounded box of actions, or one choice."""

    learning_rate: Number = 1e-3
    """Step size of the critic."""
    actor_learning_rate: Number = 1e-3
    """Step size of the actor."""
    discount: Number = 0.99
    """Discount per step, in [0, 1]."""
    target_rate: Number = 0.005
    """Share by which the targets move at each update."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    """Units of each hidden layer, of actor and critic."""
    feed: Replay = eqx.field(static=True, default=Replay(batch=256, warmup=1_000))
    """Replay: capacity, batch, warmup, updates."""

    name: ClassVar[str] = "ddpg"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Continuous control with deep reinforcement learning", "Lillicrap et al.", 2016, "arXiv:1509.02971"),
    )
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps, termination does not",
        "uniformly random actions until the first update",
        "the actor climbs the critic after its step",
    )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> DDPGState:
        """Fresh actor and critic, and their copies."""
        actor_key, critic_key = jax.random.split(key)
        actor = climbing(spec, self.hidden, actor_key)
        answered = dataclasses.replace(spec, action=actor.answers)
        critic = ensemble(lambda k: action_value(answered, self.hidden, k), 1, critic_key)
        opts = Adam(self.actor_learning_rate).init(actor), Adam(self.learning_rate).init(critic)
        return DDPGState(actor, critic, actor, critic, *opts, jnp.zeros((), "int32"))

    def policy(self, state: DDPGState, mode: Mode) -> Any:
        """The actor, with noise while it explores."""
        return self.exploring(state.actor, state.updates, mode)

    def follow(self, state: DDPGState, view: View, key: Key[Array, ""]) -> PyTree:
        """What targets take for the actor's answer to ``view``: that of the target actor."""
        actor = state.target_actor
        return act_rows(lambda _, view, key: actor.left(actor.answer(view, key)), (), view, key)

    def judge(self, state: DDPGState, episode: Transition) -> Critique:
        """Values of the actions taken, and their advantage over the actor's own."""

        def one(view, privileged, action):
            seen = seen_by_critics(privileged, view.observation)
            answers = jnp.stack([state.actor.entered(action), state.actor.best(view)])
            return evaluate_ensemble(state.critic, seen, answers)[0]

        values = jax.vmap(one)(episode.view, episode.privileged, episode.action)
        return Critique(value=values[:, 0], advantage=values[:, 0] - values[:, 1], discount=self.discount)

    def update(self, state: DDPGState, batch: Batch, key: Key[Array, ""]) -> tuple[DDPGState, Report]:
        """One step of critic, actor and targets."""
        data = backup(batch, self.discount)
        data = eqx.tree_at(lambda d: d.action, data, jax.vmap(state.actor.entered)(data.action))
        target_keys, actor_keys = jax.random.split(key, (2, data.earned.shape[0]))

        def values(critic, actor, view, seen, keys):
            def one(view, seen, key):
                return evaluate_ensemble(critic, seen, actor.answer(view, key)[None])[0, 0]

            return jax.vmap(one)(view, seen, keys)

        next_value = values(state.target_critic, state.target_actor, data.next_view, data.next_seen, target_keys)
        critic, critic_opt, metrics = fit_critics(
            Adam(self.learning_rate), state.critic, state.critic_opt, data, data.earned + data.discount * next_value
        )

        def actor_loss(actor):
            loss = -mean(values(critic, actor, data.view, data.seen, actor_keys), data.alive)
            return loss, loss

        actor, actor_opt, loss, norm = gradient_step(
            Adam(self.actor_learning_rate), actor_loss, state.actor, state.actor_opt
        )
        state = DDPGState(
            actor, critic, polyak(state.target_actor, actor, self.target_rate),
            polyak(state.target_critic, critic, self.target_rate), actor_opt, critic_opt, state.updates + 1,
        )  # fmt: skip
        return state, Report(metrics | {"actor_loss": loss, "actor_gradient": norm})
