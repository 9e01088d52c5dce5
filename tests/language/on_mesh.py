"""A decoder on a mesh of four devices and on one; prints what was found as JSON. Run by test_sharding.py."""

import dataclasses
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from thespis.core.keys import key_of
from thespis.language.adapters import with_adapters
from thespis.language.generation import Speaker, place
from thespis.language.sharding import spread
from thespis.nets.decoder import Shape, decoder

SHAPE = Shape(vocabulary=12, width=16, layers=2, heads=4, kv_heads=2, head_size=4, hidden=24, biased=("q", "k", "v"))
SHAPES = {"even": SHAPE, "one key": dataclasses.replace(SHAPE, kv_heads=1, vocabulary=11, tied=False)}


def main() -> None:
    mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("data", "tensor"))
    for shape in SHAPES.values():
        model = with_adapters(decoder(shape, key_of(0)), key_of(1), rank=2, targets=("q", "down"))
        model = jax.tree.map(lambda x: 4 * x + 0.01, model)
        tokens = jnp.arange(4 * 6).reshape(4, 6) % shape.vocabulary
        laid = spread(model, mesh)
        rows = jax.device_put(tokens, NamedSharding(mesh, PartitionSpec("data")))

        def loss(model, tokens):
            logits = jax.vmap(lambda row: model.logits(model(row, jnp.arange(6))))(tokens)
            return jnp.mean(jax.nn.logsumexp(logits, axis=-1))

        step = jax.jit(jax.value_and_grad(loss))
        (value, gradient), (laid_value, laid_gradient) = step(model, tokens), step(laid, rows)
        apart = jax.tree.map(lambda a, b: float(jnp.abs(a - jax.device_get(b)).max()), gradient, laid_gradient)

        def say(model, tokens):
            speak = Speaker(model, length=4)
            return speak(model.empty(4, 10), tokens, place(jnp.full(4, 6), jnp.zeros(4, int), 6), key_of(2))[0]

        said, laid_said = jax.jit(say)(model, tokens), jax.jit(say)(laid, rows)
        q = laid.layers.q.weight
        found = {
            "loss": abs(float(value) - float(laid_value)),
            "gradient": max(jax.tree.leaves(apart)),
            "size": max(float(jnp.abs(g).max()) for g in jax.tree.leaves(gradient)),
            "said": bool((said.tokens == jax.device_get(laid_said.tokens)).all()),
            "share of q": q.addressable_shards[0].data.size / q.size,
            "share of k": laid.layers.k.weight.addressable_shards[0].data.size / laid.layers.k.weight.size,
            "share of embedding": laid.embedding.addressable_shards[0].data.size / laid.embedding.size,
            "gradient lies as its parameter": str(laid_gradient.layers.q.weight.sharding.spec) == str(q.sharding.spec),
        }
        sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
