"""Dummy-actions wrapper: further dimensions of the action without effect, in which a critic has only errors to find."""

from __future__ import annotations

import dataclasses

import equinox as eqx
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.contracts import Environment
from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box


class DummyActions(eqx.Module):
    """Dummy-actions wrapper: ``env`` with ``num_dummies`` more action dimensions, which do nothing.

    The policy must find out which dimensions matter. Actions of the environment are a vector in ``[-1, 1]``.
    """

    env: Environment
    num_dummies: int = eqx.field(static=True, default=8)
    """Number of dimensions without effect, after the environment's own."""

    def __check_init__(self):
        """Raise :class:`UserError` for other actions than a vector in ``[-1, 1]``."""
        space = self.env.spec.action_space
        if (
            not isinstance(space, Box)
            or len(space.shape) != 1
            or any((abs(bound) != 1).any() for bound in space.bounds())
        ):
            raise UserError(f"dummy actions need an environment whose actions are a vector in [-1, 1], not {space}")

    @property
    def num_actions(self) -> int:
        """Dimensions of the action that have an effect."""
        space = self.env.spec.action_space
        assert isinstance(space, Box)
        return space.shape[0]

    @property
    def spec(self) -> EnvSpec:
        """The environment's spec with the longer action."""
        return dataclasses.replace(self.env.spec, action_space=Box((self.num_actions + self.num_dummies,), -1.0, 1.0))

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[PyTree, TimeStep]:
        """Start an episode of the wrapped environment."""
        return self.env.reset(params, key)

    def step(self, state: PyTree, action: Float[Array, " dimension"], key: Key[Array, ""]) -> tuple[PyTree, TimeStep]:
        """One step of the environment with its own part of the action."""
        return self.env.step(state, action[: self.num_actions], key)
