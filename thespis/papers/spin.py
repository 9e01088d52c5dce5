"""SPIN: self-play fine-tuning converts weak language models to strong language models."""

from __future__ import annotations

from typing import Any

from thespis.evidence.claims import Better
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.evidence.speaking import TALKER
from thespis.learners.preferring import Logistic
from thespis.methods.language.sft import SFT
from thespis.methods.language.spin import SPIN

_DATA = {"data": "demonstrations:512"}
_TAUGHT: dict[str, Any] = TALKER | {"lesson": 1500}
_LOSS = Logistic(1.0)
_SCORE = final_return("sampled")

PAPER = Paper(
    id="spin",
    name="SPIN",
    citation=SPIN.citations[0],
    family="llm-self-improvement",
    does="A fine-tuned model goes on with the same demonstrations: what they say is preferred, by a logistic loss, to "
    "what the model itself said an iteration before.",
    claim="Improves a fine-tuned model without further data, where more of the same fine-tuning does not, and further "
    "iterations improve on the first.",
    parts=("thespis.methods.language.spin:SPIN", "thespis.learners.preferring:Logistic"),
    use="thespis train spin --data demonstrations:512 --env text:countdown --model tiny --steps 300",
    miniature=Trial(
        arms=(
            Arm("SPIN", SPIN(**_TAUGHT, loss=_LOSS, renewed=100), _DATA),
            Arm("one iteration", SPIN(**_TAUGHT, loss=_LOSS, renewed=0), _DATA),
            Arm("more fine-tuning", SFT(**_TAUGHT), _DATA),
        ),
        envs=("thespis.evidence.speaking:EXACT",),
        steps=300,
        claims=(
            Better("SPIN", "more fine-tuning", _SCORE),
            Better("SPIN", "one iteration", _SCORE),
        ),
        batch=5,
        looks=2,
        episodes=200,
    ),
    remarks="A decoder of two layers that says how to make a number of two others stands for a model of 7B that "
    "chats. It begins fine-tuned for 1,500 steps on 512 demonstrations, and all arms go on with the same "
    "ones, as in the paper; the expert is always right, so the share of right answers is how near the model "
    "is to it. An iteration is 100 updates, theirs two passes over fifty thousand answers; answers of the "
    "opponent are drawn anew in every update, and those of the iteration before are not kept. Beta is 1, "
    "theirs 0.1, and 5 in the last iteration, as answers have four ids. DPO with preferences of a stronger "
    "model, its rival in the paper, is not tried. How long the lesson lasts was set by looks at one seed: "
    "after one tenth of it, more fine-tuning still helped. What is contradicted: that SPIN improves the "
    "fine-tuned model where more fine-tuning does not; after 300 updates more fine-tuning is right in 0.99 "
    "of its answers and SPIN in 0.90. That iterations help is not decided (0.735). Second look: the loss "
    "and its gradient agree with equation 4.7 by loops, and the opponent is renewed when it should be. "
    "Likely cause: a model that says nearly what the data say has nothing to gain but noise, as every "
    "update prefers one right answer to another that happens to differ, and what both have in common is not "
    "held by the loss; the paper's model is far from its data, which are a stronger model's long answers, "
    "and its steps are hundreds of times smaller.",
)
