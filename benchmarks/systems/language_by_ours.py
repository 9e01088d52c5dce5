"""Thespis: generation of responses of a random model to prompts of one length, in two concurrent batches."""

from __future__ import annotations

import dataclasses

from language import LAYERS, NEW, SHAPE, VOCABULARY, prompts
from shared import Stopwatch, work

from thespis.core.spaces import word_vocabulary
from thespis.language.chat import Conversation
from thespis.language.engine import GenerationConfig
from thespis.language.local_engine import LocalEngine
from thespis.language.tokenizer import word_tokenizer
from thespis.nets.decoder import DecoderConfig, init_decoder
from thespis.runtime.keys import seed_key

WORDS = tuple(f"w{i}" for i in range(VOCABULARY - len(word_vocabulary(()).words)))


def main() -> None:
    job = work()
    watch = Stopwatch(job.begin, job.steps)
    model = init_decoder(
        DecoderConfig(VOCABULARY, num_layers=LAYERS, tie_embeddings=True, **SHAPE), seed_key(0), job.dtype
    )
    model = dataclasses.replace(model, compute_dtype=job.dtype)
    engine, num_tokens = (
        LocalEngine(model, word_tokenizer(word_vocabulary(WORDS).words), batch_size=job.batch // 2, chunk_size=NEW),
        0,
    )
    while not watch.at(num_tokens):
        conversations = [Conversation(tuple(row)) for row in prompts(job.batch, num_tokens).tolist()]
        completions = engine.generate(conversations, GenerationConfig(max_tokens=NEW, seed=num_tokens))
        num_tokens += sum(completion.usage.completion_tokens for completion in completions)  # a few responses end early
    watch.print_result()


if __name__ == "__main__":
    main()
