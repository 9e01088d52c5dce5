"""Auxiliary losses of agents' networks: role contrast makes roles of agents with similar histories similar."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.records import Number
from thespis.critics.mixers import LinearOutputMLP
from thespis.critics.role_encoding import role_from_embedding
from thespis.learners.optim.optimizers import Adam, gradient_step, polyak_update
from thespis.nets.mlp import Linear
from thespis.objectives.clustering import k_means
from thespis.objectives.contrastive import cluster_nce
from thespis.objectives.statistics import masked_mean
from thespis.runtime.keys import fold

AgentNetworks = dict[str, Any]
"""Agents' networks by group."""
AuxOutputs = dict[str, dict[str, Array]]
"""Auxiliary outputs of the agents' networks by group, ``[time, row, agent, ...]``."""


class AuxiliaryLoss(eqx.Module):
    """Slot: a loss of the agents' networks besides that of their values, in value decomposition."""

    @property
    def num_pretraining_updates(self) -> int:
        """Number of updates by :meth:`pretrain` alone, before the first update of the values."""
        return 0

    @abc.abstractmethod
    def init(self, networks: AgentNetworks, role_size: int, key: Key[Array, ""]) -> PyTree:
        """The state of the loss, such as that of an optimizer; ``role_size``: 0 where agents have no roles."""

    @abc.abstractmethod
    def update(
        self,
        networks: AgentNetworks,
        state: PyTree,
        aux_outputs: AuxOutputs,
        alive: dict[str, Bool[Array, "time row agent"]],
        num_updates: Int[Array, ""],
    ) -> tuple[AgentNetworks, PyTree, dict[str, Array]]:
        """Networks, state and metrics after the ``num_updates``-th update of the values.

        ``aux_outputs`` are those of the networks before that update; only agents that are ``alive`` count.
        """

    def pretrain(
        self,
        networks: AgentNetworks,
        state: PyTree,
        compute_outputs: Callable[[AgentNetworks], AuxOutputs],
        next_inputs: dict[str, PyTree],
        alive: dict[str, Bool[Array, "time row agent"]],
        update_index: Int[Array, ""],
    ) -> tuple[AgentNetworks, PyTree, dict[str, Array]]:
        """Networks, state and metrics after one update before those of the values; by default nothing changes.

        ``compute_outputs`` are the auxiliary outputs of networks at each step of the window, ``next_inputs`` what the
        agents' networks observe after each step.
        """
        return networks, state, {}


class _NoLoss(eqx.Module):
    """No auxiliary loss: roles, if there are any, are learned from the values alone."""

    def init(self, networks: AgentNetworks, role_size: int, key: Key[Array, ""]) -> tuple[()]:
        """An empty state: nothing has to be kept."""
        return ()

    def update(
        self,
        networks: AgentNetworks,
        state: tuple[()],
        aux_outputs: AuxOutputs,
        alive: dict[str, Array],
        num_updates: Int[Array, ""],
    ) -> tuple[AgentNetworks, tuple[()], dict[str, Array]]:
        """Return the networks unchanged: there is no auxiliary loss."""
        return networks, (), {}


NO_LOSS = _NoLoss()
"""What ``auxiliary_loss=None`` does."""


class EmbeddingDecoder(eqx.Module):
    """Predicts what an agent observes next, and its index if it has that, from the embedding of its history."""

    network: LinearOutputMLP

    def __init__(self, embedding_size: int, feature_size: int, key: Key[Array, ""]):
        self.network = LinearOutputMLP(embedding_size, (embedding_size,), feature_size, key)

    def __call__(self, embedding: Float[Array, " units"]) -> Float[Array, " features"]:
        """The predicted features."""
        return self.network(embedding)


class PretrainingState(eqx.Module):
    """State of the pretraining of embeddings."""

    decoders: dict[str, EmbeddingDecoder]
    opt_state: PyTree
    loss: Float[Array, ""]
    """Loss of the last step."""


class RoleContrastState(eqx.Module):
    """State of the contrastive loss, besides the agents' networks."""

    target_layers: dict[str, Linear]
    """Polyak-averaged copies of the networks' role layers."""
    bilinear_weights: Float[Array, "role role"]
    """The similarity of a role to a target role is their bilinear product with these weights."""
    opt_state: PyTree
    loss: Float[Array, ""]
    """Loss of the last step."""
    pretraining: PretrainingState | None
    """``None`` where nothing is pretrained."""


