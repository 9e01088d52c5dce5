"""Low-pass filter of target critics: targets see all of their values, or only what varies slowly with the action."""

from __future__ import annotations

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.records import Number
from thespis.core.spaces import Box, Space
from thespis.critics.value_functions import QFunction, evaluate_ensemble
from thespis.learners.off_policy.soft_actor_critic import QValueFn, ensemble_min


class _NoFilter(eqx.Module):
    """No filter of target values."""

    def check_space(self, space: Space) -> None:
        """Any action space is accepted."""

    def ensemble_min(self, critics: QFunction, key: Key[Array, ""]) -> QValueFn:
        """Minimum over the members."""
        return ensemble_min(critics)


NO_FILTER = _NoFilter()
"""What ``target_filter=None`` does."""


class TargetFilter(eqx.Module):
    """Slot: how target critics are filtered over actions."""

    @abc.abstractmethod
    def check_space(self, space: Space) -> None:
        """Raise ``UserError`` for an action space that is not supported."""

    @abc.abstractmethod
    def ensemble_min(self, critics: QFunction, key: Key[Array, ""]) -> QValueFn:
        """Minimum of the filtered values over the members: a function of one observation and ``k`` actions."""


class LowPassFilter(TargetFilter):
    r"""Low-pass filter over actions: values convolved with a normal of standard deviation ``std`` (Campo et al., 2020).

    The convolution is estimated by ``num_samples`` samples. Samples beyond the bounds are reflected at them, so that
    the part of a value that goes as :math:`\cos(k \pi (a + 1) / 2)` is multiplied by
    :math:`\exp(-(k \pi \sigma / 2)^2 / 2)` and is otherwise unchanged.
    """

    std: Number = 0.1
    """Standard deviation of the filter, in canonical units of the action: its box is [-1, 1]."""
    num_samples: int = eqx.field(static=True, default=8)
    """Samples per value."""

    def check_space(self, space: Space) -> None:
        """Raises ``UserError`` unless the action space is a box."""
        if not isinstance(space, Box):
            raise UserError(f"a low-pass filter needs a box of actions, not {space}: use target_filter=none")

    def ensemble_min(self, critics: QFunction, key: Key[Array, ""]) -> QValueFn:
        """Minimum of the filtered values over the members."""

        def evaluate(observation: PyTree, actions: Float[Array, "k *action"]) -> Float[Array, " k"]:
            noise = self.std * jax.random.normal(key, (self.num_samples, *actions.shape))
            values = jax.vmap(lambda a: evaluate_ensemble(critics, observation, a))(reflect(actions + noise))
            return jnp.min(jnp.mean(values, axis=0), axis=0)

        return evaluate


def reflect(x: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
    """Reflect ``x`` at -1 and 1, as often as needed."""
    return 1.0 - jnp.abs(jnp.mod(x + 1.0, 4.0) - 2.0)
