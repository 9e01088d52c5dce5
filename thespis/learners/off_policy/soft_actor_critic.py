"""Soft actor-critic: entropy-regularized actor step, soft values, and the shared base of such methods.

A concrete method adds its fields, its critics and an ``update``; nothing here is overridden.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.actors.policy_heads import vmap_act
from thespis.actors.state_dependent_noise import renew_noise
from thespis.actors.stochastic import DEFAULT_POLICY_HEAD, SoftPolicy, StochasticActor
from thespis.core.contracts import Mode
from thespis.core.records import Critique, Number, Transition, View
from thespis.critics.value_functions import QFunction, critic_observation, evaluate_ensemble
from thespis.learners.optim.normalizers import IDENTITY, ObsNormalizer
from thespis.learners.optim.optimizers import Optimizer, gradient_step
from thespis.objectives.statistics import masked_mean
from thespis.runtime.keys import seed_key

Actor = TypeVar("Actor", bound=StochasticActor)
QValueFn = Callable[[PyTree, PyTree], Float[Array, " k"]]
"""Q-value function: values of ``k`` actions for one observation."""
PolicyPenalty = Callable[[Any, View], Float[Array, ""]]
"""Penalty on the policy's distribution in one view, subtracted from the actor's objective."""
ActionSamples = tuple[PyTree, Float[Array, " k"], Float[Array, " k"]]
"""Actions, their weights, their log-probabilities: see :mod:`thespis.actors.distributions`."""
ActionSampler = Callable[[Any, Key[Array, ""]], ActionSamples]
"""Draws action samples from a distribution."""
ActorObjective = Callable[[Float[Array, " k"], Float[Array, " k"], Float[Array, " k"]], Float[Array, ""]]
"""Actor objective in one view, from the samples' weights, Q-values and entropy bonuses."""
ActionEvaluation = tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""] | None, Float[Array, ""]]
"""Value and advantage of one action, standard deviation over the critics (``None`` if there is one), entropy bonus."""


@runtime_checkable
class SoftActorCriticState(Protocol):
    """Interface of the training state that every soft actor-critic has."""

    @property
    def actor(self) -> StochasticActor:
        """The stochastic actor that acts and is trained."""
        ...

    @property
    def obs_normalizer_state(self) -> PyTree:
        """State of the observation normalizer."""
        ...

    @property
    def num_updates(self) -> Int[Array, ""]:
        """Number of updates so far."""
        ...


