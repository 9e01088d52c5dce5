"""Joint actor-critic: a team as one agent, with a joint observation, a joint action and a centralized critic.

What acting sampled besides the action is stored, as integers, in the observations that the update sees, so that
probability ratios start at 1: ``chance``, the seed from which the dependency graph is drawn, and ``kept``, which of its
edges were not dropped.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.actors.distributions import ProductDistribution
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, Transition, View
from thespis.core.spaces import Discrete, MultiDiscrete, dict_space
from thespis.critics.critic_inputs import joint_observation, joint_space
from thespis.critics.value_functions import StateValue
from thespis.learners.multi_agent.independent_learners import require_multi_agent
from thespis.learners.optim.normalizers import AnyObsNormalizer
from thespis.nets.body import Body, unroll
from thespis.nets.mlp import orthogonal
from thespis.papers.bayesian_joint_policy.graph_policy import (
    BayesianNetworkPolicy,
    DependencyGraph,
    num_actions_per_agent,
)
from thespis.runtime.keys import seed_key

MAX_SEED = 2**31 - 1


def joint_spec(spec: EnvSpec) -> EnvSpec:
    """Environment spec of a team that acts as one agent.

    Raises ``UserError`` for games, and unless each agent has one discrete action.
    """
    require_multi_agent(spec)
    if spec.game is not None:
        raise UserError(f"this method is for teams with a shared reward, but {spec.name} is a game: use ippo")
    num_actions = num_actions_per_agent(spec)
    if not all(num_actions):
        raise UserError(
            f"this method needs one discrete choice of each agent, {spec.name} has {spec.action_space}: use mappo"
        )
    action_space = MultiDiscrete(num_actions)
    observation_space = dict_space(
        chance=Discrete(MAX_SEED),
        done=action_space,
        kept=MultiDiscrete((2,) * len(num_actions) ** 2),
        seen=joint_observation_space(spec),
    )
    return EnvSpec(spec.name, observation_space, action_space, privileged_space=joint_space(spec))


def joint_observation_space(spec: EnvSpec) -> Any:
    """Space of all agents' observations, without the state that only critics see."""
    return joint_space(EnvSpec(spec.name, spec.observation_space, spec.action_space, groups=spec.groups))


class JointActorCritic(eqx.Module):
    """Actor whose agents choose along a dependency graph, and a critic of the joint state."""

    actor: BayesianNetworkPolicy
    critic: StateValue

    def __init__(self, spec: EnvSpec, graph: Any, hidden_sizes: tuple[int, ...], key: Key[Array, ""]):
        actor_key, critic_key, value_key = jax.random.split(key, 3)
        self.actor = BayesianNetworkPolicy(spec, joint_observation_space(spec), graph, hidden_sizes, actor_key)
        body = Body(joint_space(spec), hidden_sizes, critic_key, init=orthogonal(2**0.5), activation=jnp.tanh)
        self.critic = StateValue(body, orthogonal(1.0), value_key)

    def init_memory(self, n: int) -> Any:
        """An empty memory: the policy is memoryless."""
        return ()

    def graph(self, observation: PyTree, *, greedy: bool = False) -> DependencyGraph:
        """Dependency graph for one observation, without the dropped edges.

        It is sampled with the observation's ``chance`` as seed, or the most likely one if ``greedy``.
        """
        full_graph = self.actor.graph_sampler(
            observation["seen"], seed_key(observation["chance"]), 0.0 if greedy else 1.0
        )
        return full_graph * observation["kept"].reshape(full_graph.shape)

    def action_distribution(self, memory: Any, view: View) -> tuple[ProductDistribution, Any]:
        """Distribution of each agent's action, given its parents' actions as stored in the observation."""
        observation = view.observation
        return self.actor.conditional_distribution(
            self.graph(observation), observation["seen"], view.action_mask, observation["done"]
        ), memory

    def distributions(self, memory: Any, views: View, is_first: Bool[Array, "time row"]) -> ProductDistribution:
        """Action distributions of a whole rollout."""
        return jax.vmap(jax.vmap(lambda view: self.action_distribution((), view)[0]))(views)

    def values(
        self, memory: Any, critic_observation: PyTree, is_first: Bool[Array, "time row"]
    ) -> tuple[Float[Array, "time row"], Any]:
        """State values of a whole rollout."""
        features, memories = unroll(self.critic.body, (), critic_observation, is_first)
        return jax.vmap(jax.vmap(self.critic.out))(features)[..., 0], memories

    def next_values(self, memories: Any, next_critic_observation: PyTree) -> Float[Array, "time row"]:
        """Values of the next states."""
        return jax.vmap(jax.vmap(lambda o: self.critic((), o)[0]))(next_critic_observation)

    def evaluate(
        self, memory: Any, views: View, critic_observation: PyTree, is_first: Bool[Array, "time row"]
    ) -> tuple[ProductDistribution, Float[Array, "time row"]]:
        """Action distributions and state values of a whole rollout."""
        return self.distributions(memory, views, is_first), self.values(memory, critic_observation, is_first)[0]


