"""Initialization of language models: random parameters, a small pretrained model, or a checkpoint."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from thespis.actors.lm_policy import response_features, token_log_probs
from thespis.core.errors import UserError
from thespis.core.records import EnvSpec
from thespis.core.spaces import Text
from thespis.language import hf_weights
from thespis.language.checkpoints import checkpoint_directory
from thespis.language.hf_config import DEFAULT_MAX_LENGTH, from_hf_config
from thespis.language.sampling import TemperatureSampler
from thespis.language.tokenizer import matches_vocabulary
from thespis.learners.optim.optimizers import Adam, gradient_step
from thespis.nets.decoder import Decoder, DecoderConfig, init_decoder
from thespis.objectives.statistics import masked_mean
from thespis.runtime.cache import cache_path
from thespis.runtime.keys import fold, seed_key

BLANK, TINY = "blank", "tiny"
HEAD_DIM = 32
DEFAULT_NUM_DIALOGUES = 512
"""Demonstrations that a tiny model is pretrained on, unless a setting says otherwise."""
ComputeDtype = Literal["float32", "bfloat16"]


@dataclasses.dataclass(frozen=True)
class ModelInit:
    """Initialization of a language model: the source of its parameters.

    ``name_or_path``: blank (random parameters), tiny (pretrained on demonstrations), the directory of a checkpoint, a
    GGUF file, or ``smollm2``.
    ``num_layers`` and ``hidden_size`` are those of blank and tiny models; ``num_pretrain_steps``: gradient steps of the
    pretraining of a tiny one; ``num_pretrain_dialogues``: its demonstrations. ``compute_dtype``: as of a
    :class:`~thespis.nets.decoder.Decoder`, after pretraining.
    """

    name_or_path: str
    num_layers: int
    hidden_size: int
    num_pretrain_steps: int
    compute_dtype: ComputeDtype = "float32"
    num_pretrain_dialogues: int = DEFAULT_NUM_DIALOGUES

    @property
    def from_scratch(self) -> bool:
        """Whether the model is blank or tiny, with the environment's vocabulary."""
        return self.name_or_path in (BLANK, TINY)

    @property
    def needs_pretraining(self) -> bool:
        """Whether the model is tiny: it is pretrained on demonstrations in its environment."""
        return self.name_or_path == TINY

    @property
    def pretrain_config(self) -> PretrainConfig:
        """Pretraining settings of a tiny model."""
        return dataclasses.replace(
            PRETRAIN_CONFIG, num_dialogues=self.num_pretrain_dialogues, num_steps=self.num_pretrain_steps
        )

    def decoder_config(self, spec: EnvSpec) -> DecoderConfig:
        """The model's configuration. Raises ``UserError`` for a checkpoint that does not fit the environment."""
        assert isinstance(spec.action_space, Text) and isinstance(spec.observation_space, Text)
        vocabulary = spec.action_space.vocabulary
        size = vocabulary.size
        if self.from_scratch:
            heads = self.hidden_size // HEAD_DIM
            num_kv_heads = max(heads // 2, 1)
            if heads < 1 or heads % num_kv_heads:
                raise UserError(
                    f"no model of hidden size {self.hidden_size} can be built: --set hidden_size=N, N a multiple of "
                    f"{2 * HEAD_DIM}, or {HEAD_DIM}"
                )
            return DecoderConfig(
                size, self.hidden_size, self.num_layers, heads, num_kv_heads, HEAD_DIM, 3 * self.hidden_size
            )
        if (Path(self.name_or_path) / "run.json").exists():
            raise UserError(
                f"{self.name_or_path} is a run: thespis export {self.name_or_path} --out DIR, then --model DIR"
            )
        config = hf_weights.read_json(checkpoint_directory(self.name_or_path) / "config.json")
        decoder_config, model_max_length = (
            from_hf_config(config),
            config.get("max_position_embeddings") or DEFAULT_MAX_LENGTH,
        )
        if decoder_config.vocab_size < size:
            raise UserError(f"{self.name_or_path} has {decoder_config.vocab_size} tokens and {spec.name} needs {size}")
        if vocabulary.words and not matches_vocabulary(self.name_or_path, vocabulary.words):
            raise UserError(
                f"{self.name_or_path} has a tokenizer of its own and {spec.name} a closed vocabulary: --model tiny, "
                "or an environment of your own in plain strings"
            )
        max_length = spec.observation_space.max_length
        if max_length > model_max_length:
            raise UserError(
                f"dialogues of {spec.name} may have {max_length} tokens and {self.name_or_path} was made for "
                f"{model_max_length}: set fewer turns, or shorter messages or responses"
            )
        return decoder_config

    def directory(self, spec: EnvSpec) -> Path:
        """Directory of the parameters; for a tiny model, the cache of its pretrained parameters."""
        if not self.needs_pretraining:
            return Path(self.name_or_path)
        shapes = spec.observation_space, spec.action_space, spec.time_limit, self.decoder_config(spec)
        cache_key = repr((spec.name, shapes, self.pretrain_config))
        return cache_path("tiny", hashlib.sha256(cache_key.encode()).hexdigest()[:16])

    def init_from(self, spec: EnvSpec, key: Key[Array, ""]) -> Decoder:
        """The initial parameters. Read from disk at run time, not when the function is traced."""
        config = self.decoder_config(spec)
        if self.name_or_path == BLANK:
            decoder = init_decoder(config, key)
        else:
            shapes, directory = jax.eval_shape(lambda: init_decoder(config, key)), self.directory(spec)
            decoder = jax.pure_callback(lambda: jax.tree.map(np.asarray, hf_weights.load_pretrained(directory)), shapes)
        return dataclasses.replace(decoder, compute_dtype=self.compute_dtype)


@dataclasses.dataclass(frozen=True)
class PretrainConfig:
    """Pretraining settings of a tiny model; ``version`` counts other changes of environments and demonstrators."""

    num_dialogues: int = DEFAULT_NUM_DIALOGUES
    num_steps: int = 150
    batch_size: int = 32
    learning_rate: float = 1e-3
    version: int = 2


PRETRAIN_CONFIG = PretrainConfig()


def pretrain(
    model: Decoder,
    transcript: Int[Array, "row length"],
    response_starts: Int[Array, "time row"],
    responses: Int[Array, "time row token"],
    key: Key[Array, ""],
    config: PretrainConfig,
) -> tuple[Decoder, Float[Array, ""]]:
    """Pretrain by maximum likelihood on ``responses``, padded with -1; returns the model and its last loss."""
    optimizer = Adam(config.learning_rate, 1.0)

    def step(carry: Any, tick: Array) -> Any:
        rows = jax.random.randint(fold(key, "rows", tick), (config.batch_size,), 0, transcript.shape[0])

        def loss(model: Decoder) -> tuple[Array, Any]:
            batch_responses = responses[:, rows]
            features = response_features(model, transcript[rows], response_starts[:, rows], batch_responses.shape[-1])
            value = -masked_mean(
                token_log_probs(model, TemperatureSampler(), features, batch_responses)[0], batch_responses >= 0
            )
            return value, value

        model, opt_state, loss_value, _ = gradient_step(optimizer, loss, *carry)
        return (model, opt_state), loss_value

    (model, _), loss_history = jax.lax.scan(step, (model, optimizer.init(model)), jnp.arange(config.num_steps))
    return model, loss_history[-1]


def init_tiny_model(model_init: ModelInit, spec: EnvSpec) -> Decoder:
    """Initialize the tiny model before pretraining: always the same."""
    return init_decoder(model_init.decoder_config(spec), seed_key(0))
