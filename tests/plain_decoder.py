"""Reference decoding: one text in one pass without padding or cache, compiled once per length."""

import jax
import jax.numpy as jnp


@jax.jit
def features_of(model, tokens):
    """Features ``[token, width]`` of all tokens."""
    return model(tokens, jnp.arange(len(tokens)))


@jax.jit
def logits_of(model, tokens):
    """Next-token logits ``[token, vocabulary]``."""
    return model.logits(features_of(model, tokens))
