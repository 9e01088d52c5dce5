"""Transformers says things: the same sizes, by ``generate`` with its cache, sampling from the whole vocabulary."""

from __future__ import annotations

import torch
from language import LLAMA, NEW, PROMPT, prompts
from shared import Stopwatch, work
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM


def main() -> None:
    job = work()
    watch = Stopwatch(job.begin, job.steps)
    config = LlamaConfig(**LLAMA)
    model = LlamaForCausalLM(config).eval().to(getattr(torch, job.dtype))
    how = GenerationConfig(do_sample=True, top_k=0, max_new_tokens=NEW, min_new_tokens=NEW, pad_token_id=0)
    done = 0
    with torch.inference_mode():
        while not watch.at(done):
            tokens = torch.from_numpy(prompts(job.batch, done)).long()
            said = model.generate(tokens, attention_mask=torch.ones_like(tokens), generation_config=how)
            done += said[:, PROMPT:].numel()
    watch.answer()


if __name__ == "__main__":
    main()
