"""Transformers: generation with the same sizes, by ``generate`` with its cache, from the whole vocabulary."""

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
    generation_config = GenerationConfig(
        do_sample=True, top_k=0, max_new_tokens=NEW, min_new_tokens=NEW, pad_token_id=0
    )
    num_tokens = 0
    with torch.inference_mode():
        while not watch.at(num_tokens):
            tokens = torch.from_numpy(prompts(job.batch, num_tokens)).long()
            output = model.generate(tokens, attention_mask=torch.ones_like(tokens), generation_config=generation_config)
            num_tokens += output[:, PROMPT:].numel()
    watch.print_result()


if __name__ == "__main__":
    main()
