"""Logits that transformers gives, stored so that the fast tests need no torch. Run as a script to write them again."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from checkpoints import CONFIGS, prompts, write

REFERENCES = Path(__file__).parent / "references.npz"


def answers(directory: Path) -> np.ndarray:
    """Logits of the last token of each prompt, by transformers."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(directory, attn_implementation="eager").eval()
    with torch.no_grad():
        return model(torch.tensor(prompts())).logits[:, -1].float().numpy()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as there:
        found = {name: answers(write(Path(there) / str(i), name)) for i, name in enumerate(CONFIGS)}
    np.savez_compressed(REFERENCES, **found)
    sys.stdout.write(f"{len(found)} references in {REFERENCES}\n")
