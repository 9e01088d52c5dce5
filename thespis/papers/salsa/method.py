r"""PPO for language models that is held near a model soup: the weight average of several fine-tuned models.

One pretrained model is fine-tuned :math:`n` times on demonstrations, independently. PPO begins with the first of these
models, and its penalty on KL is to the soup:

.. math:: \pi_{soup} = \sum_i w_i \theta_i, \qquad L = -E[r(x, y)] + \beta \, KL(\pi_\theta \| \pi_{soup})

With all of the weight on the first model this is PPO as usual.

Source: Chegini et al., 2024; of the paper the abstract, summaries and reviews could be read, and no public code is
known.

Differs: the penalty on KL is a loss and not a part of the reward, as in ``ppo-lm``.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Key

from thespis.core.records import Batch, Citation, EnvSpec, Report
from thespis.language.merging import weighted_sum
from thespis.learners.language.lm_policy_gradient import LMPolicyGradientState
from thespis.methods.language.ppo_lm import LanguagePPO
from thespis.nets.decoder import Decoder
from thespis.papers.rlaif_vs_strong_teacher_sft.method import TeacherFineTuning
from thespis.runtime.keys import fold


class SoupReferenceState(LMPolicyGradientState):
    """Training state of PPO, and the fine-tuned models."""

    fine_tuned: tuple[Decoder, ...] = ()


class SALSA(TeacherFineTuning, LanguagePPO):
    """SALSA: PPO for language models with a KL penalty to the weight average of several fine-tuned models."""

    reference_weights: tuple[float, ...] = eqx.field(static=True, default=(0.5, 0.5))
    """Weights of the fine-tuned models in the reference; there are as many models. ``1 0``: PPO as usual."""
    initial_weights: tuple[float, ...] | None = eqx.field(static=True, default=None)
    """Weights of the fine-tuned models in the initial policy; None: the first model."""
    same_demonstrations: bool = eqx.field(static=True, default=True)
    """Whether all models learn from the same demonstrations, in another order, or each from its own."""

    name: ClassVar[str] = "salsa"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "SALSA: Soup-based Alignment Learning for Stronger Adaptation in RLHF",
            "Chegini et al.",
            2024,
            "arXiv:2411.01798",
        ),
        *LanguagePPO.citations,
    )
    details: ClassVar[tuple[str, ...]] = ("the reference is a weighted sum of fine-tuned models",)

    def __check_init__(self):
        """Raise ``ValueError`` for weights of initial models that are not as many as those of the reference."""
        if self.initial_weights is not None and len(self.initial_weights) != len(self.reference_weights):
            raise ValueError(
                f"{len(self.initial_weights)} initial_weights and {len(self.reference_weights)} reference_weights: "
                "give one for each fine-tuned model"
            )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> SoupReferenceState:
        """The state of PPO, which begins with the first fine-tuned model, and the soup as reference."""
        state = super().init(spec, key)
        models = self.fine_tuned_models(state.model.model, spec, key)
        initial = models[0] if self.initial_weights is None else weighted_sum(models, self.initial_weights)
        reference = state.reference if self.kl_penalty is None else weighted_sum(models, self.reference_weights)
        model = dataclasses.replace(state.model, model=initial)
        state = dataclasses.replace(state, model=model, reference=reference)
        return SoupReferenceState.extending(state, fine_tuned=models)

    def fine_tuned_models(self, first: Decoder, spec: EnvSpec, key: Key[Array, ""]) -> tuple[Decoder, ...]:
        """The first fine-tuned model, and others that differ from it in the random numbers of fine-tuning."""
        pretrained = self.pretrained(spec, key)
        others = []
        for i in range(1, len(self.reference_weights)):
            own_key = fold(key, "fine-tuned model", i)
            dialogues = self.expert_dialogues(key if self.same_demonstrations else own_key)
            others.append(self.fine_tune(pretrained, dialogues, own_key))
        return first, *others

    def update(self, state: SoupReferenceState, batch: Batch, key: Key[Array, ""]) -> tuple[SoupReferenceState, Report]:
        """Epochs of PPO; the fine-tuned models stay as they were."""
        new_state, report = super().update(state, batch, key)
        return SoupReferenceState.extending(new_state, fine_tuned=state.fine_tuned), report
