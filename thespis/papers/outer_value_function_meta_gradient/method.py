r"""Meta-gradient A2C: learns its own discount by the gradient of an outer objective with a fixed discount.

A step of A2C under the discount :math:`\gamma(\eta)` leads to :math:`\theta'`, which acts in the next rollout. The
outer objective on that rollout, with advantages under the outer discount, is differentiated through the step and
updates :math:`\eta`; the same rollout is then used for the next step of A2C. With ``SharedCritic`` these advantages
come from the critic of the learned discount, which undervalues distant rewards and so favors discounts that keep doing
so; ``SeparateCritic`` learns a critic under the outer discount for them.

Source: Bonnet et al., 2022 (abstract and the authors' code read, not the paper's text), on Xu et al., 2018 (not read).
Hyperparameters are those of their run on Snake; networks, environments and RMSProp are A2C's here.

Differs from their code: the next training rollout serves the outer objective, theirs is collected for it and discarded;
networks do not get the discount as input.
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
from thespis.core.feeds import RolloutFeed
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Number, Report, Transition, View
from thespis.learners.on_policy.actor_critic import (
    ActorCritic,
    NormalizerStates,
    OnPolicyActor,
    RolloutProcessor,
    RolloutWithAdvantages,
    RolloutWithValues,
)
from thespis.learners.on_policy.method import OnPolicyState
from thespis.learners.optim.optimizers import Adam
from thespis.methods.online.a2c import A2C
from thespis.objectives.returns import gae
from thespis.objectives.statistics import masked_mean
from thespis.papers.outer_value_function_meta_gradient.meta_gradient import (
    DiscountBounds,
    OuterCritic,
    SeparateCritic,
    inner_loss,
    meta_step,
    outer_gradient,
    step_with_tangent,
    tree_vdot,
)
from thespis.runtime.keys import fold


class MetaA2CState(eqx.Module):
    """Training state of meta-gradient A2C.

    ``discount_logit`` parameterizes the discount; ``discount_tangent`` is the derivative of the network's last step
    with respect to it.
    """

    network: ActorCritic
    outer_critic: PyTree
    opt_state: PyTree
    normalizer_states: NormalizerStates
    discount_logit: Float[Array, ""]
    meta_opt_state: PyTree
    discount_tangent: ActorCritic


class MetaA2C(eqx.Module):
    """Meta-gradient A2C: on-policy actor-critic that learns its discount; any action space, without memory."""

    method: A2C = A2C(learning_rate=5e-4, discount=0.8, gae_lambda=0.95, ent_coef=0.01, max_grad_norm=1e9)
    """A2C that learns; its discount is the initial one."""
    outer_critic: OuterCritic = SeparateCritic()
    """Critic of the outer objective: SeparateCritic or SharedCritic."""
    discount_bounds: DiscountBounds = DiscountBounds()
    """Bounds of the learned discount: DiscountBounds."""
    outer_discount: Number = 1.0
    """Discount factor of the outer objective, in [0, 1]."""
    outer_gae_lambda: Number = 1.0
    """Lambda of the outer objective's advantages, and of the outer critic's targets, in [0, 1]."""
    outer_ent_coef: Number = 0.0
    """Entropy coefficient of the outer objective."""
    meta_learning_rate: Number = 3e-3
    """Learning rate of Adam for the discount's logit."""
    max_meta_grad_norm: Number = 0.1
    """Maximum absolute gradient of the discount's logit; larger gradients are clipped."""

    name: ClassVar[str] = "meta-a2c"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "Debiasing Meta-Gradient Reinforcement Learning by Learning the Outer Value Function",
            "Bonnet et al.",
            2022,
            "arXiv:2211.10550",
        ),
        Citation("Meta-Gradient Reinforcement Learning", "Xu et al.", 2018, "arXiv:1805.09801"),
        *A2C.citations,
    )
    details: ClassVar[tuple[str, ...]] = (
        *A2C.details,
        "every rollout serves the outer objective first, then the inner update",
    )

    @property
    def feed(self) -> RolloutFeed:
        """Feed of the wrapped A2C."""
        return self.method.feed

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> MetaA2CState:
        """Initialize networks and discount. Raises ``UserError`` for a method with memory."""
        if self.method.memory is not None:
            raise UserError("meta-a2c has no memory: leave out method.memory")
        state, other = (self.method.init(spec, k) for k in (key, fold(key, "outer")))
        network, other_network = state.network, other.network
        assert isinstance(network, ActorCritic) and isinstance(other_network, ActorCritic)
        outer_critic = self.outer_critic.init(other_network)
        discount_logit = self.discount_bounds.to_logit(self.method.discount)
        opt_state, meta_opt_state = (
            self.method.make_optimizer().init((network, outer_critic)),
            self._make_meta_optimizer().init(discount_logit),
        )
        return MetaA2CState(
            network,
            outer_critic,
            opt_state,
            state.normalizer_states,
            discount_logit,
            meta_opt_state,
            jax.tree.map(jnp.zeros_like, network),
        )

    def policy(self, state: MetaA2CState, mode: Mode) -> OnPolicyActor:
        """Policy of the wrapped A2C."""
        return self.method.policy(OnPolicyState(state.network, (), state.normalizer_states), mode)

    def init_memory(self, policy: OnPolicyActor, n: int) -> Any:
        """The memory at an episode's start: nothing is remembered yet."""
        return self.method.init_memory(policy, n)

    def act(self, policy: OnPolicyActor, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """Act with the wrapped A2C."""
        return self.method.act(policy, memory, view, key)

    @property
    def discount(self) -> Number:
        """Discount of the outer objective, under which values are judged."""
        return self.outer_discount

    def judge(self, state: MetaA2CState, episode: Transition) -> Critique:
        """Values under the outer discount, or under the learned one if there is no separate critic."""
        discount = (
            self.outer_discount
            if self.outer_critic.has_critic
            else self.discount_bounds.from_logit(state.discount_logit)
        )
        processor = dataclasses.replace(self._outer_assessor(), discount=discount)
        return processor.judge(
            self.outer_critic.outer_network(state.network, state.outer_critic), state.normalizer_states, episode
        )

    def update(self, state: MetaA2CState, batch: Batch, key: Key[Array, ""]) -> tuple[MetaA2CState, Report]:
        """Meta-gradient step of the discount on this rollout, then one step of A2C on it."""
        outer_network = self.outer_critic.outer_network(state.network, state.outer_critic)
        outer_rollout = self._outer_assessor().compute_advantages(outer_network, state.normalizer_states, batch)
        gradient = outer_gradient(state.network, batch.memory, outer_rollout, self.outer_ent_coef)
        meta_gradient = tree_vdot(gradient, state.discount_tangent)
        discount_logit, meta_opt_state = meta_step(
            state.discount_logit, state.meta_opt_state, meta_gradient, self._make_meta_optimizer()
        )

        rollout = self.method.rollout_processor().compute_values(state.network, state.normalizer_states, batch)
        step = functools.partial(self._inner_update, state, batch, rollout, outer_rollout)
        (network, outer_critic), (tangent, _), (opt_state, metrics) = step_with_tangent(step, discount_logit)
        metrics |= {"discount": self.discount_bounds.from_logit(discount_logit), "meta_gradient": meta_gradient}
        metrics |= {"outer_advantage": masked_mean(outer_rollout.advantage, outer_rollout.alive)}
        normalizer_states = self.method.rollout_processor().update_normalizers(state.normalizer_states, batch)
        return MetaA2CState(
            network, outer_critic, opt_state, normalizer_states, discount_logit, meta_opt_state, tangent
        ), Report(metrics)

    def _inner_update(
        self,
        state: MetaA2CState,
        batch: Batch,
        rollout: RolloutWithValues,
        outer_rollout: RolloutWithAdvantages,
        discount_logit: Float[Array, ""],
    ) -> tuple[tuple[ActorCritic, PyTree], Any]:
        """Networks after one A2C step under the discount of ``discount_logit``; differentiable with respect to it."""
        discount = self.discount_bounds.from_logit(discount_logit)
        advantage = rollout.estimate_advantages(
            functools.partial(gae, discount=discount, gae_lambda=self.method.gae_lambda)
        )
        weights, networks = (self.method.vf_coef, self.method.ent_coef), (state.network, state.outer_critic)

        def loss(networks: tuple[ActorCritic, PyTree]) -> tuple[Array, dict[str, Array]]:
            return inner_loss(
                networks, self.outer_critic, batch.memory, rollout, advantage, outer_rollout.target, weights
            )

        gradient, metrics = jax.grad(loss, has_aux=True)(networks)
        updates, opt = self.method.make_optimizer().transform().update(gradient, state.opt_state, networks)
        return jax.tree.map(jnp.add, networks, updates), (opt, metrics)

    def _outer_assessor(self) -> RolloutProcessor:
        return dataclasses.replace(
            self.method.rollout_processor(), discount=self.outer_discount, gae_lambda=self.outer_gae_lambda
        )

    def _make_meta_optimizer(self) -> Adam:
        return Adam(self.meta_learning_rate, self.max_meta_grad_norm)
