"""Behaviour cloning: maximise the likelihood of the logged actions.

Descends ``-E[log pi(a|s)]`` over a dataset; no critic. Any tree of actions.

Source: Pomerleau, 1989. Continuous actions are modelled by a normal with a free spread.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.actors.heads import Gaussian, PolicyHead, act_rows, chances
from thespis.core.contracts import Mode
from thespis.core.feeds import Logged
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Report, Transition, View
from thespis.learners.gradient import Adam, Number, gradient_step
from thespis.learners.normalisers import AsTheyAre, ObservationScale
from thespis.nets.body import Body
from thespis.nets.mlp import orthogonal


class Clone(eqx.Module):
    """Body and head."""

    body: Body
    head: PolicyHead


class BCState(eqx.Module):
    """All that behaviour cloning learns."""

    clone: Clone
    opt: PyTree
    scale: PyTree


class BCPolicy(eqx.Module):
    """What the actor carries."""

    clone: Clone
    scale: PyTree
    mode: Mode = eqx.field(static=True)


class BC(eqx.Module):
    """Behaviour cloning from a dataset."""

    learning_rate: Number = 1e-3
    """Step size."""
    observations: ObservationScale = AsTheyAre()
    """Scaling of observations: AsTheyAre or RunningScale."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    """Units of each hidden layer."""
    feed: Logged = eqx.field(static=True, default=Logged(batch=256))
    """Logged: batch."""

    name: ClassVar[str] = "bc"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("ALVINN: An Autonomous Land Vehicle in a Neural Network", "Pomerleau", 1989, "NIPS 1"),
    )
    details: ClassVar[tuple[str, ...]] = ("likelihood of the logged actions in canonical units",)

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> BCState:
        """A fresh actor."""
        body_key, head_key = jax.random.split(key)
        body = Body(spec.observation, self.hidden, body_key, init=orthogonal(2**0.5), activation=jax.nn.relu)
        head = PolicyHead(spec.action, body.size, head_key, init=orthogonal(0.01), continuous=Gaussian())
        clone = Clone(body, head)
        opt = Adam(self.learning_rate).init(clone)
        return BCState(clone, opt, self.observations.init(spec.observation))

    def policy(self, state: BCState, mode: Mode) -> BCPolicy:
        """Actor and scale."""
        return BCPolicy(state.clone, state.scale, mode)

    def begin(self, policy: BCPolicy, n: int) -> tuple[()]:
        """No memory."""
        return ()

    def act(self, policy: BCPolicy, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """A sample, or the mode when it exploits."""

        def one(memory, view, key):
            chosen = self._distribution(policy.clone, policy.scale, view)
            return (chosen.mode() if policy.mode is Mode.EXPLOIT else chosen.sample(key)), memory, ()

        return act_rows(one, memory, view, key)

    def probabilities(self, policy: BCPolicy, memory: Any, view: View) -> Float[Array, "row n"]:
        """Of every choice. Raises ``UserError`` unless an action is one discrete choice."""

        def one(view):
            return chances(self._distribution(policy.clone, policy.scale, view), greedy=policy.mode is Mode.EXPLOIT)

        return jax.vmap(one)(View(view.observation, view.legal))

    def judge(self, state: BCState, episode: Transition) -> Critique:
        """No critic, no opinion."""
        return Critique()

    def update(self, state: BCState, batch: Batch, key: Key[Array, ""]) -> tuple[BCState, Report]:
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
        return BCState(clone, opt, scale), Report({"negative_log_likelihood": nll, "gradient": norm})

    def _distribution(self, clone: Clone, scale: PyTree, view: View) -> Any:
        features, _ = clone.body((), self.observations.apply(scale, view.observation))
        return clone.head(features, view.legal)