class RoleContrast(AuxiliaryLoss):
    """Contrastive loss on roles: agents of a team are clustered at each step by their embeddings.

    A role should be more similar to those of its cluster than to others. Only the role layers are trained by it, not
    the embeddings. Before the first update of the values, embeddings can be trained to predict what the agent observes
    next, and its index, and roles by the contrast alone.
    """

    learning_rate: Number = 8e-4
    """Step size."""
    tau: Number = 0.005
    """Polyak rate of the target layers, at each update."""
    update_interval: int = eqx.field(static=True, default=200)
    """Updates of the values for each gradient step of the contrast."""
    num_clusters: int = eqx.field(static=True, default=3)
    """Number of clusters of agents."""
    num_embedding_updates: int = eqx.field(static=True, default=0)
    """Updates, before any other, in which embeddings learn to predict the next observation and the agent's index."""
    num_role_updates: int = eqx.field(static=True, default=0)
    """Updates after these in which only the contrast is trained."""
    embedding_learning_rate: Number = 1e-3
    """Step size of the pretraining of embeddings."""

    @property
    def num_pretraining_updates(self) -> int:
        """Number of updates before the first one of the values."""
        return self.num_embedding_updates + self.num_role_updates

    def init(self, networks: AgentNetworks, role_size: int, key: Key[Array, ""]) -> RoleContrastState:
        """Target layers as copies, random bilinear weights, and the optimizer state.

        Raises ``UserError`` where agents have no roles.
        """
        if not role_size:
            raise UserError("RoleContrast needs agents with roles: set utility_network=RoleUtility")
        target_layers = {name: network.body.role_layer for name, network in networks.items()}
        bilinear_weights = jax.random.uniform(key, (role_size, role_size))
        return RoleContrastState(
            target_layers,
            bilinear_weights,
            self._make_optimizer().init((target_layers, bilinear_weights)),
            jnp.zeros(()),
            self._init_pretraining(networks, fold(key, "pretraining")) if self.num_pretraining_updates else None,
        )

    def _init_pretraining(self, networks: AgentNetworks, key: Key[Array, ""]) -> PretrainingState:
        """Fresh decoders and their optimizer state."""

        def decoder(name: str) -> EmbeddingDecoder:
            body = networks[name].body
            sizes = body.role_layer.weight.shape[0], body.history_body.encoder.feature_size
            return EmbeddingDecoder(*sizes, fold(key, name))

        decoders = {name: decoder(name) for name in networks}
        trained = decoders, {name: _embedding_layers(network) for name, network in networks.items()}
        return PretrainingState(decoders, Adam(self.embedding_learning_rate).init(trained), jnp.zeros(()))

    def update(
        self,
        networks: AgentNetworks,
        state: RoleContrastState,
        aux_outputs: AuxOutputs,
        alive: dict[str, Bool[Array, "time row agent"]],
        num_updates: Array,
    ) -> tuple[AgentNetworks, RoleContrastState, dict[str, Array]]:
        """One gradient step at every ``update_interval``-th update, on the embeddings of agents that are ``alive``."""
        layers = {name: network.body.role_layer for name, network in networks.items()}

        def step(given: tuple[Any, Any, Any, Array]) -> tuple[Any, Any, Any, Array]:
            def loss(nets: tuple[Any, Any]) -> tuple[Array, Array]:
                value = self.loss(*nets, state.target_layers, aux_outputs, alive)
                return value, value

            (layers, bilinear_weights), opt_state, value, _ = gradient_step(
                self._make_optimizer(), loss, given[:2], given[2]
            )
            return layers, bilinear_weights, opt_state, value

        current = layers, state.bilinear_weights, state.opt_state, state.loss
        layers, bilinear_weights, opt_state, loss = jax.lax.cond(
            num_updates % self.update_interval == 0, step, lambda operand: operand, current
        )
        networks = {
            name: eqx.tree_at(lambda n: n.body.role_layer, network, layers[name]) for name, network in networks.items()
        }
        return (
            networks,
            RoleContrastState(
                polyak_update(state.target_layers, layers, self.tau),
                bilinear_weights,
                opt_state,
                loss,
                state.pretraining,
            ),
            self._metrics(loss, state.pretraining),
        )

    def pretrain(
        self,
        networks: AgentNetworks,
        state: RoleContrastState,
        compute_outputs: Callable[[AgentNetworks], AuxOutputs],
        next_inputs: dict[str, PyTree],
        alive: dict[str, Bool[Array, "time row agent"]],
        update_index: Array,
    ) -> tuple[AgentNetworks, RoleContrastState, dict[str, Array]]:
        """One update of the embeddings, or of the roles once those have had theirs."""

        def train_embeddings(
            operand: tuple[AgentNetworks, RoleContrastState],
        ) -> tuple[AgentNetworks, RoleContrastState]:
            networks, state = operand
            pretraining = state.pretraining
            assert pretraining is not None
            layers = {name: _embedding_layers(network) for name, network in networks.items()}

            def loss(trained: tuple[dict[str, EmbeddingDecoder], dict[str, Any]]) -> tuple[Array, Array]:
                decoders, layers = trained
                outputs = compute_outputs(_replace_embedding_layers(networks, layers))
                value = self.prediction_error(networks, decoders, outputs, next_inputs, alive)
                return value, value

            (decoders, layers), opt_state, value, _ = gradient_step(
                Adam(self.embedding_learning_rate), loss, (pretraining.decoders, layers), pretraining.opt_state
            )
            new_state = dataclasses.replace(state, pretraining=PretrainingState(decoders, opt_state, value))
            return _replace_embedding_layers(networks, layers), new_state

        def train_roles(operand: tuple[AgentNetworks, RoleContrastState]) -> tuple[AgentNetworks, RoleContrastState]:
            networks, state = operand
            every = dataclasses.replace(self, update_interval=1)
            networks, state, _ = every.update(networks, state, compute_outputs(networks), alive, update_index)
            return networks, state

        networks, state = jax.lax.cond(
            update_index < self.num_embedding_updates, train_embeddings, train_roles, (networks, state)
        )
        return networks, state, self._metrics(state.loss, state.pretraining)

    def prediction_error(
        self,
        networks: AgentNetworks,
        decoders: dict[str, EmbeddingDecoder],
        aux_outputs: AuxOutputs,
        next_inputs: dict[str, PyTree],
        alive: dict[str, Array],
    ) -> Float[Array, ""]:
        """Mean squared error of the predicted features, over features and the agents that are ``alive``."""
        total, count = jnp.zeros(()), jnp.zeros(())
        for name, outputs in aux_outputs.items():
            encoder, inputs = networks[name].body.history_body.encoder, networks[name].body_input(next_inputs[name])
            target = jax.lax.stop_gradient(jax.vmap(jax.vmap(jax.vmap(encoder)))(inputs))
            predicted = jax.vmap(jax.vmap(jax.vmap(decoders[name])))(outputs["embedding"])
            total = total + jnp.sum(jnp.mean((predicted - target) ** 2, axis=-1) * alive[name])
            count = count + jnp.sum(alive[name])
        return total / jnp.maximum(count, 1)

    def _metrics(self, loss: Array, pretraining: PretrainingState | None) -> dict[str, Array]:
        metrics = {"contrast_loss": loss}
        return metrics if pretraining is None else metrics | {"embedding_loss": pretraining.loss}

    def loss(
        self,
        layers: dict[str, Linear],
        bilinear_weights: Array,
        target_layers: dict[str, Linear],
        aux_outputs: AuxOutputs,
        alive: dict[str, Array],
    ) -> Float[Array, ""]:
        """Mean loss over the agents that are ``alive``."""
        points = {name: jax.lax.stop_gradient(outputs["embedding"]) for name, outputs in aux_outputs.items()}

        def roles(of: dict[str, Linear]) -> Float[Array, "time row agent role"]:
            group_roles = [
                jax.vmap(jax.vmap(jax.vmap(lambda e, n=n: role_from_embedding(of[n], e))))(x) for n, x in points.items()
            ]
            return jnp.concatenate(group_roles, axis=2)

        mask = jnp.concatenate([alive[name] for name in points], axis=2)
        scores = jnp.einsum("trai,ij,trbj->trab", roles(layers), bilinear_weights, roles(target_layers))
        labels = jax.vmap(jax.vmap(self.cluster_agents))(jnp.concatenate(list(points.values()), axis=2), mask)
        return masked_mean(jax.vmap(jax.vmap(cluster_nce))(scores, labels, mask), mask)

    def cluster_agents(
        self, embeddings: Float[Array, "agent units"], mask: Bool[Array, " agent"]
    ) -> Int[Array, " agent"]:
        """Cluster labels of one team's embeddings.

        Agents outside ``mask`` are placed at the mean of the others, which they do not change.
        """
        weight = mask[:, None] / jnp.maximum(jnp.sum(mask), 1)
        mean = jnp.sum(jnp.where(mask[:, None], embeddings, 0.0) * weight, axis=0)
        return k_means(jnp.where(mask[:, None], embeddings, mean), self.num_clusters)

    def _make_optimizer(self) -> Adam:
        return Adam(self.learning_rate)


def _embedding_layers(network: Any) -> tuple[Any, Any]:
    """The layers that compute the embedding of an agent's history."""
    return network.body.history_body, network.body.embedding_layer


def _replace_embedding_layers(networks: AgentNetworks, layers: dict[str, tuple[Any, Any]]) -> AgentNetworks:
    return {name: eqx.tree_at(_embedding_layers, network, layers[name]) for name, network in networks.items()}
