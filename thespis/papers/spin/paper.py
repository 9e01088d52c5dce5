"""SPIN: self-play fine-tuning converts weak language models to strong language models."""

from __future__ import annotations

from typing import Any

from thespis.evidence.benches.single_turn_text import BENCH, RETURN, SETTINGS
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.learners.language.preference_losses import SigmoidLoss
from thespis.methods.language.sft import SFT
from thespis.methods.language.spin import SPIN

_NUM_UPDATES, _NUM_ITERATIONS = 300, 3
_LEARNING_RATE = 1e-4
_MODEL: dict[str, Any] = {name: SETTINGS[name] for name in ("model", "num_layers", "hidden_size")} | {
    "num_pretrain_steps": 3_000
}
"""The bench's model after five times as many steps of supervised fine-tuning."""
_DATA = {"data": "demonstrations:512"}
"""Dialogues of the demonstrator that the model was fine-tuned on, the same for all arms."""


PAPER = Paper(
    id="spin",
    name="SPIN",
    citation=SPIN.citations[0],
    family="llm-self-improvement",
    summary="Continues the training of a fine-tuned model on the same demonstrations: a logistic loss prefers their "
    "responses to those that the model itself gave one iteration before.",
    claim="Improves a fine-tuned model without further data, where more of the same fine-tuning does not, and further "
    "iterations improve on the first.",
    parts=("thespis.methods.language.spin:SPIN", "thespis.learners.language.preference_losses:SigmoidLoss"),
    command="thespis train spin --data demonstrations:512 --env text:countdown --model tiny --steps 300",
    miniature=BENCH.trial(
        arms=(
            Arm(
                "SPIN",
                SPIN(
                    **_MODEL,
                    learning_rate=_LEARNING_RATE,
                    loss_type=SigmoidLoss(1.0),
                    ref_sync_interval=_NUM_UPDATES // _NUM_ITERATIONS,
                ),
                _DATA,
            ),
            Arm("more fine-tuning", SFT(**_MODEL, learning_rate=_LEARNING_RATE), _DATA),
            Arm("no further training", SFT(**_MODEL, learning_rate=1e-9), _DATA),
        ),
        steps=_NUM_UPDATES,
        headline=Comparison("SPIN", "more fine-tuning", RETURN, margins=(0.02,)),
        mechanisms=(Comparison("SPIN", "no further training", RETURN),),
        context=(
            Comparison("SPIN", "more fine-tuning", final_return()),
            Comparison("SPIN", "no further training", final_return()),
            NotApplicable(
                "DPO with preferences of a stronger model is reached", "a judge of responses beyond the expert"
            ),
        ),
    ),
    remarks="A decoder of one layer combines two numbers into a third, in place of a chat model of 7B. As in the "
    "paper, the model is already fine-tuned, by 3,000 steps on dialogues of a demonstrator that is random in 30% of "
    "its attempts, and all arms continue on 512 dialogues of the same demonstrator. An iteration is 100 updates. Beta "
    "is 1, as responses have four tokens. Two responses of a hundred count as level. On seeds 1,100 to 1,109 the model "
    "begins with 0.715 of its responses right; after 300 updates at a learning rate of 1e-4 it had 0.741 with more "
    "fine-tuning and 0.739 with SPIN. Looked at before, with 64 dialogues of an expert, 600 steps and 100 updates: "
    "fine-tuning with learning rates of 1e-4, 3e-4 and 1e-3 comes from 0.578 to 0.689, 0.710 and 0.707; SPIN with 1e-4 "
    "and 3e-4 with a beta of 1 to 0.663 and 0.644, and with a beta of 0.1 to 0.640 and 0.383. SPIN improves the model "
    "without further data (shown), from 0.722 to 0.747. Contradicted: that more fine-tuning does not. It reaches 0.754 "
    "and is ahead by 0.009, less than what counts as level, but not by chance; with greedy responses the two are equal "
    "(0.817 and 0.815). A reason that SPIN learns as fine-tuning does: where an iteration begins, model and opponent "
    "are the same, the expected gradient of the opponent's term is 0, and what is left is half of beta times the "
    "gradient of fine-tuning. The rest of an iteration is more cautious, since dialogues with a large margin count "
    "less. Whether further iterations improve on the first is not tried again: an earlier trial, with an expert and "
    "1,500 steps of fine-tuning, could not tell.",
    fidelity=(
        Fidelity("loss", "logistic, of beta times the difference of summed log-ratios to the opponent"),
        Fidelity("opponent", "the model at the end of the iteration before, also the reference of the log-ratios"),
        Fidelity(
            "opponent's responses",
            "one for each prompt, sampled once per iteration (code: temperature of 0.8, most likely 95%)",
            "sampled anew in every update, at a temperature of 1",
        ),
        Fidelity(
            "data of an iteration",
            "the expert's responses with the opponent's of this iteration and of the one before",
            "the expert's responses with the opponent's of this iteration",
        ),
        Fidelity("iterations", "four", "three"),
        Fidelity("beta", "0.1, in the last iteration 5", "1, as responses have four tokens"),
        Fidelity(
            "optimizer",
            "RMSProp, learning rate 5e-7, in the last two iterations 1e-7, with warm-up and linear decay",
            "Adam, constant learning rate, tuned as its rival's",
        ),
        Fidelity(
            "budget",
            "two epochs an iteration (code: three or six) of 50,000 responses, in batches of 64",
            "six epochs an iteration of 512 responses, in batches of 32",
        ),
        Fidelity(
            "model",
            "Zephyr 7B, fine-tuned on the data that the prompts come from",
            "a decoder of one layer, fine-tuned on dialogues of the same demonstrator",
        ),
        Fidelity(
            "evaluation", "benchmarks of knowledge and reasoning, mean score", "share of right responses to new tasks"
        ),
    ),
)
