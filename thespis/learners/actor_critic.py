"""The stochastic actor with a state-value critic that on-policy methods learn, with or without memory."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree

from thespis.actors.distributions import Distribution
from thespis.actors.heads import Gaussian, PolicyHead, act_rows, chances
from thespis.core.contracts import Mode
from thespis.core.records import Batch, Critique, EnvSpec, Transition, View
from thespis.critics.values import Value, for_critics, seen_by_critics
from thespis.learners.gradient import Number
from thespis.learners.networks import Network
from thespis.learners.normalisers import ObservationScale, RewardScale
from thespis.nets.body import GRU, Body, unroll
from thespis.nets.elstm import ELSTM
from thespis.nets.mlp import orthogonal
from thespis.nets.relations import Attention
from thespis.objectives.decisions import at_decisions
from thespis.objectives.returns import gae


class ActorCritic(eqx.Module):
    """Actor and critic with a body each.

    ``carried``: the critic sees what the actor sees, which carries its memory along. A critic that sees what is
    privileged begins every rollout without memory.
    """

    body: Body
    head: PolicyHead
    critic: Value
    carried: bool = eqx.field(static=True)

    def __init__(
        self,
        spec: EnvSpec,
        hidden: tuple[int, ...],
        key: Key[Array, ""],
        *,
        memory: GRU | ELSTM | None = None,
        activation: Callable[[Array], Array] = jnp.tanh,
        others: Attention | None = None,
    ):
        body_key, head_key, critic_key, value_key = jax.random.split(key, 4)

        def body(space, key):
            kind = {"activation": activation, "memory": memory, "others": others}
            return Body(space, hidden, key, init=orthogonal(2**0.5), **kind)

        self.carried = spec.privileged is None
        self.body = body(spec.observation, body_key)
        self.head = PolicyHead(spec.action, self.body.size, head_key, init=orthogonal(0.01), continuous=Gaussian())
        self.critic = Value(body(for_critics(spec).observation, critic_key), orthogonal(1.0), value_key)

    def begin(self, n: int) -> Any:
        """Memories of actor and critic for ``n`` fresh episodes."""
        return self.body.begin(n), self.critic.body.begin(n) if self.carried else ()

    def choose(self, memory: Any, view: View) -> tuple[Distribution, Any]:
        """The distribution over actions for one view, and the memories after it."""
        features, actor_memory = self.body(memory[0], view.observation)
        critic_memory = memory[1]
        if self.carried and self.critic.body.core is not None:
            _, critic_memory = self.critic.body(critic_memory, view.observation)
        return self.head(features, view.legal), (actor_memory, critic_memory)

    def distributions(self, memory: Any, views: View, first: Bool[Array, "time row"]) -> Distribution:
        """The distributions of a whole rollout, leaves ``[time, row, ...]``."""
        features, _ = unroll(self.body, self.body.resumed(memory[0]), views.observation, first)
        return jax.vmap(jax.vmap(self.head))(features, views.legal)

    def values(self, memory: Any, seen: PyTree, first: Bool[Array, "time row"]) -> tuple[Float[Array, "time row"], Any]:
        """State values of a whole rollout of what the critic sees, and its memory after each step."""
        begun = memory[1] if self.carried else self.critic.body.begin(first.shape[1])
        features, memories = unroll(self.critic.body, self.critic.body.resumed(begun), seen, first)
        return jax.vmap(jax.vmap(self.critic.out))(features)[..., 0], memories

    def next_values(self, memories: Any, seen: PyTree) -> Float[Array, "time row"]:
        """Values of what the critic truly sees next, each with the memory that leads to it."""
        return jax.vmap(jax.vmap(lambda memory, o: self.critic(memory, o)[0]))(memories, seen)


class OnPolicyActor(eqx.Module):
    """What an on-policy actor carries."""

    network: Network
    scale: PyTree
    observations: ObservationScale
    mode: Mode = eqx.field(static=True)

    def choose(self, memory: Any, view: View) -> tuple[Distribution, Any]:
        """The distribution over actions for one view as the world gives it, and the memories after it."""
        return self.network.choose(memory, View(self.observations.apply(self.scale, view.observation), view.legal))

    def act(self, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """Actions of all rows, memories after them, and the log-probabilities they were drawn with."""

        def one(memory, view, key):
            policy, memory = self.choose(memory, view)
            if self.mode is Mode.EXPLOIT:
                action = policy.mode()
                log_prob = policy.log_prob(action)
            else:
                action, log_prob = policy.sample_with_log_prob(key)
            return action, memory, {"log_prob": log_prob}

        return act_rows(one, memory, view, key)

    def probabilities(self, memory: Any, view: View) -> Float[Array, "row n"]:
        """Of every choice, in all rows. Raises ``UserError`` unless an action is one discrete choice."""

        def one(memory, view):
            return chances(self.choose(memory, view)[0], greedy=self.mode is Mode.EXPLOIT)

        return jax.vmap(one)(memory, view)


class Seen(eqx.Module):
    """A rollout as learning sees it: observations and rewards scaled, with its critic's values; ``[time, row, ...]``.

    ``next_value`` is that of the true next observation, also where an episode was truncated. ``alive``: where the actor
    decided (``None``: everywhere); what stands elsewhere takes no part in learning. ``told``: what only critics see.
    """

    view: View
    action: PyTree
    log_prob: Float[Array, "time row"]
    reward: Float[Array, "time row"]
    value: Float[Array, "time row"]
    next_value: Float[Array, "time row"]
    terminated: Bool[Array, "time row"]
    ended: Bool[Array, "time row"]
    first: Bool[Array, "time row"]
    alive: Bool[Array, "time row"] | None = None
    told: PyTree = None

    def judged(self, advantage: Float[Array, "time row"], target: Float[Array, "time row"]) -> Evaluated:
        """The rollout with a verdict."""
        verdict = self.log_prob, self.value, advantage, target
        return Evaluated(self.view, self.action, *verdict, self.first, self.alive, self.told)

    def estimated(self, objective: Callable[..., PyTree], *others: Float[Array, "time row"]) -> PyTree:
        """``objective(reward, value, next_value, terminated, ended, *others)`` of every row's decisions."""
        rows = (self.reward, self.value, self.next_value, self.terminated, self.ended, *others)
        over = jax.vmap(lambda alive, *row: at_decisions(objective, alive)(*row), in_axes=1, out_axes=1)
        return over(self.alive, *rows)


