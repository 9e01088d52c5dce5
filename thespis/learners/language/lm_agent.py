"""Language model as actor: model settings, value head, sampling, trainable parameters, and the base of its methods.

The trainable parameters are all of the model's, or low-rank adapters only (LoRA). Frozen parameters have no gradient
and no optimizer state; a critic next to the model is always trained.

Source: Hu et al., 2021 (LoRA).
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.actors.lm_policy import KVCacheState
from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, Number, View
from thespis.language.adapters import add_adapters, trainable_mask
from thespis.language.generation import linear_value
from thespis.language.sampling import TemperatureSampler
from thespis.learners.language.model_init import DEFAULT_NUM_DIALOGUES, PRETRAIN_CONFIG, ComputeDtype, ModelInit
from thespis.learners.optim.optimizers import (
    LearningRate,
    Optimizer,
    OptimizerFactory,
    build_optimizer,
    gradient_step,
)
from thespis.nets.decoder import PROJECTIONS, Decoder
from thespis.runtime.keys import fold

Params = TypeVar("Params")


class TrainableParams(eqx.Module):
    """Slot: which parameters of a language model are trained."""

    @abc.abstractmethod
    def init_from(self, model: Decoder, key: Key[Array, ""]) -> Decoder:
        """The initial model made from the given one."""


class All(TrainableParams):
    """Full fine-tuning: all parameters are trained."""

    def init_from(self, model: Decoder, key: Key[Array, ""]) -> Decoder:
        """Initial model: the given one, unchanged."""
        return model


class LoRA(TrainableParams):
    """Low-rank adapters, initialized to change nothing. Differs from PEFT's defaults: on all projections."""

    rank: int = eqx.field(static=True, default=8)
    """Rank of each adapter, at least 1."""
    alpha: float = eqx.field(static=True, default=16.0)
    """Scale: the output of an adapter is multiplied by ``alpha / rank``."""
    target_modules: tuple[str, ...] = eqx.field(static=True, default=PROJECTIONS)
    """Projections with an adapter: q, k, v, o, gate, up, down."""

    def __check_init__(self):
        """Raise ``ValueError`` for a rank below 1 and for unknown or no target modules."""
        if self.rank < 1 or not self.target_modules or set(self.target_modules) - set(PROJECTIONS):
            raise ValueError(
                f"rank={self.rank}, target_modules={','.join(self.target_modules)}: give a rank of at least 1 and some "
                f"of {', '.join(PROJECTIONS)}"
            )

    def init_from(self, model: Decoder, key: Key[Array, ""]) -> Decoder:
        """The model with adapters."""
        return add_adapters(model, key, self.rank, self.alpha, self.target_modules)


def init_opt_state(optimizer: Optimizer, params: PyTree) -> PyTree:
    """Optimizer state of the trainable parameters: those of adapters in decoders that have any."""
    return optimizer.init(_split_trainable(params)[0])


def trainable_gradient_step(
    optimizer: Optimizer, loss_fn: Callable[[Params], tuple[Array, Any]], params: Params, opt_state: PyTree
) -> tuple[Params, PyTree, Any, Float[Array, ""]]:
    """Gradient step of the trainable parameters, as :func:`~thespis.learners.optim.optimizers.gradient_step`."""
    trainable, frozen = _split_trainable(params)
    trainable, opt_state, aux, grad_norm = gradient_step(
        optimizer, lambda part: loss_fn(eqx.combine(part, frozen)), trainable, opt_state
    )
    return eqx.combine(trainable, frozen), opt_state, aux, grad_norm


def _split_trainable(params: Params) -> tuple[Params, Params]:
    """Trainable and frozen parameters."""

    def mask(part: Any) -> Any:
        return trainable_mask(part) if isinstance(part, Decoder) else True

    return eqx.partition(params, jax.tree.map(mask, params, is_leaf=lambda part: isinstance(part, Decoder)))


class LMWithValueHead(eqx.Module):
    """A decoder with a linear value head on its features (of size 0 if there is none), or on those of a value model."""

    model: Decoder
    value_weight: Float[Array, " features"]
    value_bias: Float[Array, ""]
    value_model: Decoder | None = None
    """Decoder whose features the head reads; ``None``: those of the model itself."""

    def value(self, features: Float[Array, "*axes features"]) -> Float[Array, "*axes"]:
        """Values of features, by the linear value head."""
        return linear_value(features, self.value_weight, self.value_bias)


