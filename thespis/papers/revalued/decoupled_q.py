r"""Decoupled Q-learning (DecQN): Q-values of action vectors as means of per-dimension utilities, and their training.

.. math:: Q(s, a) = \tfrac1N \sum_i U_i(s, a_i)

The best vector is then the best choice in each dimension separately, however many vectors there are. The module holds
the Q-network, the targets and the regularization of utilities, and their updates.

Source: Seyde et al., 2022; target of the ensemble's mean and utility penalty: Ireland and Montana, 2024; double
Q-learning: van Hasselt et al., 2016.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, Number, View
from thespis.core.spaces import Box, MultiDiscrete, Space
from thespis.learners.off_policy.critic_updates import NStepBatch
from thespis.learners.off_policy.discrete_q import legal_q_values
from thespis.learners.optim.optimizers import Optimizer, gradient_step
from thespis.nets.body import Body
from thespis.nets.mlp import Linear, uniform_fan_in

_MASKED_VALUE = -1e9


@dataclasses.dataclass(frozen=True)
class DiscretizedActions:
    """Discretized action space: a MultiDiscrete space as it is, or each dimension of a box as ``num_bins`` amounts.

    The amounts of a dimension are evenly spaced from one bound to the other: 2 are bang-bang control.
    """

    space: Box | MultiDiscrete
    num_bins: int

    @property
    def discrete_space(self) -> MultiDiscrete:
        """The space of the choices in each dimension."""
        if isinstance(self.space, MultiDiscrete):
            return self.space
        return MultiDiscrete((self.num_bins,) * int(np.prod(self.space.shape)))

    def encode_action(self, action: PyTree) -> Int[Array, " part"]:
        """The choices of a canonical action; the nearest ones if it lies between them."""
        if isinstance(self.space, MultiDiscrete):
            return action
        position = (jnp.ravel(action) + 1.0) / 2.0 * (self.num_bins - 1)
        return jnp.clip(jnp.round(position), 0, self.num_bins - 1).astype("int32")

    def decode_action(self, action_indices: Int[Array, " part"]) -> PyTree:
        """The canonical action of the choices."""
        if isinstance(self.space, MultiDiscrete):
            return action_indices
        return (action_indices * (2.0 / (self.num_bins - 1)) - 1.0).astype(self.space.dtype).reshape(self.space.shape)

    def pad_table(self, values: Float[Array, "*axes choices"]) -> Float[Array, "*axes part widest"]:
        """Concatenated utilities as one row for each dimension, padded with a very low value."""
        return jnp.where(self._padded_indices < 0, _MASKED_VALUE, values[..., self._padded_indices])

    @functools.cached_property
    def _padded_indices(self) -> Int[np.ndarray, "part widest"]:
        counts = np.array(self.discrete_space.nvec)
        places = (np.cumsum(counts) - counts)[:, None] + np.arange(counts.max())
        return np.where(np.arange(counts.max()) < counts[:, None], places, -1)


def discretize_actions(space: Space, num_bins: int, method_name: str) -> DiscretizedActions:
    """The discretized action space of a method. Raises ``UserError`` for a space that cannot be discretized."""
    bounded = isinstance(space, Box) and all(np.isfinite(bound).all() for bound in space.bounds())
    if isinstance(space, MultiDiscrete) or (isinstance(space, Box) and bounded and num_bins > 1):
        return DiscretizedActions(space, num_bins)
    raise UserError(
        f"{method_name} needs a MultiDiscrete action space, or a box with finite bounds and num_bins of 2 or more, and "
        f"this action space is {space}: use dqn for one choice, ppo or a2c for anything"
    )


def select_utilities(
    utilities: Float[Array, "*axes part widest"], action_indices: Int[Array, "*axes part"]
) -> Float[Array, "*axes part"]:
    """Utilities of the chosen actions in each dimension; their mean is the value of the vector."""
    return jnp.take_along_axis(utilities, action_indices[..., None], axis=-1)[..., 0]


class DecoupledQ(eqx.Module):
    """Decoupled Q-network: utilities of all choices from one pass."""

    body: Body
    out: Linear
    actions: DiscretizedActions = eqx.field(static=True)

    def __init__(
        self, spec: EnvSpec, discretization: DiscretizedActions, hidden_sizes: tuple[int, ...], key: Key[Array, ""]
    ):
        body_key, out_key = jax.random.split(key)
        self.actions = discretization
        self.body = Body(spec.observation_space, hidden_sizes, body_key, init=uniform_fan_in, activation=jax.nn.relu)
        self.out = Linear(self.body.feature_size, sum(discretization.discrete_space.nvec), uniform_fan_in, out_key)

    def q_values(self, observation: PyTree) -> Float[Array, " choices"]:
        """Utilities of every choice, concatenated over dimensions."""
        features, _ = self.body((), observation)
        return self.out(features)

    def __call__(self, observation: PyTree, actions: PyTree) -> Float[Array, " k"]:
        """Q-values of ``k`` canonical actions."""
        table = self.actions.pad_table(self.q_values(observation))
        return jax.vmap(lambda action: jnp.mean(select_utilities(table, self.actions.encode_action(action))))(actions)


UtilityTables = Float[Array, "member part widest"]
"""Utilities by every member, those of illegal actions far below any other."""


class UtilityTarget(eqx.Module):
    """Slot: the next value from which the members of an ensemble bootstrap."""

    @abc.abstractmethod
    def next_value(self, online: Callable[[], UtilityTables], target: UtilityTables) -> Float[Array, " member"]:
        """Next value for each member."""


class MemberTarget(UtilityTarget):
    """Bootstrap each member from its own target network, at the action that its online network prefers."""

    double_q: bool = eqx.field(static=True, default=True)
    """Double Q-learning: choose by the online network (van Hasselt et al., 2016), else by the target network."""

    def next_value(self, online: Callable[[], UtilityTables], target: UtilityTables) -> Float[Array, " member"]:
        """Next value for each member."""
        chooser = online() if self.double_q else target
        return jnp.mean(select_utilities(target, jnp.argmax(chooser, axis=-1)), axis=-1)


class EnsembleMeanTarget(UtilityTarget):
    """Bootstrap all members from the best of their mean utilities: less variance (Ireland and Montana, 2024)."""

    def next_value(self, online: Callable[[], UtilityTables], target: UtilityTables) -> Float[Array, " member"]:
        """Next value of the ensemble, the same for all members."""
        value = jnp.mean(jnp.max(jnp.mean(target, axis=0), axis=-1))
        return jnp.broadcast_to(value, target.shape[:1])


class _NoUtilityRegularizer(eqx.Module):
    """No utility regularization: a penalty of zero."""

    def penalty(
        self,
        online: Float[Array, "member part"],
        target_utilities: Callable[[], Float[Array, "member part"]],
        td_target: Array,
    ) -> Float[Array, " member"]:
        """A loss of zero: there is no penalty."""
        return jnp.zeros(online.shape[0])


NO_REGULARIZER = _NoUtilityRegularizer()
"""What ``utility_regularizer=None`` does."""


class UtilityPenalty(eqx.Module):
    r"""Keep utilities that explain a target badly close to the target network's (Ireland and Montana, 2024).

    .. math:: \beta \tfrac1N \sum_i w_i (\bar U_i - U_i)^2, \quad w_i = 1 - e^{-|\delta_i|}, \quad \delta_i = y - U_i

    A target far from one dimension's own utility is probably due to exploratory actions in other dimensions. No
    gradient flows through the weight. :math:`\bar U` is the target network's utility.
    """

    coef: Number = 0.5
    """Weight ``beta`` of the penalty."""

    def penalty(
        self,
        online: Float[Array, "member part"],
        target_utilities: Callable[[], Float[Array, "member part"]],
        td_target: Float[Array, " member"],
    ) -> Float[Array, " member"]:
        """Penalty of one sample, for every member."""
        td_error = jax.lax.stop_gradient(td_target[:, None] - online)
        weight = 1.0 - jnp.exp(-jnp.abs(td_error))
        return self.coef * jnp.mean(weight * (target_utilities() - online) ** 2, axis=-1)


UtilityRegularizer = UtilityPenalty


def utility_tables(critics: DecoupledQ, view: View) -> UtilityTables:
    """Utilities of all actions at one view."""
    return critics.actions.pad_table(legal_q_values(critics, view))


def utility_targets(
    target_distribution: UtilityTarget, online: DecoupledQ, target: DecoupledQ, batch: NStepBatch
) -> Float[Array, "row member"]:
    """TD targets of every sample and member."""

    def single(view: View) -> Array:
        return target_distribution.next_value(lambda: utility_tables(online, view), utility_tables(target, view))

    return batch.reward[:, None] + batch.discount[:, None] * jax.vmap(single)(batch.next_view)


def fit_utilities(
    optimizer: Optimizer,
    critics: DecoupledQ,
    target_critics: DecoupledQ,
    opt_state: PyTree,
    batch: NStepBatch,
    target: Float[Array, "row member"],
    loss: Any,
    regularizer: UtilityRegularizer | _NoUtilityRegularizer,
) -> tuple[DecoupledQ, PyTree, dict[str, Array]]:
    """One gradient step of every member towards its targets; members' mean losses are summed.

    ``loss`` maps TD errors to losses; ``regularizer`` adds its penalty.
    """
    action_indices = jax.vmap(critics.actions.encode_action)(batch.action)

    def chosen_utilities(critics: DecoupledQ, view: View, choices: Array) -> Float[Array, "member part"]:
        table = critics.actions.pad_table(jax.vmap(lambda critic: critic.q_values(view.observation))(critics))
        return select_utilities(table, jnp.broadcast_to(choices, (table.shape[0], choices.shape[0])))

    def objective(critics: DecoupledQ) -> tuple[Array, tuple[Array, Array, Array]]:
        def single(view: View, choices: Array, target: Array) -> tuple[Array, Array, Array]:
            utilities = chosen_utilities(critics, view, choices)
            cost = regularizer.penalty(utilities, lambda: chosen_utilities(target_critics, view, choices), target)
            return jnp.mean(utilities, axis=-1), loss(jnp.mean(utilities, axis=-1) - target), cost

        values, losses, costs = (batch.masked_mean(x) for x in jax.vmap(single)(batch.view, action_indices, target))
        return jnp.sum(losses + costs), (values, losses, costs)

    critics, opt_state, (values, losses, costs), norm = gradient_step(optimizer, objective, critics, opt_state)
    metrics = {"critic_loss": losses.mean(), "held_loss": costs.mean(), "value": values.mean(), "critic_gradient": norm}
    return critics, opt_state, metrics
