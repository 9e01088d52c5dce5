r"""Decentralized policy optimisation: every agent improves a surrogate that bounds the joint return from below.

All agents step at once, so what each gains for itself may be lost together. For weights large enough the joint return
rises at least as the sum of what each gains here by itself:

.. math:: E[\rho A_i] - \beta_1 E_s\sqrt{KL(\pi_{i,old} \| \pi_i)} - \beta_2 E_s KL(\pi_{i,old} \| \pi_i)

Such weights would allow next to no step, so both are adapted: a weight is halved after an update that moved less than
two thirds of what is aimed for, and doubled after one that moved half as much again. Agents share nothing.

Source: Su and Lu, 2022 (their DPO; here that name is left to preferences). Weights, bounds and aims (that of the root
is the root of the other) are those of their code. Differs from it: what an update moved is measured after it, over the
whole rollout; weights stay within 0.001 and 1000 of where they begin.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.contracts import Mode
from thespis.core.feeds import Rollouts
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Report, Transition, View
from thespis.critics.central import Own, Sight
from thespis.learners.anchors import Tether, moved
from thespis.learners.crowd import Crowd
from thespis.learners.gradient import Number
from thespis.learners.on_policy import OnPolicyState
from thespis.learners.sharing import Separate, Sharing
from thespis.methods.online.ppo import PPO

_UNCLIPPED = 1e9


class SurrogateState(eqx.Module):
    """What PPO has learnt, and the two weights: of the root, and of the divergence."""

    learnt: OnPolicyState
    weights: Float[Array, "2"]


class Surrogate(eqx.Module):
    """PPO without clipping, tethered to the policy before by two weights that adapt."""

    method: PPO = PPO(clip=_UNCLIPPED)
    """What takes the steps; its anchor is put in place here."""
    aim: Number = 0.01
    """Divergence of one update, in nats, that the weights are adapted to."""
    first: Tether = Tether()
    """Weights to begin with; one of 0 stays 0."""

    name: ClassVar[str] = "decentralized"
    citations: ClassVar[tuple[Citation, ...]] = PPO.citations
    details: ClassVar[tuple[str, ...]] = PPO.details

    @property
    def feed(self) -> Rollouts:
        """What PPO eats."""
        return self.method.feed

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> SurrogateState:
        """A fresh learner and the first weights."""
        return SurrogateState(self.method.init(spec, key), self._first())

    def policy(self, state: SurrogateState, mode: Mode) -> PyTree:
        """PPO's."""
        return self.method.policy(state.learnt, mode)

    def begin(self, policy: PyTree, n: int) -> Any:
        """PPO's memories."""
        return self.method.begin(policy, n)

    def act(self, policy: PyTree, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """As PPO acts."""
        return self.method.act(policy, memory, view, key)

    def probabilities(self, policy: PyTree, memory: Any, view: View) -> Float[Array, "row n"]:
        """Of every choice. Raises ``UserError`` unless an action is one discrete choice."""
        return self.method.probabilities(policy, memory, view)

    def judge(self, state: SurrogateState, episode: Transition) -> Critique:
        """PPO's critic's opinion."""
        return self.method.judge(state.learnt, episode)

    def update(self, state: SurrogateState, batch: Batch, key: Key[Array, ""]) -> tuple[SurrogateState, Report]:
        """One update, after which the weights are adapted to how far it went."""
        tethered = dataclasses.replace(self.method, anchor=Tether(state.weights[0], state.weights[1]))
        learnt, report = tethered.update(state.learnt, batch, key)
        seen = self.method.assessor().assess(state.learnt.network, state.learnt.scales, batch)
        before, now = (s.network.distributions(batch.memory, seen.view, seen.first) for s in (state.learnt, learnt))
        root, divergence = moved(before, now, seen)
        weights = self.adapted(state.weights, jnp.stack([root, divergence]))
        told = {"divergence": divergence, "root_weight": state.weights[0], "divergence_weight": state.weights[1]}
        return SurrogateState(learnt, weights), Report({**report.metrics, **told})

    def adapted(self, weights: Float[Array, "2"], went: Float[Array, "2"]) -> Float[Array, "2"]:
        """Weights after an update whose root and divergence ``went`` so far."""
        aim = jnp.stack([jnp.sqrt(jnp.asarray(self.aim, "float32")), jnp.asarray(self.aim, "float32")])
        weights = jnp.where(went < aim / 1.5, weights / 2.0, jnp.where(went > aim * 1.5, weights * 2.0, weights))
        return jnp.clip(weights, 1e-3 * self._first(), 1e3 * self._first())

    def _first(self) -> Float[Array, "2"]:
        return jnp.stack([jnp.asarray(w, "float32") for w in (self.first.root, self.first.divergence)])


class Decentralized(Crowd):
    """The surrogate for every agent by itself."""

    method: Surrogate = Surrogate()
    """By what each of them learns."""
    sharing: Sharing = Separate()
    """Parameters: Separate, or Shared by a group."""
    critics: Sight = Own()
    """What critics see: Own, what the agent sees."""

    name: ClassVar[str] = "decentralized"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Decentralized Policy Optimization", "Su and Lu", 2022, "arXiv:2211.03032"),
        *PPO.citations,
    )
    details: ClassVar[tuple[str, ...]] = (
        *PPO.details,
        "ratios are not clipped; two weights of the divergence from the policy before adapt to how far updates go",
        "what comes to an agent between two of its decisions belongs to the first; discounts count decisions",
    )
