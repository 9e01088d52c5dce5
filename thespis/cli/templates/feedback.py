"""TemplateFeedback: the environment's reward, relative to the mean reward so far, to start from.

Equation: ``r - baseline_coef * m``, with ``m`` a moving average of the rewards.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from thespis.core.records import Batch, Citation, EnvSpec, Number, Report, Rewards
from thespis.objectives.statistics import masked_mean


class TemplateFeedback(eqx.Module):
    """Environment reward minus ``baseline_coef`` times a moving average of the rewards."""

    baseline_coef: Number = 0.5
    """Weight of the average."""
    ema_rate: Number = 0.1
    """Weight of the newest batch in the moving average, in (0, 1]."""

    name: ClassVar[str] = "template-feedback"
    citations: ClassVar[tuple[Citation, ...]] = ()

    @property
    def feed(self) -> None:
        """No data of its own, such as demonstrations: it learns from the method's batch."""
        return None

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> Float[Array, ""]:
        """The average, which is the feedback's whole state: a tree of arrays."""
        return jnp.zeros(())

    def score(self, state: Float[Array, ""], batch: Batch, key: Key[Array, ""]) -> Rewards:
        """The rewards that the method learns from, with the shape of ``batch.steps.reward``."""
        return Rewards(batch.steps.reward - self.baseline_coef * state)

    def update(
        self, state: Float[Array, ""], batch: Batch, own_batch: Batch | None, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], Report]:
        """Learn from a batch with the environment's own rewards; steps count where ``batch.mask`` is true."""
        state = state + self.ema_rate * (masked_mean(batch.steps.reward, batch.mask) - state)
        return state, Report({"mean_reward": state})


def test_laws() -> None:
    """The feedback keeps the laws of its contract: ``pytest template_feedback.py``."""
    from thespis.core.laws.components import check_feedback
    from thespis.envs import registry

    check_feedback(TemplateFeedback(), registry.make_compiled("probe:constant").spec)
