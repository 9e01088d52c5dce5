"""Roles as clusters of actions with similar effects (RODE), found once after pretraining a model of action effects.

The model of action effects (:class:`ForwardModel`) predicts the next observation and the reward, with a learned
embedding of each action. Actions with similar effects get similar embeddings.

The high level of :class:`~thespis.learners.multi_agent.hierarchical.Hierarchical` chooses a role for every agent; the
low level may take only actions of its role. Both value choices by embeddings: those of actions, and for roles their
mean.

Source: Wang et al., 2021, section 3.1, for the model of action effects.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.records import Batch, EnvSpec, Number, Transition, View
from thespis.core.spaces import AgentGroup, Discrete, action_mask_size, dict_space
from thespis.critics.mixers import LinearOutputMLP
from thespis.critics.role_matching import role_observation_space
from thespis.learners.multi_agent.independent_learners import agent_spec
from thespis.learners.optim.optimizers import Adam, gradient_step
from thespis.nets.body import Encoder
from thespis.objectives.clustering import k_means
from thespis.objectives.statistics import masked_mean
from thespis.runtime.keys import fold


class ForwardModel(eqx.Module):
    """Forward model ``(o', r) = f(o, a of the others, z_a)`` (Wang et al., 2021, section 3.1).

    ``z_a`` is an action embedding of size ``embedding_size``; ``other_actions_size`` numbers encode the actions of the
    others. An observation is predicted as its features, with images flattened.
    """

    encoder: Encoder
    state_encoder: LinearOutputMLP
    action_encoder: LinearOutputMLP
    observation_head: LinearOutputMLP
    reward_head: LinearOutputMLP
    num_actions: int = eqx.field(static=True)

    def __init__(
        self, spec: EnvSpec, other_actions_size: int, embedding_size: int, hidden_size: int, key: Key[Array, ""]
    ):
        assert isinstance(spec.action_space, Discrete)
        keys = jax.random.split(key, 5)
        self.encoder = Encoder(spec.observation_space, keys[0], _no_image_encoder)
        size, self.num_actions = self.encoder.feature_size, spec.action_space.n
        self.state_encoder = LinearOutputMLP(size + other_actions_size, (2 * hidden_size,), hidden_size, keys[1])
        self.action_encoder = LinearOutputMLP(spec.action_space.n, (2 * hidden_size,), embedding_size, keys[2])
        self.observation_head = LinearOutputMLP(hidden_size + embedding_size, (hidden_size,), size, keys[3])
        self.reward_head = LinearOutputMLP(hidden_size + embedding_size, (hidden_size,), 1, keys[4])

    def action_embeddings(self) -> Float[Array, "n latent"]:
        """The embedding ``z`` of every action."""
        return jax.vmap(self.action_encoder)(jnp.eye(self.num_actions))

    def prediction_error(
        self,
        observation: PyTree,
        other_actions: Float[Array, " others"],
        action: Int[Array, ""],
        next_observation: PyTree,
        reward: Float[Array, ""],
        reward_weight: float | int | Array,
    ) -> Float[Array, ""]:
        """Squared error of the predicted observation, plus ``reward_weight`` times that of the reward."""
        state_features = self.state_encoder(jnp.concatenate([self.encoder(observation), other_actions]))
        features = jnp.concatenate([state_features, self.action_encoder(jax.nn.one_hot(action, self.num_actions))])
        target = jax.lax.stop_gradient(self.encoder(next_observation))
        return (
            jnp.sum((self.observation_head(features) - target) ** 2)
            + reward_weight * (self.reward_head(features)[0] - reward) ** 2
        )


def _no_image_encoder(shape: tuple[int, ...], key: Key[Array, ""]) -> None:
    """Image encoder for spaces without images: ``None``."""


class ActionClustering(eqx.Module):
    """Slot: how actions are assigned to roles."""

    @abc.abstractmethod
    def assign_roles(
        self, action_embeddings: Float[Array, "n latent"], num_roles: int, key: Key[Array, ""]
    ) -> Int[Array, " n"]:
        """The role of each action, from 0 to ``num_roles - 1``."""


class EffectClustering(ActionClustering):
    """Role clustering: k-means over action embeddings."""

    def assign_roles(
        self, action_embeddings: Float[Array, "n latent"], num_roles: int, key: Key[Array, ""]
    ) -> Int[Array, " n"]:
        """The role of each action, from 0 to ``num_roles - 1``."""
        return k_means(action_embeddings, num_roles)


class RandomAssignment(ActionClustering):
    """Roles of equal size with random actions: the control for the value of clustering by effects."""

    def assign_roles(
        self, action_embeddings: Float[Array, "n latent"], num_roles: int, key: Key[Array, ""]
    ) -> Int[Array, " n"]:
        """The role of each action, from 0 to ``num_roles - 1``."""
        return jax.random.permutation(key, jnp.arange(action_embeddings.shape[0], dtype="int32") % num_roles)


class RoleAssignment(eqx.Module):
    """Action embeddings of one group, and the action mask of each role."""

    action_embeddings: Float[Array, "n latent"]
    role_masks: Bool[Array, "role n"]

    def role_embeddings(self) -> Float[Array, "role latent"]:
        """The mean of the action embeddings of each role."""
        return self.role_masks @ self.action_embeddings / jnp.maximum(self.role_masks.sum(axis=1, keepdims=True), 1)


class ActionRolesState(eqx.Module):
    """Effect models, their optimizer state and the role assignments, by group."""

    effect_models: dict[str, ForwardModel]
    opt_state: PyTree
    assignments: dict[str, RoleAssignment]


class ActionRoles(eqx.Module):
    """Action-space roles: all actions are allowed for ``num_pretrain_updates``, then embeddings and roles are fixed."""

    num_roles: int = eqx.field(static=True, default=3)
    """Largest number of roles, which are clusters of actions."""
    clustering: ActionClustering = EffectClustering()
    """How actions are assigned to roles: EffectClustering, RandomAssignment or your own module:Class."""
    num_pretrain_updates: Number = 500.0
    """Updates of the effect models before roles are assigned."""
    learning_rate: Number = 5e-4
    """Step size of the effect models."""
    reward_weight: Number = 10.0
    """Weight of the squared error of the predicted reward relative to that of the observation."""
    embedding_size: int = eqx.field(static=True, default=20)
    """Size of an action embedding."""
    hidden_size: int = eqx.field(static=True, default=32)
    """Units of the hidden layers of the effect models."""

    def level_specs(self, spec: EnvSpec) -> tuple[EnvSpec, EnvSpec]:
        """Environment specs of the two levels: roles as actions above, actions under a role below.

        Raises ``UserError`` unless actions are discrete choices.
        """
        levels: list[dict[str, Any]] = [{}, {}]
        for group in spec.groups:
            group_spec = agent_spec(spec, group)
            if not isinstance(group_spec.action_space, Discrete):
                raise UserError(
                    f"roles are sets of discrete actions, and {group_spec.name} has {group_spec.action_space}: "
                    "use mappo"
                )
            levels[0][group.name] = role_observation_space(
                group_spec.observation_space, self.num_roles, self.embedding_size, 1
            )
            levels[1][group.name] = role_observation_space(
                group_spec.observation_space, group_spec.action_space.n, self.embedding_size, self.num_roles
            )
        roles = dict_space(**{group.name: Discrete(self.num_roles) for group in spec.groups})
        above, below = (
            dataclasses.replace(spec, observation_space=dict_space(**spaces), has_action_mask=True) for spaces in levels
        )
        return dataclasses.replace(above, action_space=roles), below

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> ActionRolesState:
        """Fresh effect models; every role allows every action."""
        others = sum(group.num_agents * action_mask_size(agent_spec(spec, group).action_space) for group in spec.groups)

        def effect_model(group: AgentGroup) -> ForwardModel:
            return ForwardModel(
                agent_spec(spec, group), others, self.embedding_size, self.hidden_size, fold(key, group.name)
            )

        effect_models = {group.name: effect_model(group) for group in spec.groups}
        assignments = {
            name: RoleAssignment(
                effect_model.action_embeddings(), jnp.ones((self.num_roles, effect_model.num_actions), bool)
            )
            for name, effect_model in effect_models.items()
        }
        return ActionRolesState(effect_models, Adam(self.learning_rate).init(effect_models), assignments)

    def actor_state(self, state: ActionRolesState) -> dict[str, RoleAssignment]:
        """The role assignments, which actors carry."""
        return state.assignments

    def high_level_view(self, actor_state: dict[str, RoleAssignment], view: View) -> View:
        """Views of the high level: role embeddings as choices; a role without actions cannot be chosen."""

        def group_view(name: str) -> tuple[PyTree, Array]:
            alive, assignment = view.alive[name], actor_state[name]
            role = jnp.zeros(alive.shape, "int32")
            legal = jnp.broadcast_to(assignment.role_masks.any(axis=1), (*alive.shape, self.num_roles))
            return _role_observation(view, name, role, assignment.role_embeddings()), legal

        return _replace_views(view, {name: group_view(name) for name in actor_state})

    def low_level_view(
        self, actor_state: dict[str, RoleAssignment], view: View, high_level_action: dict[str, Array]
    ) -> View:
        """Views of the low level: legal actions of the role, or all legal ones where the role has none."""

        def group_view(name: str) -> tuple[PyTree, Array]:
            allowed = jnp.take(actor_state[name].role_masks, high_level_action[name], axis=0)
            legal = jnp.ones_like(allowed) if view.action_mask is None else view.action_mask[name]
            both = allowed & legal
            return _role_observation(
                view, name, high_level_action[name], actor_state[name].action_embeddings
            ), jnp.where(both.any(-1, keepdims=True), both, legal)

        return _replace_views(view, {name: group_view(name) for name in actor_state})

    def should_terminate(
        self, actor_state: dict[str, RoleAssignment], view: View, high_level_action: dict[str, Array]
    ) -> Bool[Array, "..."]:
        """Never: a role lasts for its full interval."""
        return jnp.zeros(next(iter(high_level_action.values())).shape[:-1], bool)

    def low_level_transitions(
        self,
        actor_state: dict[str, RoleAssignment],
        steps: Transition,
        high_level_action: dict[str, Array],
        next_high_level_action: dict[str, Array],
    ) -> Transition:
        """Transitions of the low level with the environment's rewards; next views have the role that is chosen then."""
        views = (
            self.low_level_view(actor_state, steps.view, high_level_action),
            self.low_level_view(actor_state, steps.next_view, next_high_level_action),
        )
        return dataclasses.replace(steps, view=views[0], next_view=views[1])

    def update(
        self, state: ActionRolesState, batch: Batch, key: Key[Array, ""]
    ) -> tuple[ActionRolesState, dict[str, Array]]:
        """Train the effect models during pretraining, and assign the roles with the last such update."""
        optimizer = Adam(self.learning_rate)

        def learn(known: ActionRolesState) -> ActionRolesState:
            effect_models, opt_state, _, _ = gradient_step(
                optimizer,
                lambda effect_models: (self._prediction_error(effect_models, batch), ()),
                known.effect_models,
                known.opt_state,
            )
            return ActionRolesState(effect_models, opt_state, known.assignments)

        def assign(known: ActionRolesState) -> ActionRolesState:
            def assign_group(name: str, net: ForwardModel) -> RoleAssignment:
                role = self.clustering.assign_roles(net.action_embeddings(), self.num_roles, fold(key, name))
                return RoleAssignment(
                    net.action_embeddings(), role == jnp.arange(self.num_roles, dtype="int32")[:, None]
                )

            return ActionRolesState(
                known.effect_models,
                known.opt_state,
                {name: assign_group(name, effect_model) for name, effect_model in known.effect_models.items()},
            )

        updates_left = jnp.asarray(self.num_pretrain_updates) - batch.update_index
        state = jax.lax.cond(updates_left > 0, learn, lambda unchanged: unchanged, state)
        state = jax.lax.cond((updates_left > 0) & (updates_left <= 1), assign, lambda unchanged: unchanged, state)
        roles = jnp.mean(
            jnp.stack([kind.role_masks.any(axis=1).sum() for kind in state.assignments.values()]).astype("float32")
        )
        return state, {"roles": roles}

    def _prediction_error(self, effect_models: dict[str, ForwardModel], batch: Batch) -> Float[Array, ""]:
        """Prediction error of the effect models, the mean over the agents that decide, summed over groups."""

        def error(net: ForwardModel, seen: PyTree, others: Array, action: Array, came: PyTree, paid: Array) -> Array:
            return net.prediction_error(seen, others, action, came, paid, self.reward_weight)

        steps, total = batch.steps, jnp.zeros(())
        for name, effect_model in effect_models.items():
            mask = steps.view.alive[name] & batch.mask[..., None]
            inputs = steps.view.observation[name], _other_actions(effect_models, steps, name), steps.action[name]
            reward = jnp.broadcast_to(steps.reward[..., None], mask.shape)
            errors = jax.vmap(jax.vmap(jax.vmap(functools.partial(error, effect_model))))
            group_errors = errors(*inputs, steps.next_view.observation[name], reward)
            total = total + masked_mean(group_errors, mask)
        return total


def _replace_views(view: View, views_by_group: dict[str, tuple[PyTree, Array]]) -> View:
    """The view with other observations and action masks, by group."""
    observation, legal = ({name: pair[i] for name, pair in views_by_group.items()} for i in range(2))
    return dataclasses.replace(view, observation=observation, action_mask=legal)


def _role_observation(
    view: View, name: str, role: Int[Array, "*axes agent"], embeddings: Float[Array, "n latent"]
) -> PyTree:
    choices = jnp.broadcast_to(embeddings, (*role.shape, *embeddings.shape))
    return {"own": view.observation[name], "role": role, "said": choices}


def _other_actions(
    effect_models: dict[str, ForwardModel], steps: Transition, name: str
) -> Float[Array, "time row agent others"]:
    """Actions of all agents, one-hot; zeros for agents that do not decide and for the agent itself."""
    features = []
    for other, effect_model in effect_models.items():
        acts = jnp.where(
            steps.view.alive[other][..., None], jax.nn.one_hot(steps.action[other], effect_model.num_actions), 0.0
        )
        count = acts.shape[2]
        is_self = jnp.eye(count) if other == name else jnp.zeros((steps.action[name].shape[2], count))
        others = jnp.where(is_self[None, None, :, :, None] > 0, 0.0, acts[:, :, None])
        features.append(others.reshape(*others.shape[:3], -1))
    return jnp.concatenate(features, axis=-1)
