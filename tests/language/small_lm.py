"""A small decoder with random weights and its engine, for tests of engines and servers."""

from __future__ import annotations

import functools

import jax

from thespis.language.local_engine import LocalEngine
from thespis.language.tokenizer import Tokenizer, byte_tokenizer
from thespis.nets.decoder import Decoder, DecoderConfig, init_decoder
from thespis.runtime.keys import seed_key

LONGEST = 256


def small_decoder_config(vocab_size: int) -> DecoderConfig:
    """Sizes of a decoder of two layers."""
    return DecoderConfig(
        vocab_size,
        hidden_size=32,
        num_layers=2,
        num_heads=2,
        num_kv_heads=1,
        head_dim=16,
        intermediate_size=48,
    )


@functools.cache
def model_and_tokenizer() -> tuple[Decoder, Tokenizer]:
    tokenizer = byte_tokenizer()
    config = small_decoder_config(tokenizer.vocab_size)
    return jax.jit(lambda key: jax.tree.map(lambda x: 5 * x, init_decoder(config, key)))(seed_key(4)), tokenizer


@functools.cache
def small_engine() -> LocalEngine:
    """A local engine; its prompts are padded to 32 or 64 tokens."""
    return LocalEngine(*model_and_tokenizer(), max_length=LONGEST, batch_size=4, chunk_size=8)


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]
