"""Writes a small Hugging Face checkpoint: random weights, a BPE tokenizer with merges, and a chat template."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jax
from language.chat_templates import TEMPLATES
from language.small_lm import small_decoder_config
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers, trainers

from thespis.language import hf_weights
from thespis.nets.decoder import init_decoder
from thespis.runtime.keys import seed_key

TEXT = "guess a number below four: 0 1 2 3. too low, too high, right! that is no number, say one. user assistant"


def write(directory: Path, template: str | None = "chatml", longest: int = 512, sharp: float = 1.0) -> Path:
    """Write the checkpoint and return its directory.

    ``template``: a name of TEMPLATES; ``longest``: the context length; ``sharp``: factor of all weights.
    """
    source, end = TEMPLATES[template] if template else ("", "</s>")
    library_tokenizer = Library(models.BPE())
    library_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library_tokenizer.decoder = decoders.ByteLevel()
    special = sorted({"<s>", "</s>", end, *re.findall(r"<\W*\w+\W*>", source)})
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    library_tokenizer.train_from_iterator([TEXT] * 20, trainer)
    model_config = small_decoder_config(library_tokenizer.get_vocab_size() + 3)
    model = jax.tree.map(lambda x: sharp * x, init_decoder(model_config, seed_key(5)))
    hf_weights.save_pretrained(model, directory, max_length=longest)  # a vocabulary padded by three tokens
    library_tokenizer.save(str(directory / "tokenizer.json"))
    config = {"eos_token": end, "bos_token": "<s>"} | ({"chat_template": source} if template else {})
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return directory
