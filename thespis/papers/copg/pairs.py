"""Pairs of responses by a policy that is neither the learner nor its reference: the reference at a temperature."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp

from thespis.actors.lm_policy import LMPolicy
from thespis.core.contracts import Mode
from thespis.core.records import Number
from thespis.learners.language.lm_offline import LMOfflineState
from thespis.methods.language.online_dpo import OnlineDPO
from thespis.nets.geometric_mixture import GeometricMixture


class BehaviorSampledDPO(OnlineDPO):
    """Off-policy preference optimization: as online DPO, but the reference at a temperature samples the pairs.

    The loss knows nothing of the temperature: the reference of its log-ratios has none.
    """

    behavior_temperature: Number = 2.0
    """Temperature at which the reference samples, above 0."""
    first_is_own: bool = eqx.field(static=True, default=False)
    """Whether the first response of each pair is the policy's own, for losses that learn from the second alone."""

    def policy(self, state: LMOfflineState, mode: Mode) -> LMPolicy:
        """The decoder as policy; to collect, the reference, or both by turns."""
        model = state.model
        if mode is Mode.EXPLORE:
            reference = state.reference
            model = eqx.tree_at(lambda x: x.final_norm, reference, reference.final_norm / self.behavior_temperature)
            if self.first_is_own:
                model = GeometricMixture(state.model, model, jnp.ones(()), alternates=True)
        return LMPolicy(model, self.sampler, state.dialogue_spec, mode)
