"""Bench of language models that learn offline from logged dialogues of mixed quality.

Four words are to be repeated, each for a reward of 1. The 128 logged dialogues are those of a speaker who says random
words: a quarter of the responses are right, and hardly a whole dialogue. Who imitates the best dialogues also imitates
their errors; who tells which responses were right can learn the task from the same dialogues.

In place of random play stands the model before training, which has learned to speak like the log.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float

from thespis.data.feeds import LoggedEpisodes
from thespis.envs.text.echo import Echo
from thespis.envs.text.task import TextEnv
from thespis.evaluation.run import Run
from thespis.evidence.bench import Bench, Headroom, Symptom
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import Measure, final_return, untrained_return
from thespis.evidence.paired_verdict import DEFAULT_LOOKS
from thespis.evidence.paper import Arm
from thespis.learners.language.preference_losses import SigmoidLoss
from thespis.methods.language.dpo import DPO
from thespis.methods.language.sft import SFT

ECHO, PERFECT_ECHO = TextEnv(Echo(max_turns=4)), TextEnv(Echo(max_turns=4, demonstrator_noise=0.0))
ECHO_ENV = f"{__name__}:ECHO"
NUM_DIALOGUES = 128
NUM_UPDATES = 300
CRITIC_UPDATES = 100
"""Further updates of methods whose critic learns first and alone."""
MODEL: dict[str, Any] = {"model": "tiny", "num_layers": 1, "hidden_size": 32}
"""A decoder of one layer, pretrained on dialogues of the same speaker."""
LOG: dict[str, Any] = {"data": f"demonstrations:{NUM_DIALOGUES}"}
PERFECT_LOG: dict[str, Any] = {"data": f"demonstrations:{NUM_DIALOGUES}:{__name__}:PERFECT_ECHO"}
"""Dialogues that begin as those of the log, in which every word is repeated."""


def unrewarded_share() -> Measure:
    """Share of the responses that supervised fine-tuning imitates which earned nothing."""

    def shares(run: Run) -> Float[np.ndarray, " seed"]:
        from thespis.training.data_sources import build_dataset

        method: Any = run.method
        steps = build_dataset(run.config["options"]["data"], run.config["env"], method).steps
        dialogue = np.cumsum(steps.is_first) - 1
        imitated = np.bincount(dialogue, steps.reward)[dialogue] >= method.min_return
        return np.full(len(run.config["seeds"]), np.mean(np.asarray(steps.reward)[imitated] == 0))

    return Measure("share of imitated responses that earned nothing", shares, False, bounds=(0.0, 1.0))


BASELINE = SFT(**MODEL, learning_rate=3e-3, min_return=2.0)
"""Maximum likelihood of the dialogues with a return of 2 or more, about a quarter: rejection sampling."""
_COPY = dataclasses.replace(BASELINE, feed=LoggedEpisodes(batch_size=33))

FILTERED_SFT_ARM = Arm("filtered SFT", BASELINE, LOG)
SFT_ARM = Arm("SFT", SFT(**MODEL, learning_rate=1e-3), LOG)
TUNED_DPO_ARM = Arm("DPO", DPO(**MODEL, learning_rate=3e-4, loss_type=SigmoidLoss(1.0)), LOG)

BENCH = Bench(
    name="logged-text",
    version=1,
    summary="Repeating words, learned from logged dialogues of random words: offline methods for language models that "
    "assign credit to single responses.",
    envs=(ECHO_ENV,),
    steps=NUM_UPDATES,
    arms=(
        FILTERED_SFT_ARM,
        Arm("filtered SFT again", _COPY, LOG),
        SFT_ARM,
        Arm("SFT on perfect dialogues", SFT(**MODEL, learning_rate=1e-3), PERFECT_LOG),
    ),
    positive=Comparison("SFT on perfect dialogues", "SFT", final_return()),
    negative=Comparison("filtered SFT", "filtered SFT again", final_return("sampled")),
    headroom=Headroom("filtered SFT", "SFT on perfect dialogues", final_return(), untrained_return()),
    symptoms=(Symptom("filtered SFT", unrewarded_share(), 0.3),),
    tuning="On seeds 1,100 to 1,109, by the greedy return after 300 updates on batches of 32. Rejection "
    "sampling: learning rates of 1e-3 and 3e-3, with dialogues that return at least 2, or 3. OREO: the same learning "
    "rates, with a beta of 0.2 and 1. Direct advantage policy optimization: the same four. A-LoL: the same learning "
    "rates, with and without weighting by shares of advantage. Weighted behavior cloning and R-LoL: the same four. "
    "DPO: learning rates of 3e-4 and 1e-3, with a beta of 0.1 and 1. KTO: the same four, good dialogues with a weight "
    "of 1 or 3.5. The settings of A-LoL and its rivals were chosen by the sampled return. The size of the log was "
    "chosen so that it limits rejection sampling, not the number of updates: with 128 dialogues, batches of 128 "
    "changed little (with a learning rate of 1e-3 2.6 instead of 2.4 of 4); with 1,000 dialogues they changed much "
    "(3.9 instead of 2.5), and left no headroom. Looked at before, on logs of 1,000 dialogues: six words in place of "
    "four; rewards that are paid at the end, with which direct advantage policy optimization did not learn in 300 "
    "updates; a maze, which took too long; and other learning rates of some arms. The copy of the negative control "
    "draws other batches, of 33 dialogues. That control compares sampled returns, since greedy ones were equal in 25% "
    "of its seeds: they depend only on how many of the four words are repeated.",
    looks=DEFAULT_LOOKS,
)
