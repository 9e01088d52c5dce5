"""PPO for language models whose reference moves: a slow average of the actor, which the KL penalty then follows."""

from __future__ import annotations

import dataclasses

from jaxtyping import Array, Key

from thespis.core.records import Batch, Number, Report
from thespis.learners.language.lm_policy_gradient import LMPolicyGradientState
from thespis.learners.optim.optimizers import polyak_update
from thespis.methods.language.ppo_lm import LanguagePPO


class MovingReferencePPO(LanguagePPO):
    """PPO for language models with a moving reference: after each update it takes a small step towards the actor."""

    reference_step_size: Number = 0.001
    """Share of the way to the actor that the reference goes in each update; 0: PPO with a fixed reference."""

    def update(
        self, state: LMPolicyGradientState, batch: Batch, key: Key[Array, ""]
    ) -> tuple[LMPolicyGradientState, Report]:
        """The update of PPO, then the step of the reference, if there is one."""
        new_state, report = LanguagePPO.update(self, state, batch, key)
        if self.kl_penalty is None:
            return new_state, report
        reference = polyak_update(state.reference, new_state.model.model, self.reference_step_size)
        return dataclasses.replace(new_state, reference=reference), report
