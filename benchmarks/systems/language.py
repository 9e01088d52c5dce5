"""Model and prompts of the language cases: a Llama with 1.9 million parameters."""

import numpy as np

VOCABULARY, LAYERS, PROMPT, NEW, GROUP = 1700, 4, 16, 32, 8
SHAPE = {"hidden_size": 192, "num_heads": 6, "num_kv_heads": 2, "head_dim": 32, "intermediate_size": 512}
LLAMA = {
    "vocab_size": VOCABULARY,
    "hidden_size": SHAPE["hidden_size"],
    "intermediate_size": SHAPE["intermediate_size"],
    "num_hidden_layers": LAYERS,
    "num_attention_heads": SHAPE["num_heads"],
    "num_key_value_heads": SHAPE["num_kv_heads"],
    "head_dim": SHAPE["head_dim"],
    "max_position_embeddings": PROMPT + NEW,
    "tie_word_embeddings": True,
}
"""The same as settings of transformers."""


def prompts(rows: int, seed: int) -> np.ndarray:
    """Random prompts ``[row, time]``."""
    return np.random.default_rng(seed).integers(0, VOCABULARY, (rows, PROMPT)).astype("int32")
