"""One text by a plain decoder: compiled once a length, where each operation by itself would be."""

import jax
import jax.numpy as jnp


@jax.jit
def features_of(model, ids):
    """Features ``[token, width]``, in one pass, with neither padding nor a cache."""
    return model(ids, jnp.arange(len(ids)))


@jax.jit
def logits_of(model, ids):
    """Logits ``[token, vocabulary]`` of what follows each token."""
    return model.logits(features_of(model, ids))
