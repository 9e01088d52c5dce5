"""TemplateMethod: REINFORCE with normalized returns, to start from.

Equation: the gradient of ``E[log pi(a|s) (G - mean G) / std G]``, with ``G`` the discounted return (Williams, 1992).
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.actors.distributions import Distribution
from thespis.actors.policy_heads import Gaussian, PolicyHead, vmap_act
from thespis.core.contracts import Mode
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Report, Transition, View
from thespis.data.feeds import Rollouts
from thespis.learners.optim.optimizers import Adam, gradient_step
from thespis.nets.body import Body
from thespis.nets.mlp import orthogonal
from thespis.objectives.returns import lambda_returns
from thespis.objectives.statistics import masked_mean, standardize


class Network(eqx.Module):
    """Policy network: one view to a distribution of actions."""

    body: Body
    head: PolicyHead

    def __init__(self, spec: EnvSpec, hidden_sizes: tuple[int, ...], key: Key[Array, ""]):
        body_key, head_key = jax.random.split(key)
        self.body = Body(spec.observation_space, hidden_sizes, body_key, init=orthogonal(2**0.5), activation=jnp.tanh)
        self.head = PolicyHead(
            spec.action_space, self.body.feature_size, head_key, init=orthogonal(0.01), continuous_head=Gaussian()
        )

    def __call__(self, view: View) -> Distribution:
        """The distribution of actions in one view."""
        features, _ = self.body((), view.observation)
        return self.head(features, view.action_mask)


class State(eqx.Module):
    """Everything that learning changes."""

    network: Network
    opt_state: PyTree


class Policy(eqx.Module):
    """What an actor needs of the state."""

    network: Network
    mode: Mode = eqx.field(static=True)


class TemplateMethod(eqx.Module):
    """REINFORCE: policy gradient with discounted returns, normalized over the batch."""

    learning_rate: float = 3e-3
    """Learning rate."""
    discount: float = 0.99
    """Discount per step, in [0, 1]."""
    hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=(64,))
    """Units of each hidden layer."""
    feed: Rollouts = eqx.field(static=True, default=Rollouts(num_steps=200, num_envs=4))
    """Rollouts: num_steps, num_envs."""

    name: ClassVar[str] = "template-method"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Simple statistical gradient-following algorithms", "Williams", 1992, "10.1007/BF00992696"),
    )
    details: ClassVar[tuple[str, ...]] = ("returns are cut at the end of a rollout",)

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> State:
        """The initial training state for an environment."""
        network = Network(spec, self.hidden_sizes, key)
        return State(network, Adam(self.learning_rate).init(network))

    def policy(self, state: State, mode: Mode) -> Policy:
        """The part of the state that acts."""
        return Policy(state.network, mode)

    def init_memory(self, policy: Policy, n: int) -> tuple[()]:
        """No recurrent memory."""
        return ()

    def act(self, policy: Policy, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """Actions of ``n`` environments: sampled, or the most probable ones in greedy mode."""

        def act_one(memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
            distribution = policy.network(view)
            return distribution.mode() if policy.mode is Mode.EXPLOIT else distribution.sample(key), memory, ()

        return vmap_act(act_one, memory, view, key)

    def judge(self, state: State, episode: Transition) -> Critique:
        """There is no critic."""
        return Critique()

    def update(self, state: State, batch: Batch, key: Key[Array, ""]) -> tuple[State, Report]:
        """One step on the policy gradient; steps ``[time, row]`` count where ``batch.mask`` is true."""
        steps, zeros = batch.steps, jnp.zeros_like(batch.steps.reward)
        returns = jax.vmap(lambda_returns, in_axes=(1, 1, 1, 1, None, None), out_axes=1)(
            steps.reward, zeros, steps.terminated, steps.done, self.discount, 1.0
        )
        advantage = standardize(returns, batch.mask)

        def loss(network: Network) -> tuple[Float[Array, ""], tuple[()]]:
            log_prob = jax.vmap(jax.vmap(lambda view, action: network(view).log_prob(action)))(steps.view, steps.action)
            return -masked_mean(log_prob * advantage, batch.mask), ()

        network, opt_state, _, norm = gradient_step(Adam(self.learning_rate), loss, state.network, state.opt_state)
        return State(network, opt_state), Report({"gradient_norm": norm, "return": masked_mean(returns, batch.mask)})


def test_laws() -> None:
    """The method keeps the laws of its contract, for discrete and continuous actions: ``pytest template_method.py``."""
    from thespis.core.laws.components import check_method
    from thespis.envs import registry

    for env in ("probe:constant", "probe:constant-continuous"):
        check_method(TemplateMethod(), registry.make_compiled(env).spec)