def add_value_head(model: Decoder, feature_size: int) -> LMWithValueHead:
    """The model with a value head of zeros on ``feature_size`` features."""
    return LMWithValueHead(model, jnp.zeros(feature_size), jnp.zeros(()))


class LMModelConfig(eqx.Module):
    """Settings of the initial language model."""

    model: str = eqx.field(static=True, default="tiny")
    """Source of the parameters: tiny, blank, smollm2, the directory of a checkpoint, or a GGUF file."""
    num_layers: int = eqx.field(static=True, default=5)
    """Layers of a tiny or blank model."""
    hidden_size: int = eqx.field(static=True, default=128)
    """Hidden size of a tiny or blank model; a multiple of 32."""
    num_pretrain_steps: int = eqx.field(static=True, default=PRETRAIN_CONFIG.num_steps)
    """Gradient steps of the pretraining of a tiny model."""
    compute_dtype: ComputeDtype = eqx.field(static=True, default="float32")
    """Dtype of matrix products: float32, or bfloat16, which is faster and less exact. Parameters keep their dtype."""
    num_pretrain_dialogues: int = eqx.field(static=True, default=DEFAULT_NUM_DIALOGUES)
    """Demonstrations that a tiny model is pretrained on: with too few of them it learns them by heart."""

    @property
    def model_init(self) -> ModelInit:
        """The initializer of the model."""
        return ModelInit(
            self.model,
            self.num_layers,
            self.hidden_size,
            self.num_pretrain_steps,
            self.compute_dtype,
            self.num_pretrain_dialogues,
        )


class LMAgent(LMModelConfig):
    """Language-model agent: model, sampling temperature and optimizer; the base of methods that train one."""

    temperature: Number = 1.0
    """Sampling temperature, above 0."""
    learning_rate: LearningRate = 3e-4
    """Learning rate: a number, InverseSqrtSchedule, LinearSchedule or OptaxSchedule (any of optax)."""
    optimizer: OptimizerFactory | None = None
    """Optimizer: None (Adam) or OptaxOptimizer (any of optax)."""
    max_grad_norm: Number = 1.0
    """Global norm to which the gradient is clipped."""

    @property
    def sampler(self) -> TemperatureSampler:
        """The sampler of tokens, which also defines their probabilities."""
        return TemperatureSampler(jnp.asarray(self.temperature, "float32"))

    def make_optimizer(self) -> Optimizer:
        """Build the optimizer, with gradient clipping, from the settings."""
        return build_optimizer(self.optimizer, self.learning_rate, self.max_grad_norm)

    def init_memory(self, policy: Any, n: int) -> KVCacheState:
        """An empty key-value cache for ``n`` dialogues."""
        return policy.init_memory(n)

    def act(self, policy: Any, memory: KVCacheState, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """Sample responses; extras are the log-probabilities of their tokens as sampled."""
        return policy.act(memory, view, key)


class TrainableLMAgent(LMAgent):
    """Language-model agent with trainable parameters: all of them or LoRA adapters."""

    trainable: TrainableParams = All()
    """Trainable parameters: All, or LoRA."""

    def init_from(self, spec: EnvSpec, key: Key[Array, ""]) -> Decoder:
        """The initial model. Raises ``UserError`` for a checkpoint that does not fit the environment."""
        return self.trainable.init_from(self.model_init.init_from(spec, fold(key, "model")), fold(key, "adapters"))

    def init_reference(
        self, model: Decoder, reference_model: str | None, spec: EnvSpec, key: Key[Array, ""]
    ) -> Decoder:
        """The reference: a copy of the initial model, or the model of a checkpoint, with the same adapters' shapes.

        Raises ``UserError`` for a checkpoint that does not fit the environment.
        """
        if reference_model is None:
            return jax.tree.map(jnp.copy, model)
        source = dataclasses.replace(self.model_init, name_or_path=reference_model)
        if source.from_scratch:
            raise UserError(f"reference_model={reference_model}: give the directory of a checkpoint or of a run")
        return self.trainable.init_from(source.init_from(spec, fold(key, "reference")), fold(key, "adapters"))
