"""The model and the prompts that all systems are given: a Llama of 1.9 million parameters."""

import numpy as np

VOCABULARY, LAYERS, PROMPT, NEW, GROUP = 1700, 4, 16, 32, 8
SHAPE = {"width": 192, "heads": 6, "kv_heads": 2, "head_size": 32, "hidden": 512}
LLAMA = {
    "vocab_size": VOCABULARY, "hidden_size": SHAPE["width"], "intermediate_size": SHAPE["hidden"],
    "num_hidden_layers": LAYERS, "num_attention_heads": SHAPE["heads"], "num_key_value_heads": SHAPE["kv_heads"],
    "head_dim": SHAPE["head_size"], "max_position_embeddings": PROMPT + NEW, "tie_word_embeddings": True,
}  # fmt: skip
"""The same in the words of transformers."""


def prompts(rows: int, seed: int) -> np.ndarray:
    """``[row, time]``, fresh for every seed."""
    return np.random.default_rng(seed).integers(0, VOCABULARY, (rows, PROMPT)).astype("int32")
