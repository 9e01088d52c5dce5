"""A small decoder with random weights that talks, for the tests of engines and servers."""

from __future__ import annotations

import functools

import jax

from thespis.core.keys import key_of
from thespis.language.local import Local
from thespis.language.tokens import Tokenizer, characters
from thespis.nets.decoder import Decoder, Shape, decoder

LONGEST = 256


@functools.cache
def parts() -> tuple[Decoder, Tokenizer]:
    tokenizer = characters()
    shape = Shape(tokenizer.size, width=32, layers=2, heads=2, kv_heads=1, head_size=16, hidden=48)
    return jax.jit(lambda key: jax.tree.map(lambda x: 5 * x, decoder(shape, key)))(key_of(4)), tokenizer


@functools.cache
def talker() -> Local:
    """Its prompts are 32 tokens or 64 wide."""
    return Local(*parts(), longest=LONGEST, rows=4, chunk=8)


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]
