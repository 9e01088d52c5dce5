"""Sequence reinforcement learning: one look decides a sequence of actions, each valued where a learnt model says it is.

The critic is that of soft actor-critic, of single actions; after ``(s, a)`` it takes for granted an actor that looks at
``s'`` and goes on from ``a``. The actor ascends ``sum_j Q(s_j, a_j) - alpha log pi(a_j)`` over its own sequence, with
``s_j`` by the model (see :mod:`thespis.learners.recall`). Playing needs the actor alone, which looks once in ``length``
steps.

Source: Patel and Siegelmann, 2025; read were its abstract, its reviews, and the authors' code of the learner. Their
script that trains it is not public: that the actor also explores by whole sequences is taken from the reviews.
Differs from their code: one batch an update, theirs draws one for critics and one for model and actor; nets start as
those of sac do here.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from thespis.actors.sequences import SequenceActor
from thespis.core.errors import UserError
from thespis.core.feeds import Replay
from thespis.core.records import Batch, Citation, EnvSpec, Report
from thespis.critics.hyper import CriticNet, Joined
from thespis.critics.values import ActionValue, ensemble
from thespis.learners.backup import backup, fit_critics
from thespis.learners.gradient import Adam, Number, polyak
from thespis.learners.recall import Recall, SequenceLearner, fit_dynamics
from thespis.learners.soft import least
from thespis.nets.dynamics import Dynamics


class Moving(eqx.Module):
    """What moves at every ``actor_every``-th update only."""

    actor: SequenceActor
    opt: PyTree
    temperature: PyTree
    entropy: Array


class SRLState(eqx.Module):
    """All that is learnt."""

    moving: Moving
    critics: ActionValue
    dynamics: Dynamics
    targets: tuple[ActionValue, Dynamics]
    opts: tuple[PyTree, PyTree]
    scale: PyTree
    updates: Int[Array, ""]

    @property
    def actor(self) -> SequenceActor:
        """The actor that plays."""
        return self.moving.actor

    @property
    def temperature(self) -> PyTree:
        """State of the weight of entropy."""
        return self.moving.temperature


class SRL(SequenceLearner):
    """Sequence reinforcement learning; one bounded box of actions, one box of observations."""

    learning_rate: Number = 3e-4
    """Step size of actor, critics and model."""
    target_rate: Number = 0.005
    """Share by which targets of critics and model move at each update."""
    recall: bool = eqx.field(static=True, default=True)
    """Value each action where the model says it is taken; else where the actor looked."""
    actor_every: int = eqx.field(static=True, default=1)
    """Updates between steps of actor and temperature."""
    critic: CriticNet = Joined()
    """What values actions: Joined or Hypernetwork."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    """Units of each hidden layer, of actor and critics; the actor's last one is recurrent."""
    model: tuple[int, ...] = eqx.field(static=True, default=(400, 300))
    """Units of each hidden layer of the model."""
    feed: Replay = eqx.field(static=True, default=Replay(batch=256, warmup=10_000))
    """Replay: capacity, batch, warmup, updates."""

    name: ClassVar[str] = "srl"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Overcoming Slow Decision Frequencies in Continuous Control: Model-Based Sequence Reinforcement "
                 "Learning for Model-Free Control", "Patel and Siegelmann", 2025, "arXiv:2410.08979"),
    )  # fmt: skip
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps, termination does not; the model knows of no ends",
        "uniformly random actions until the first update",
        "an action is decided from the one before, also that of an earlier sequence; 0 before the first",
        "the model predicts the next observation itself, not its change; its slow copy fills in",
    )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> SRLState:
        """Fresh actor, critics and model; critics see what the model predicts, nothing privileged."""
        if self.feed.length > 1 or self.length < 1:
            raise UserError("srl learns from single steps and looks now and then: feed.length=1, length at least 1")
        spec, adam = dataclasses.replace(spec, privileged=None), Adam(self.learning_rate)
        actor_key, critic_key, model_key = jax.random.split(key, 3)
        actor, dynamics = SequenceActor(spec, self.hidden, actor_key), Dynamics(spec, self.model, model_key)
        critics = ensemble(lambda k: self.critic.build(spec, self.hidden, k), 2, critic_key)
        moving = Moving(actor, adam.init(actor), self.temperature.init(spec), jnp.zeros(()))
        opts, scale = (adam.init(critics), adam.init(dynamics)), self.observations.init(spec.observation)
        return SRLState(moving, critics, dynamics, (critics, dynamics), opts, scale, jnp.zeros((), "int32"))

    def update(self, state: SRLState, batch: Batch, key: Key[Array, ""]) -> tuple[SRLState, Report]:
        """One step of critics, model and targets; at every ``actor_every``-th also of actor and temperature."""
        scale = self.observations.update(state.scale, batch.steps.view.observation, batch.mask)
        data = backup(batch, self.discount, lambda view: self.scaled(scale, view))
        target_keys, actor_keys = jax.random.split(key, (2, data.earned.shape[0]))
        alpha, adam = self.temperature.alpha(state.temperature), Adam(self.learning_rate)
        ahead = Recall(least(state.targets[0]), state.targets[1], alpha, 1)
        following = jax.vmap(ahead.values, (None, 0, 0, 0))(state.actor, data.next_view, data.action, target_keys)[0]
        target = data.earned + data.discount * following[:, 0]
        critics, critic_opt, metrics = fit_critics(adam, state.critics, state.opts[0], data, target)
        dynamics, model_opt, error = fit_dynamics(
            adam, state.dynamics, state.opts[1], data.view.observation, data.action, data.next_view.observation
        )
        recall = Recall(least(critics), state.targets[1], alpha, self.length, self.recall)
        previous = batch.steps.extras["previous"][0]

        def move(moving: Moving) -> Moving:
            actor, opt, entropy = recall.climb(adam, moving.actor, moving.opt, data.view, previous, actor_keys)
            return Moving(actor, opt, self.temperature.update(moving.temperature, entropy), entropy)

        # batch.index is the same for all seeds, so under vmap this stays a branch
        moving = jax.lax.cond((batch.index + 1) % self.actor_every == 0, move, lambda moving: moving, state.moving)
        targets = polyak(state.targets, (critics, dynamics), self.target_rate)
        opts = critic_opt, model_opt
        state = SRLState(moving, critics, dynamics, targets, opts, scale, state.updates + 1)
        return state, Report(metrics | {"entropy": moving.entropy, "temperature": alpha, "model_error": error})
