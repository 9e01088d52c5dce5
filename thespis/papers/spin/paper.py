"""SPIN: self-play fine-tuning converts weak language models to strong language models."""

from __future__ import annotations

from typing import Any

from thespis.evidence.claims import Superiority
from thespis.evidence.language_tasks import TINY_MODEL
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.learners.language.preference_losses import SigmoidLoss
from thespis.methods.language.sft import SFT
from thespis.methods.language.spin import SPIN

_DATA = {"data": "demonstrations:512"}
_PRETRAINED_MODEL: dict[str, Any] = TINY_MODEL | {"num_pretrain_steps": 1500}
_LOSS = SigmoidLoss(1.0)
_RETURN = final_return("sampled")

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
    miniature=Trial(
        arms=(
            Arm("SPIN", SPIN(**_PRETRAINED_MODEL, loss_type=_LOSS, ref_sync_interval=100), _DATA),
            Arm("one iteration", SPIN(**_PRETRAINED_MODEL, loss_type=_LOSS, ref_sync_interval=0), _DATA),
            Arm("more fine-tuning", SFT(**_PRETRAINED_MODEL), _DATA),
        ),
        envs=("thespis.evidence.language_tasks:COUNTDOWN_EXPERT",),
        steps=300,
        claims=(
            Superiority("SPIN", "more fine-tuning", _RETURN),
            Superiority("SPIN", "one iteration", _RETURN),
        ),
        seeds_per_look=5,
        max_looks=2,
        num_episodes=200,
    ),
    remarks="A two-layer decoder combines two numbers into a third, in place of a chat model of 7B. It starts "
    "fine-tuned for 1,500 steps on 512 demonstrations, and all arms continue with the same ones, as in the paper. The "
    "expert is always right, so the share of right responses measures how close the model is to it. An iteration is "
    "100 updates; the paper's is two epochs over fifty thousand responses. The opponent's responses are sampled anew "
    "in every update, and those of the iteration before are not kept. Beta is 1, as responses have four tokens; the "
    "paper's is 0.1, and 5 in the last iteration. DPO with preferences of a stronger model, a comparison method of the "
    "paper, is not tested. The number of fine-tuning steps at the start was chosen after looking at one seed: after a "
    "tenth of them, more fine-tuning still helped. Contradicted: that SPIN improves the fine-tuned model where more "
    "fine-tuning does not; after 300 updates 0.99 of the responses are right with more fine-tuning and 0.90 with SPIN. "
    "Not shown: that iterations help (0.735). Checked again: the loss and its gradient agree with equation 4.7 by "
    "loops, and the opponent is renewed when it should be. Likely cause: a model whose responses are nearly those of "
    "the data has nothing to gain but noise, as every update prefers one right response to another that happens to "
    "differ, and the loss does not hold what both have in common. The paper's model is far from its data, which are "
    "long responses of a stronger model, and its step sizes are hundreds of times smaller.",
)
