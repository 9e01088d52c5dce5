r"""A2C that learns its own discount: the meta-gradient of an outer objective, whose discount is fixed.

A step of A2C under the discount :math:`\gamma(\eta)` leads to :math:`\theta'`, which plays the next rollout. What that
rollout says of :math:`\theta'` by advantages under the outer discount, differentiated through the step, moves
:math:`\eta`; then it is what the next step learns from. With ``OneHead`` these advantages come from the critic of the
learnt discount, which undervalues what is far off and so favours discounts under which that goes on; ``TwoHeads``
learns a critic under the outer discount for them.

Source: Bonnet et al., 2022 (abstract and the authors' code read, not the paper's text), on Xu et al., 2018 (not read).
Sizes are those of their run on Snake; nets, worlds and RMSProp are A2C's here. Differs from their code: the rollout
learnt from next serves the outer objective, theirs is drawn for it and thrown away; nets are not told the discount.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.feeds import Rollouts
from thespis.core.keys import fold
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Report, Transition, View
from thespis.learners.actor_critic import ActorCritic, Assessor, Evaluated, OnPolicyActor, Scales, Seen
from thespis.learners.gradient import Adam, Number
from thespis.learners.meta_gradient import Bounded, Outer, TwoHeads, along, followed, inner_loss, meta_step, outer_slope
from thespis.learners.on_policy import OnPolicyState
from thespis.methods.online.a2c import A2C
from thespis.objectives.normalise import mean
from thespis.objectives.returns import gae


class MetaState(eqx.Module):
    """All that is learnt; ``number`` stands for the discount, ``tangent`` is how it moved the network last."""

    network: ActorCritic
    outer: PyTree
    opt: PyTree
    scales: Scales
    number: Float[Array, ""]
    meta_opt: PyTree
    tangent: ActorCritic


class MetaA2C(eqx.Module):
    """A2C with a learnt discount; any tree of actions, without memory."""

    method: A2C = A2C(learning_rate=5e-4, discount=0.8, trace=0.95, entropy_weight=0.01, max_gradient_norm=1e9)
    """What learns; its discount is the first one."""
    outer: Outer = TwoHeads()
    """Whose values the outer objective is told: TwoHeads or OneHead."""
    bounds: Bounded = Bounded()
    """Between which discounts one is learnt: Bounded."""
    discount: Number = 1.0
    """Discount of the outer objective, in [0, 1]."""
    outer_trace: Number = 1.0
    """Lambda of the outer objective's advantages, and of the outer critic's targets, in [0, 1]."""
    outer_entropy_weight: Number = 0.0
    """Weight of the entropy in the outer objective."""
    meta_learning_rate: Number = 3e-3
    """Step size of Adam for the number that stands for the discount."""
    max_meta_gradient: Number = 0.1
    """Largest size of its gradient."""

    name: ClassVar[str] = "meta-a2c"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Debiasing Meta-Gradient Reinforcement Learning by Learning the Outer Value Function",
                 "Bonnet et al.", 2022, "arXiv:2211.10550"),
        Citation("Meta-Gradient Reinforcement Learning", "Xu et al.", 2018, "arXiv:1805.09801"),
        *A2C.citations,
    )  # fmt: skip
    details: ClassVar[tuple[str, ...]] = (*A2C.details, "every rollout is first the outer one, then the inner one")

    @property
    def feed(self) -> Rollouts:
        """What A2C eats."""
        return self.method.feed

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> MetaState:
        """Fresh networks, and the first discount. Raises ``UserError`` for a method with memory."""
        if self.method.memory is not None:
            raise UserError("meta-a2c has no memory: leave out method.memory")
        state, other = (self.method.init(spec, k) for k in (key, fold(key, "outer")))
        network, fresh = state.network, other.network
        assert isinstance(network, ActorCritic) and isinstance(fresh, ActorCritic)
        outer = self.outer.init(fresh)
        number = self.bounds.number(self.method.discount)
        opt, meta_opt = self.method.stepper().init((network, outer)), self._meta().init(number)
        return MetaState(network, outer, opt, state.scales, number, meta_opt, jax.tree.map(jnp.zeros_like, network))

    def policy(self, state: MetaState, mode: Mode) -> OnPolicyActor:
        """A2C's."""
        return self.method.policy(OnPolicyState(state.network, (), state.scales), mode)

    def begin(self, policy: OnPolicyActor, n: int) -> Any:
        """No memory."""
        return self.method.begin(policy, n)

    def act(self, policy: OnPolicyActor, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """As A2C acts."""
        return self.method.act(policy, memory, view, key)

    def judge(self, state: MetaState, episode: Transition) -> Critique:
        """Values under the outer discount, or under the learnt one where they are all there is."""
        discount = self.discount if self.outer.learns else self.bounds.discount(state.number)
        assessor = dataclasses.replace(self._outer(), discount=discount)
        return assessor.judge(self.outer.judging(state.network, state.outer), state.scales, episode)

    def update(self, state: MetaState, batch: Batch, key: Key[Array, ""]) -> tuple[MetaState, Report]:
        """What the rollout says of the step before; then a step on it."""
        judging = self.outer.judging(state.network, state.outer)
        verdict = self._outer().assess(judging, state.scales, batch)
        slope = outer_slope(state.network, batch.memory, verdict, self.outer_entropy_weight)
        meta_gradient = along(slope, state.tangent)
        number, meta_opt = meta_step(state.number, state.meta_opt, meta_gradient, self._meta())

        seen = self.method.assessor().see(state.network, state.scales, batch)
        stepped = functools.partial(self._stepped, state, batch, seen, verdict)
        (network, outer), (tangent, _), (opt, metrics) = followed(stepped, number)
        metrics |= {"discount": self.bounds.discount(number), "meta_gradient": meta_gradient}
        metrics |= {"outer_advantage": mean(verdict.advantage, verdict.alive)}
        scales = self.method.assessor().learn_scales(state.scales, batch)
        return MetaState(network, outer, opt, scales, number, meta_opt, tangent), Report(metrics)

    def _stepped(
        self, state: MetaState, batch: Batch, seen: Seen, outer: Evaluated, number: Float[Array, ""]
    ) -> tuple[tuple[ActorCritic, PyTree], Any]:
        """Networks after a step under the discount that ``number`` stands for; nothing is held back from it."""
        discount = self.bounds.discount(number)
        advantage = seen.estimated(functools.partial(gae, discount=discount, trace=self.method.trace))
        weights, networks = (self.method.value_weight, self.method.entropy_weight), (state.network, state.outer)

        def loss(networks: tuple[ActorCritic, PyTree]) -> tuple[Array, dict[str, Array]]:
            return inner_loss(networks, self.outer, batch.memory, seen, advantage, outer.target, weights)

        gradient, metrics = jax.grad(loss, has_aux=True)(networks)
        updates, opt = self.method.stepper().transform().update(gradient, state.opt, networks)
        return jax.tree.map(jnp.add, networks, updates), (opt, metrics)

    def _outer(self) -> Assessor:
        return dataclasses.replace(self.method.assessor(), discount=self.discount, trace=self.outer_trace)

    def _meta(self) -> Adam:
        return Adam(self.meta_learning_rate, self.max_meta_gradient)
