"""Thespis says things: utterances of a random model, all of full length, prompts of one length."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from language import LAYERS, NEW, PROMPT, SHAPE, VOCABULARY, prompts
from shared import Stopwatch, work

from thespis.core.keys import key_of
from thespis.language.generation import Speaker, place
from thespis.nets.decoder import Shape, decoder


def main() -> None:
    job = work()
    watch = Stopwatch(job.begin, job.steps)
    model = decoder(Shape(VOCABULARY, layers=LAYERS, tied=True, **SHAPE), key_of(0))
    rows = job.batch

    @jax.jit
    def say(model, tokens, key):
        positions = place(jnp.full(rows, PROMPT), jnp.zeros(rows, "int32"), PROMPT)
        cache = model.empty(PROMPT + NEW, rows)
        return Speaker(model, length=NEW)(cache, tokens, positions, key)[0].tokens

    said, done = functools.partial(say, model), 0
    while not watch.at(done):
        tokens = np.asarray(said(jnp.asarray(prompts(rows, done)), key_of(done)))
        done += tokens.size
    watch.answer()


if __name__ == "__main__":
    main()