class JointActor(eqx.Module):
    """Actor of a team whose agents choose in turn; ``edge_keep_prob`` is the probability of keeping an edge."""

    network: JointActorCritic
    obs_normalizer_state: PyTree
    obs_normalizer: AnyObsNormalizer
    edge_keep_prob: Float[Array, ""]
    mode: Mode = eqx.field(static=True)

    def act(self, view: View, key: Key[Array, ""]) -> tuple[dict[str, Array], dict[str, Array]]:
        """Actions of all agents in one environment, ``[agent]`` by group, and what was sampled for them.

        The latter are the log-probability, the seed of the graph and the mask of kept edges.
        """
        actor, greedy = self.network.actor, self.mode is Mode.EXPLOIT
        chance_key, edge_key, key = jax.random.split(key, 3)
        num_agents = len(actor.num_actions)
        chance = jax.random.randint(chance_key, (), 0, MAX_SEED, "int32")
        uniforms = (
            jnp.full((num_agents, num_agents), 0.5)
            if greedy
            else jax.random.uniform(edge_key, (num_agents, num_agents))
        )
        kept_edges = edge_mask(actor, view, uniforms < self.edge_keep_prob)
        observation = {"chance": chance, "done": jnp.zeros(num_agents, "int32"), "kept": kept_edges}
        observation = self.obs_normalizer.normalize(
            self.obs_normalizer_state, observation | {"seen": joint_observation(actor.groups, view, None)}
        )
        graph = self.network.graph(observation, greedy=greedy)
        action, log_prob = actor.sample(graph, observation["seen"], legal_masks(actor, view), key, greedy=greedy)
        return actor.split_by_group(action), {"log_prob": log_prob, "chance": chance, "kept": kept_edges}


def joint_transitions(actor: BayesianNetworkPolicy, steps: Transition, sampled: dict[str, Array]) -> Transition:
    """Convert transitions ``[..., agent]`` of a team to those of a single agent.

    ``sampled``: what acting sampled besides the action. Agents that did not act have no observation and the first legal
    action, the only one they could take.
    """
    alive, masks = steps.view.alive, legal_masks(actor, steps.view)
    group_actions = [
        jnp.where(alive[g.name], steps.action[g.name], jnp.argmax(masks[g.name], -1)) for g in actor.groups
    ]
    joint_action = jnp.concatenate(group_actions, axis=-1).astype("int32")

    def joint_view(view: View) -> View:
        observation = {"chance": sampled["chance"], "done": joint_action, "kept": sampled["kept"]}
        return View(observation | {"seen": joint_observation(actor.groups, view, None)}, legal_masks(actor, view))

    pairs = (steps.view, steps.privileged), (steps.next_view, steps.next_privileged)
    privileged, next_privileged = (joint_observation(actor.groups, *pair) for pair in pairs)
    extras = {name: x for name, x in sampled.items() if name == "log_prob"}
    return Transition(
        joint_view(steps.view),
        joint_action,
        steps.reward,
        steps.terminated,
        steps.truncated,
        joint_view(steps.next_view),
        steps.is_first,
        extras,
        privileged,
        next_privileged,
    )


def legal_masks(actor: BayesianNetworkPolicy, view: View) -> dict[str, Bool[Array, "..."]]:
    """Action masks ``[..., agent, n]`` by group: only the first legal action for agents that do not act."""

    def group_mask(name: str, width: int) -> Bool[Array, "..."]:
        alive = view.alive[name][..., None]
        action_mask = jnp.ones((*alive.shape[:-1], width), bool) if view.action_mask is None else view.action_mask[name]
        return jnp.where(alive, action_mask, jnp.argmax(action_mask, axis=-1)[..., None] == jnp.arange(width))

    return {name: group_mask(name, width) for name, width in actor.group_num_actions().items()}


def edge_mask(actor: BayesianNetworkPolicy, view: View, kept_edges: Bool[Array, "parent child"]) -> Int[Array, " edge"]:
    """Edge mask of one environment: the kept edges, flattened, without those from agents that do not act."""
    alive = jnp.concatenate([view.alive[g.name] for g in actor.groups])
    return (kept_edges & alive[:, None]).ravel().astype("int32")
