"""Stored logits of transformers, so that fast tests need no torch. Run as a script to write them again."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from checkpoints import CONFIGS, prompts, write

REFERENCES = Path(__file__).parent / "reference_logits.npz"


def transformers_logits(directory: Path) -> np.ndarray:
    """Logits of transformers at the last token of each prompt."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(directory, attn_implementation="eager").eval()
    with torch.no_grad():
        return model(torch.tensor(prompts())).logits[:, -1].float().numpy()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        logits = {name: transformers_logits(write(Path(folder) / str(i), name)) for i, name in enumerate(CONFIGS)}
    np.savez_compressed(REFERENCES, **logits)
    sys.stdout.write(f"{len(logits)} references in {REFERENCES}\n")
