"""A small checkpoint with random weights, a tokenizer with merges and a chat template, as those of others have."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jax
from language.templates import TEMPLATES
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers, trainers

from thespis.core.keys import key_of
from thespis.language import weights
from thespis.nets.decoder import Shape, decoder

TEXT = "guess a number below four: 0 1 2 3. too low, too high, right! that is no number, say one. user assistant"


def write(directory: Path, template: str | None = "chatml", longest: int = 512, sharp: float = 1.0) -> Path:
    """The directory; ``template``: one of TEMPLATES; ``sharp``: factor of all weights."""
    source, end = TEMPLATES[template] if template else ("", "</s>")
    inner = Library(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    special = sorted({"<s>", "</s>", end, *re.findall(r"<\W*\w+\W*>", source)})
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    inner.train_from_iterator([TEXT] * 20, trainer)
    shape = Shape(inner.get_vocab_size() + 3, width=32, layers=2, heads=2, kv_heads=1, head_size=16, hidden=48)
    model = jax.tree.map(lambda x: sharp * x, decoder(shape, key_of(5)))
    weights.save(model, directory, longest=longest)  # three ids more than the tokenizer has, as padded ones have
    inner.save(str(directory / "tokenizer.json"))
    config = {"eos_token": end, "bos_token": "<s>"} | ({"chat_template": source} if template else {})
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return directory