class Evaluated(eqx.Module):
    """A rollout with its critic's verdict; observations are scaled, all leaves ``[time, row, ...]``."""

    view: View
    action: PyTree
    log_prob: Float[Array, "time row"]
    value: Float[Array, "time row"]
    advantage: Float[Array, "time row"]
    target: Float[Array, "time row"]
    first: Bool[Array, "time row"]
    alive: Bool[Array, "time row"] | None = None
    told: PyTree = None


Scales = tuple[PyTree, PyTree, PyTree]
"""States of the scaling of observations, of rewards, and of what only critics see."""


class Assessor(eqx.Module):
    """How a rollout is evaluated: scales, and generalised advantages (Schulman et al., 2016)."""

    observations: ObservationScale
    rewards: RewardScale
    discount: Number
    trace: Number

    def begin_scales(self, spec: EnvSpec) -> Scales:
        """Fresh scales."""
        told = () if spec.privileged is None else self.observations.init(spec.privileged)
        return self.observations.init(spec.observation), self.rewards.init(), told

    def see(self, network: Network, scales: Scales, batch: Batch) -> Seen:
        """Every step, scaled, with the values of both its ends."""
        steps = batch.steps
        view, alive = View(self._scaled(scales[0], steps.view.observation), steps.view.legal), steps.view.alive
        following = self._scaled(scales[0], steps.next_view.observation)
        told, next_told = (self._scaled(scales[2], x) for x in (steps.privileged, steps.next_privileged))
        value, memories = network.values(batch.memory, seen_by_critics(told, view.observation), steps.first)
        next_value = network.next_values(memories, seen_by_critics(next_told, following))
        reward, log_prob = self.rewards.apply(scales[1], steps.reward), steps.extras["log_prob"]
        ends = steps.terminated, steps.ended
        return Seen(view, steps.action, log_prob, reward, value, next_value, *ends, steps.first, alive, told)

    def _scaled(self, scale: PyTree, seen: PyTree) -> PyTree:
        return None if seen is None else jax.vmap(jax.vmap(lambda o: self.observations.apply(scale, o)))(seen)

    def assess(self, network: Network, scales: Scales, batch: Batch) -> Evaluated:
        """Values, advantages and value targets of every step."""
        seen = self.see(network, scales, batch)
        advantage = self.ahead(seen)
        return seen.judged(advantage, seen.value + advantage)

    def ahead(self, seen: Seen) -> Float[Array, "time row"]:
        """Generalised advantages of every step."""
        return seen.estimated(functools.partial(gae, discount=self.discount, trace=self.trace))

    def learn_scales(self, scales: Scales, batch: Batch) -> Scales:
        """Scales with this rollout added. Called after learning, so that learning sees what acting saw."""
        steps, alive = batch.steps, batch.steps.view.alive
        mask = batch.mask if alive is None else batch.mask & alive
        return (
            self.observations.update(scales[0], steps.view.observation, mask),
            self.rewards.update(scales[1], steps.reward, steps.ended, self.discount, alive),
            () if steps.privileged is None else self.observations.update(scales[2], steps.privileged, mask),
        )

    def judge(self, network: Network, scales: Scales, episode: Transition) -> Critique:
        """Values and advantages of one episode ``[time]``, in the world's units of reward."""
        steps = jax.tree.map(lambda x: x[:, None], episode)
        mask = jnp.ones(steps.reward.shape, bool)
        steps = eqx.tree_at(lambda s: s.extras, steps, {"log_prob": jnp.zeros(steps.reward.shape)})
        batch = Batch(steps, mask, network.begin(1), jnp.zeros((), "int32"))
        verdict = self.assess(network, scales, batch)
        unit = self.rewards.unit(scales[1])
        value, advantage = verdict.value[:, 0] * unit, verdict.advantage[:, 0] * unit
        return Critique(value=value, advantage=advantage, discount=self.discount)
