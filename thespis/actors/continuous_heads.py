"""Abstract policy heads for boxes of continuous actions: of on-policy methods, and of soft actor-critic methods."""

from __future__ import annotations

import abc
from typing import Any

from jaxtyping import Array, Float

from thespis.core.spaces import Box, Space


class ContinuousHead(abc.ABC):
    """Policy head for boxes: a distribution from a network's outputs. A frozen dataclass."""

    @abc.abstractmethod
    def num_outputs(self, space: Box) -> int:
        """Number of network outputs needed for ``space``."""

    @abc.abstractmethod
    def init_free_params(self, space: Box, num_features: int) -> Array:
        """Initial parameters outside the network."""

    @abc.abstractmethod
    def distribution(self, space: Box, outputs: Array, free_params: Array, features: Array) -> Any:
        """The distribution from the network's outputs, which are linear in ``features``."""


class OnPolicyHead(ContinuousHead):
    """Slot: policy head of on-policy methods, whose distributions have log-probabilities and an entropy."""


class SoftActorHead(ContinuousHead):
    """Slot: policy head of soft actor-critic methods, whose samples have a gradient."""

    @abc.abstractmethod
    def check_space(self, space: Space) -> None:
        """Raise ``UserError`` for an action space that is not supported."""

    @abc.abstractmethod
    def actor_objective(
        self, weights: Float[Array, " k"], q_values: Float[Array, " k"], entropy_bonus: Float[Array, " k"]
    ) -> Float[Array, ""]:
        """The actor's objective in one view, to be maximised, from each sample's weight, value and entropy bonus."""