class SoftActorCritic(eqx.Module):
    """Base of soft actor-critic methods: acting, and evaluation of actions and episodes."""

    discount: Number = 0.99
    """Discount per step, in [0, 1]."""
    obs_normalizer: ObsNormalizer | None = None
    """Normalization of observations: None or RunningMeanStd."""

    @abc.abstractmethod
    def evaluate_action(
        self, state: Any, view: View, privileged: PyTree, actions: PyTree, key: Key[Array, ""]
    ) -> ActionEvaluation:
        """Evaluate the action taken in one normalized view, in the environment's units of reward.

        ``privileged`` is what only critics see there, or ``None``; ``actions`` holds the action on an axis of size 1.
        """

    def policy(self, state: SoftActorCriticState, mode: Mode) -> SoftPolicy:
        """The part that actors carry: actor, normalizer state and mode; random actions before the first update."""
        return SoftPolicy(state.actor, state.obs_normalizer_state, state.num_updates == 0, mode)

    def init_memory(self, policy: SoftPolicy, n: int) -> Any:
        """The memory of ``n`` fresh episodes: exploration noise that outlasts a step, else empty."""
        return policy.init_memory(n)

    def act(self, policy: SoftPolicy, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """Sample an action, or take the mode of the distribution in ``Mode.EXPLOIT``."""

        def act_single(memory, view, key):
            if policy.mode is not Mode.EXPLOIT:
                memory = renew_noise(memory, key)
            return policy(self.normalize_view(policy.obs_normalizer_state, view), key, memory), memory, ()

        return vmap_act(act_single, memory, view, key)

    def judge(self, state: SoftActorCriticState, episode: Transition) -> Critique:
        """Q-values of one episode ``[time]``, their advantage over the state value, and the spread over critics."""

        def evaluate_step(view, privileged, action, key):
            actions = jax.tree.map(lambda x: x[None], action)
            return self.evaluate_action(
                state, self.normalize_view(state.obs_normalizer_state, view), privileged, actions, key
            )

        keys = jax.random.split(seed_key(0), episode.reward.shape[0])
        value, advantage, spread, bonus = jax.vmap(evaluate_step)(
            episode.view, episode.privileged, episode.action, keys
        )
        return Critique(value, advantage, spread, discount=self.discount, entropy_bonus=bonus)

    def normalize_view(self, obs_normalizer_state: PyTree, view: View) -> View:
        """One view with its observation normalized, as the networks see it."""
        return View(
            (self.obs_normalizer or IDENTITY).normalize(obs_normalizer_state, view.observation), view.action_mask
        )


def ensemble_min(critics: QFunction) -> QValueFn:
    """Minimum over the members of a critic ensemble, against overestimation (Fujimoto et al., 2018)."""
    return lambda observation, actions: jnp.min(evaluate_ensemble(critics, observation, actions), axis=0)


def action_samples(distribution: Any, key: Key[Array, ""]) -> ActionSamples:
    """Draw action samples as the distribution itself does."""
    return distribution.action_samples(key)


def soft_value(
    actor: StochasticActor,
    q_fn: QValueFn,
    alpha: Float[Array, ""],
    view: View,
    key: Key[Array, ""],
    privileged: PyTree = None,
    action_sampler: ActionSampler = action_samples,
    actor_objective: ActorObjective = DEFAULT_POLICY_HEAD.actor_objective,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Soft state value ``E_a[Q(o, a) - alpha log pi(a|o)]`` of one view, and the actor's entropy there in nats.

    Both are exact sums for a discrete choice, and use one reparameterized sample for a continuous action.
    ``privileged`` is what critics see in place of the observation. With another ``actor_objective`` the first result is
    that objective of the samples.
    """
    actions, weights, log_probs = action_sampler(actor(view), key)
    q = q_fn(critic_observation(privileged, view.observation), actions)
    return actor_objective(weights, q, -alpha * log_probs), -jnp.sum(weights * log_probs)


def actor_step(
    optimizer: Optimizer,
    actor: Actor,
    opt_state: PyTree,
    q_fn: QValueFn,
    alpha: Float[Array, ""],
    views: View,
    keys: Key[Array, " row"],
    privileged: PyTree = None,
    alive: Bool[Array, " row"] | None = None,
    policy_penalty: PolicyPenalty | None = None,
    action_sampler: ActionSampler = action_samples,
    actor_objective: ActorObjective = DEFAULT_POLICY_HEAD.actor_objective,
) -> tuple[Actor, PyTree, tuple[Float[Array, " row"], Float[Array, ""]], Float[Array, ""]]:
    """Update the actor by one gradient step on the mean soft value of ``views`` ``[row, ...]`` where ``alive`` is true.

    ``policy_penalty`` of its distribution in a view is subtracted from the objective, not from the value returned.
    Returns the actor, the optimizer state, soft values and mean entropy before the step, and the gradient norm.
    """

    def loss(actor):
        def single_value(view, key, privileged):
            return soft_value(actor, q_fn, alpha, view, key, privileged, action_sampler, actor_objective)

        values, entropy = jax.vmap(single_value)(views, keys, privileged)
        result = -masked_mean(values, alive), (values, masked_mean(entropy, alive))
        if policy_penalty is None:
            return result
        penalty = jax.vmap(lambda view, cost=policy_penalty: cost(actor(view), view))(views)
        return result[0] + masked_mean(penalty, alive), result[1]

    return gradient_step(optimizer, loss, actor, opt_state)
