"""A decoder on a mesh of four devices compared with one device; prints JSON. Run by test_sharding.py."""

import dataclasses
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from thespis.language.adapters import add_adapters
from thespis.language.generation import ResponseGenerator, block_positions
from thespis.language.sharding import shard_model
from thespis.nets.decoder import DecoderConfig, init_decoder
from thespis.runtime.keys import seed_key

CONFIG = DecoderConfig(
    vocab_size=12,
    hidden_size=16,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=4,
    intermediate_size=24,
    biased_projections=("q", "k", "v"),
)
CONFIGS = {
    "even": CONFIG,
    "one kv head": dataclasses.replace(CONFIG, num_kv_heads=1, vocab_size=11, tie_embeddings=False),
}


def main() -> None:
    mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("data", "tensor"))
    for config in CONFIGS.values():
        model = add_adapters(init_decoder(config, seed_key(0)), seed_key(1), rank=2, target_modules=("q", "down"))
        model = jax.tree.map(lambda x: 4 * x + 0.01, model)
        tokens = jnp.arange(4 * 6).reshape(4, 6) % config.vocab_size
        sharded = shard_model(model, mesh)
        rows = jax.device_put(tokens, NamedSharding(mesh, PartitionSpec("data")))

        def loss(model, tokens):
            logits = jax.vmap(lambda row: model.logits(model(row, jnp.arange(6))))(tokens)
            return jnp.mean(jax.nn.logsumexp(logits, axis=-1))

        step = jax.jit(jax.value_and_grad(loss))
        (value, gradient), (sharded_value, sharded_gradient) = step(model, tokens), step(sharded, rows)
        gradient_errors = jax.tree.map(
            lambda a, b: float(jnp.abs(a - jax.device_get(b)).max()), gradient, sharded_gradient
        )

        def generate(model, tokens):
            generator = ResponseGenerator(model, max_tokens=4)
            return generator(
                model.init_cache(4, 10), tokens, block_positions(jnp.full(4, 6), jnp.zeros(4, int), 6), seed_key(2)
            )[0]

        response, sharded_response = jax.jit(generate)(model, tokens), jax.jit(generate)(sharded, rows)
        q = sharded.layers.q.weight
        result = {
            "loss": abs(float(value) - float(sharded_value)),
            "gradient": max(jax.tree.leaves(gradient_errors)),
            "size": max(float(jnp.abs(g).max()) for g in jax.tree.leaves(gradient)),
            "equal tokens": bool((response.tokens == jax.device_get(sharded_response.tokens)).all()),
            "shard of q": q.addressable_shards[0].data.size / q.size,
            "shard of k": sharded.layers.k.weight.addressable_shards[0].data.size / sharded.layers.k.weight.size,
            "shard of embedding": sharded.embedding.addressable_shards[0].data.size / sharded.embedding.size,
            "gradient is sharded like its parameter": str(sharded_gradient.layers.q.weight.sharding.spec)
            == str(q.sharding.spec),
        }
        sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
