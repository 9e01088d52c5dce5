"""Small hand-made dialogues and a small decoder that reads them, for tests of language learners."""

from __future__ import annotations

import jax
import numpy as np
from synthetic_batches import quick_key

from thespis.actors.lm_policy import DialogueSpec
from thespis.learners.language.dialogues import SampledDialogues
from thespis.nets.decoder import DecoderConfig, init_decoder

TIME, WIDTH, LENGTH = 3, 2, 12
DIALOGUE_SPEC = DialogueSpec(LENGTH, 3, WIDTH, TIME, (0,))
MODEL = jax.jit(init_decoder, static_argnums=0)(DecoderConfig(9, 32, 1, 1, 1, 32, 96), quick_key(0))
KEY = quick_key(1)


def make_dialogues(first: list[int], seed: int = 0, turns: int = 2) -> SampledDialogues:
    """Dialogues: a prompt of two tokens, then turns of two response tokens and one token of the environment.

    ``first`` is the first response token of each row. A row that starts with 8 gets reward 1 in its last turn.
    """
    rng, rows = np.random.default_rng(seed), len(first)
    transcript, responses = np.full((rows, LENGTH), -1, "int32"), np.full((TIME, rows, WIDTH), -1, "int32")
    end = 2 + 3 * turns
    transcript[:, :end] = rng.integers(1, 8, (rows, end))
    transcript[:, :2], transcript[:, 2] = 1, first  # all rows have the same prompt
    starts = np.repeat(np.array([2, 5, 8, 11])[:, None].clip(max=end), rows, axis=1).astype("int32")
    for t in range(turns):
        responses[t] = transcript[:, 2 + 3 * t : 4 + 3 * t]
    alive = np.repeat((np.arange(TIME) < turns)[:, None], rows, axis=1)
    reward = np.zeros((TIME, rows), "float32")
    reward[turns - 1] = np.array(first) == 8
    reward[turns:] = 7.0  # padding: must not count
    truncated, log_probs = np.zeros(rows, bool), np.zeros(responses.shape, "float32")
    return SampledDialogues(*jax.device_put((transcript, starts, responses, alive, reward, truncated, log_probs)))
