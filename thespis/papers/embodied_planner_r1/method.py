"""Policy-gradient methods that begin with imitation of a few dialogues of an expert.

In place of an instruction-tuned model, which already knows how to act in text: a small model begins to complete tasks
with supervised fine-tuning on the dialogues of an expert, in its first state.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Key

from thespis.core.records import Citation, EnvSpec
from thespis.envs.registry import make_compiled
from thespis.learners.language.lm_agent import TrainableLMAgent
from thespis.learners.language.model_init import PretrainConfig, pretrain
from thespis.methods.language.grpo import GRPO
from thespis.nets.decoder import Decoder
from thespis.runtime.keys import fold
from thespis.training.demonstrations import sample_demonstrations


class ExpertFineTuning(TrainableLMAgent):
    """Base of methods whose initial model is fine-tuned on dialogues of an expert.

    It stands before the method among the bases of a class.
    """

    expert_env: str = eqx.field(static=True, default="text:household")
    """Environment of text whose demonstrator is the expert."""
    num_demonstrations: int = eqx.field(static=True, default=16)
    """Dialogues of the expert, the same as those of ``demonstrations:N`` as data."""
    num_sft_updates: int = eqx.field(static=True, default=100)
    """Gradient steps of supervised fine-tuning."""
    sft_batch_size: int = eqx.field(static=True, default=16)
    """Dialogues per step of supervised fine-tuning."""
    sft_learning_rate: float = eqx.field(static=True, default=1e-3)
    """Step size of supervised fine-tuning."""

    def init_from(self, spec: EnvSpec, key: Key[Array, ""]) -> Decoder:
        """The model that ``model`` names, fine-tuned on the expert's dialogues."""
        return self.fine_tune(self.pretrained(spec, key), self.expert_dialogues(key), key)

    def pretrained(self, spec: EnvSpec, key: Key[Array, ""]) -> Decoder:
        """The model that ``model`` names, before it is fine-tuned."""
        return super().init_from(spec, key)

    def fine_tune(self, model: Decoder, dialogues: tuple[Array, Array, Array], key: Key[Array, ""]) -> Decoder:
        """A model fine-tuned on dialogues, in an order that depends on the key."""
        config = PretrainConfig(
            num_steps=self.num_sft_updates, batch_size=self.sft_batch_size, learning_rate=self.sft_learning_rate
        )
        return pretrain(model, *dialogues, fold(key, "fine-tuning"), config)[0]

    def expert_dialogues(self, key: Key[Array, ""]) -> tuple[Array, Array, Array]:
        """Transcripts, start positions of responses and responses of the expert."""
        return sample_demonstrations(make_compiled(self.expert_env), self.num_demonstrations)[:3]


class FineTunedGRPO(ExpertFineTuning, GRPO):
    """Group relative policy optimization that begins with supervised fine-tuning on dialogues of an expert."""

    name: ClassVar[str] = "fine-tuned-grpo"
    citations: ClassVar[tuple[Citation, ...]] = (
        *GRPO.citations,
        Citation("Unleashing Embodied Task Planning Ability in LLMs", "Fei et al.", 2025, "arXiv:2506.23127"),
    )
