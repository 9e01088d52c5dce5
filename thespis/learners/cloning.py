"""Maximum likelihood of actions that somebody took: behaviour cloning, and the average of policies."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.actors.heads import Gaussian, PolicyHead, act_rows, chances
from thespis.core.contracts import Mode
from thespis.core.records import Batch, Critique, EnvSpec, Report, Transition, View
from thespis.learners.gradient import Adam, Number, gradient_step
from thespis.learners.normalisers import AsTheyAre, ObservationScale
from thespis.nets.body import Body
from thespis.nets.mlp import orthogonal


class Clone(eqx.Module):
    """Body and head."""

    body: Body
    head: PolicyHead


class CloneState(eqx.Module):
    """All that is learnt."""

    clone: Clone
    opt: PyTree
    scale: PyTree


class ClonePolicy(eqx.Module):
    """What the actor carries."""

    clone: Clone
    scale: PyTree
    mode: Mode = eqx.field(static=True)


class Cloning(eqx.Module):
    """Any tree of actions, without memory; nothing here is overridden."""

    learning_rate: Number = 1e-3
    """Step size."""
    observations: ObservationScale = AsTheyAre()
    """Scaling of observations: AsTheyAre or RunningScale."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    """Units of each hidden layer."""

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> CloneState:
        """A fresh actor."""
        body_key, head_key = jax.random.split(key)
        body = Body(spec.observation, self.hidden, body_key, init=orthogonal(2**0.5), activation=jax.nn.relu)
        head = PolicyHead(spec.action, body.size, head_key, init=orthogonal(0.01), continuous=Gaussian())
        clone = Clone(body, head)
        opt = Adam(self.learning_rate).init(clone)
        return CloneState(clone, opt, self.observations.init(spec.observation))

    def policy(self, state: CloneState, mode: Mode) -> ClonePolicy:
        """Actor and scale."""
        return ClonePolicy(state.clone, state.scale, mode)

    def begin(self, policy: ClonePolicy, n: int) -> tuple[()]:
        """No memory."""
        return ()

    def act(self, policy: ClonePolicy, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """A sample, or the mode when it exploits."""

        def one(memory, view, key):
            chosen = self._distribution(policy.clone, policy.scale, view)
            return (chosen.mode() if policy.mode is Mode.EXPLOIT else chosen.sample(key)), memory, ()

        return act_rows(one, memory, view, key)

    def probabilities(self, policy: ClonePolicy, memory: Any, view: View) -> Float[Array, "row n"]:
        """Of every choice. Raises ``UserError`` unless an action is one discrete choice."""

        def one(view):
            return chances(self._distribution(policy.clone, policy.scale, view), greedy=policy.mode is Mode.EXPLOIT)

        return jax.vmap(one)(View(view.observation, view.legal))

    def judge(self, state: CloneState, episode: Transition) -> Critique:
        """No critic, no opinion."""
        return Critique()

    def update(self, state: CloneState, batch: Batch, key: Key[Array, ""]) -> tuple[CloneState, Report]:
        """One step on one batch."""
        scale = self.observations.update(state.scale, batch.steps.view.observation, batch.mask)
        weight = batch.mask.astype("float32")

        def loss(clone):
            def log_prob(view, action):
                return self._distribution(clone, scale, view).log_prob(action)

            log_probs = jax.vmap(jax.vmap(log_prob))(batch.steps.view, batch.steps.action)
            nll = -jnp.sum(log_probs * weight) / jnp.sum(weight)
            return nll, nll

        clone, opt, nll, norm = gradient_step(Adam(self.learning_rate), loss, state.clone, state.opt)
        return CloneState(clone, opt, scale), Report({"negative_log_likelihood": nll, "gradient": norm})

    def _distribution(self, clone: Clone, scale: PyTree, view: View) -> Any:
        features, _ = clone.body((), self.observations.apply(scale, view.observation))
        return clone.head(features, view.legal)
