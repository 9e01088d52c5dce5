"""The model and the prompts that all systems are given: a Llama of 1.9 million parameters."""

import numpy as np

VOCABULARY, LAYERS, PROMPT, NEW = 1700, 4, 16, 32
SHAPE = {"width": 192, "heads": 6, "kv_heads": 2, "head_size": 32, "hidden": 512}


def prompts(rows: int, seed: int) -> np.ndarray:
    """``[row, time]``, fresh for every seed."""
    return np.random.default_rng(seed).integers(0, VOCABULARY, (rows, PROMPT)).astype("int32")
