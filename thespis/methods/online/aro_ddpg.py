r"""Deterministic policy gradient of the average reward: nothing is discounted, all is counted relative to the average.

Twin critics hold the differential value :math:`\sum_k (r_k - \rho)`, fitted to

.. math:: r - \bar\rho + \min_i \bar Q_i(s', \bar\mu(s'))

where a bar marks slow copies. The average reward descends the square of
:math:`r - \rho - \min_i \bar Q_i(s, a) + \min_i \bar Q_i(s', \bar\mu(s'))`; the actor climbs the lesser critic. The
actor and all slow copies move at every ``actor_every``-th update only.

Source: Saxena et al., 2023, equations 24 to 32 in the version once submitted to ICLR. In the authors' code the average
is learnt with the critics instead, by the gradient of ``(Q_i(s, a) + rho - r - ...)²``, has no slow copy, and updates
come in bursts of 1,000 (``feed.every=1000 feed.updates=1000``); sizes and step sizes are those of that code. Differs: a
time limit does not end an episode, which there it does; windows of several steps, where the average is one per step.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.actors.deterministic import Deterministic, DeterministicActor, NoisyPolicy
from thespis.core.contracts import Mode
from thespis.core.feeds import Replay
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Report, Transition
from thespis.critics.hyper import CriticNet, Joined
from thespis.critics.values import ActionValue, ensemble, seen_by_critics
from thespis.learners.backup import Backup, backup, fit_critics
from thespis.learners.gradient import Adam, Number, gradient_step, polyak
from thespis.learners.soft import least
from thespis.objectives.normalise import mean


class Learnt(eqx.Module):
    """What has a slow copy."""

    actor: DeterministicActor
    critics: ActionValue
    average: Float[Array, ""]


class AROState(eqx.Module):
    """All that ARO-DDPG learns; ``opts`` are those of actor, critics and average reward."""

    now: Learnt
    slow: Learnt
    opts: tuple[PyTree, PyTree, PyTree]
    actor_loss: Float[Array, ""]
    updates: Int[Array, ""]


class ARODDPG(Deterministic):
    """Off-policy average-reward actor-critic for one bounded box of actions, in worlds that go on."""

    noise: Number = 0.2
    """Standard deviation of what exploration adds at each step, in canonical units: half the width of the bounds."""
    noise_pull: Number = 0.15
    """Share of its noise that exploration forgets at each step: 1 for white noise, less for Ornstein-Uhlenbeck."""
    learning_rate: Number = 3e-4
    """Step size of actor and critics."""
    average_rate: Number = 3e-4
    """Step size of the average reward, which an update moves by about so much."""
    target_rate: Number = 0.005
    """Share by which the slow copies move."""
    critics: int = eqx.field(static=True, default=2)
    """Members of the critic ensemble; the least value counts."""
    actor_every: int = eqx.field(static=True, default=2)
    """Updates between steps of the actor and the slow copies."""
    critic: CriticNet = Joined()
    """What values actions: Joined or Hypernetwork."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(128, 128))
    """Units of each hidden layer, of actor and critics."""
    feed: Replay = eqx.field(static=True, default=Replay(capacity=100_000, batch=256, warmup=5_000))
    """Replay: capacity, batch, warmup, updates."""

    name: ClassVar[str] = "aro-ddpg"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Off-Policy Average Reward Actor-Critic with Deterministic Policy Search", "Saxena et al.", 2023,
                 "arXiv:2305.12239"),
    )  # fmt: skip
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps, termination does not",
        "uniformly random actions until the first update",
        "least of the slow critics in both targets, of the critics for the actor",
        "the average reward has an optimiser and a slow copy of its own",
    )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> AROState:
        """Fresh nets and their copies; the average reward begins at 0."""
        keys = jax.random.split(key)
        actor = DeterministicActor(spec, self.hidden, keys[0])
        critics = ensemble(lambda k: self.critic.build(spec, self.hidden, k), self.critics, keys[1])
        now, adam = Learnt(actor, critics, jnp.zeros(())), Adam(self.learning_rate)
        opts = adam.init(actor), adam.init(critics), Adam(self.average_rate).init(now.average)
        return AROState(now, now, opts, jnp.zeros(()), jnp.zeros((), "int32"))

    def policy(self, state: AROState, mode: Mode) -> NoisyPolicy:
        """The actor, with noise while it explores."""
        return self.exploring(state.now.actor, state.updates, mode)

    def judge(self, state: AROState, episode: Transition) -> Critique:
        """Differential values, with the average added that this step is measured against; all later steps have it as
        their ``bonus``, a negative one. Advantages are over the actor's own actions.
        """

        def one(o, privileged, action):
            return least(state.now.critics)(seen_by_critics(privileged, o), jnp.stack([action, state.now.actor(o)]))

        values = jax.vmap(one)(episode.view.observation, episode.privileged, episode.action)
        average = jnp.broadcast_to(state.now.average, episode.reward.shape)
        return Critique(values[:, 0] + average, values[:, 0] - values[:, 1], discount=1.0, bonus=-average)

    def update(self, state: AROState, batch: Batch, key: Key[Array, ""]) -> tuple[AROState, Report]:
        """One step of critics and average reward; at every ``actor_every``-th also of actor and slow copies."""
        slow, reward = state.slow, lambda b: b.steps.reward
        data = backup(eqx.tree_at(reward, batch, batch.steps.reward - slow.average), 1.0)
        steps = backup(eqx.tree_at(reward, batch, jnp.ones_like(batch.steps.reward)), 1.0).earned
        evaluate = jax.vmap(lambda o, a: least(slow.critics)(o, a[None])[0])
        answers = jax.vmap(slow.actor)(data.next_view.observation)
        target = data.earned + data.discount * evaluate(data.next_seen, answers)
        adam = Adam(self.learning_rate)
        critics, critic_opt, metrics = fit_critics(adam, state.now.critics, state.opts[1], data, target)
        rate = slow.average + (target - evaluate(data.seen, data.action)) / steps
        average, average_opt, _, _ = gradient_step(
            Adam(self.average_rate), lambda x: (0.5 * mean(jnp.square(rate - x), data.alive), ()), state.now.average,
            state.opts[2],
        )  # fmt: skip
        now, opts = Learnt(state.now.actor, critics, average), (state.opts[0], critic_opt, average_opt)
        state = AROState(now, slow, opts, state.actor_loss, state.updates + 1)
        # batch.index is the same for all seeds, so under vmap this stays a branch and half the work is saved
        due = (batch.index + 1) % self.actor_every == 0
        state = jax.lax.cond(due, lambda s: self._move(s, data), lambda s: s, state)
        return state, Report(metrics | {"average_reward": average, "actor_loss": state.actor_loss})

    def _move(self, state: AROState, data: Backup) -> AROState:
        def loss(actor):
            value = jax.vmap(lambda o, seen: least(state.now.critics)(seen, actor(o)[None])[0])
            found = -mean(value(data.view.observation, data.seen), data.alive)
            return found, found

        actor, opt, found, _ = gradient_step(Adam(self.learning_rate), loss, state.now.actor, state.opts[0])
        now = Learnt(actor, state.now.critics, state.now.average)
        slow = polyak(state.slow, now, self.target_rate)
        return AROState(now, slow, (opt, *state.opts[1:]), found, state.updates)
