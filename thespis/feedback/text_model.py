"""Base of feedbacks for text that learn with a language model: what it starts from, and scores of responses.

The model is the method's own initial model, unless settings name another one. It reads a dialogue up to the last token
of a response, so it does not see the environment's reply to it.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
from jaxtyping import Array, Key

from thespis.core.contracts import Method
from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, Number
from thespis.feedback.text_feedback import TextFeedback
from thespis.learners.language.lm_agent import LMModelConfig, LMWithValueHead, add_value_head
from thespis.learners.language.model_init import ComputeDtype, ModelInit
from thespis.learners.optim.optimizers import Adam, Optimizer
from thespis.nets.decoder import Decoder
from thespis.runtime.keys import fold

_MODEL_SETTINGS = tuple(field.name for field in dataclasses.fields(LMModelConfig))


class TextModelFeedback(TextFeedback):
    """Base of feedbacks for text with a language model of their own, which starts as the method's does."""

    model: str | None = eqx.field(static=True, default=None)
    """Source of the initial model: None (as the method's), tiny, blank, or the directory of a checkpoint or run."""
    num_layers: int | None = eqx.field(static=True, default=None)
    """Layers of a tiny or blank model; None: as the method's."""
    hidden_size: int | None = eqx.field(static=True, default=None)
    """Hidden size of a tiny or blank model; a multiple of 32. None: as the method's."""
    num_pretrain_steps: int | None = eqx.field(static=True, default=None)
    """Gradient steps of the pretraining of a tiny model; None: as the method's."""
    compute_dtype: ComputeDtype | None = eqx.field(static=True, default=None)
    """Dtype of matrix products, float32 or bfloat16; None: as the method's."""
    num_pretrain_dialogues: int | None = eqx.field(static=True, default=None)
    """Demonstrations that a tiny model is pretrained on; None: as the method's."""

    def for_method(self, method: Method) -> TextModelFeedback:
        """The feedback with the settings of the method's initial model where it has none of its own."""
        if not isinstance(method, LMModelConfig):
            return self
        open_settings = [name for name in _MODEL_SETTINGS if getattr(self, name) is None]
        return dataclasses.replace(self, **{name: getattr(method, name) for name in open_settings})

    @property
    def model_init(self) -> ModelInit:
        """The initializer of the model, with defaults for what is not set; its name is empty if no model is named."""
        own = {name: value for name in _MODEL_SETTINGS if (value := getattr(self, name)) is not None}
        return dataclasses.replace(LMModelConfig(), **{"model": ""} | own).model_init

    def initial_model(self, spec: EnvSpec, key: Key[Array, ""]) -> Decoder:
        """The initial model. Raises ``UserError`` if none is named, or for one that does not fit the environment."""
        if not self.model_init.name_or_path:
            raise UserError(
                f"the feedback {self.name} needs a language model, and the method has none of which it could start "
                "with a copy: set feedback.model (tiny, blank, or the directory of a checkpoint)"
            )
        return self.model_init.init_from(spec, fold(key, "model"))


class TurnScorer(TextModelFeedback):
    """Base of feedbacks for text that score responses by a linear head on a language model, trained by Adam."""

    learning_rate: Number = 1e-3
    """Step size of the model."""

    @property
    def optimizer(self) -> Optimizer:
        """Optimizer of the model: Adam with gradients clipped to norm 1."""
        return Adam(self.learning_rate, 1.0)

    def initial_scorer(self, spec: EnvSpec, key: Key[Array, ""]) -> LMWithValueHead:
        """The initial model with a head of zeros, by which all scores are 0."""
        model = self.initial_model(spec, key)
        return add_value_head(model, model.config.hidden_size)
