"""Improving language models with advantage-based offline policy gradients."""

from __future__ import annotations

from thespis.core.records import Citation
from thespis.evidence.claims import Superiority
from thespis.evidence.language_tasks import (
    DEMONSTRATION_OPTIONS,
    DPO_ARM,
    ECHO_ENVS,
    FILTERED_SFT_ARM,
    NUM_UPDATES,
    OFFLINE_MODEL,
    SFT_ARM,
)
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.learners.language.response_critics import ReferenceCritic
from thespis.papers.a_lol.method import ALoL

_RETURN = final_return("sampled")

PAPER = Paper(
    id="a-lol",
    name="A-LoL",
    citation=Citation(
        "Improving Language Models with Advantage-based Offline Policy Gradients",
        "Baheti et al.",
        2024,
        "arXiv:2305.14718",
    ),
    family="language",
    summary="Offline policy gradient that treats a whole response as one action: a value head on the frozen reference "
    "model predicts the return, and only responses with a positive advantage are learned, weighted by their advantage "
    "and by a clipped importance ratio.",
    claim="A-LoL learns more from noisy data than imitation and preference-based methods do.",
    parts=("thespis.papers.a_lol.method:ALoL", "thespis.learners.language.response_critics:ReferenceCritic"),
    command="thespis train a-lol --data demonstrations:1000 --env text:echo --model tiny",
    miniature=Trial(
        arms=(
            Arm("A-LoL", ALoL(**OFFLINE_MODEL, critic=ReferenceCritic(100)), DEMONSTRATION_OPTIONS),
            SFT_ARM,
            FILTERED_SFT_ARM,
            DPO_ARM,
        ),
        envs=ECHO_ENVS,
        steps=NUM_UPDATES + 100,
        claims=(
            Superiority("A-LoL", "all", _RETURN),
            Superiority("A-LoL", "best", _RETURN),
            Superiority("A-LoL", "preferred", _RETURN),
        ),
        num_episodes=200,
    ),
    remarks="The paper's tasks are an assistant and three others, judged by reward models and people. In the miniature "
    "three words must be repeated; the data are dialogues of a demonstrator that says random words. Not tried: the "
    "paper's claims on diversity, and its comparison with PPO. The value head is trained in the first 100 of 400 "
    "updates; the other arms train their model in all 400. Sizes were chosen after looking at one seed. Not shown: "
    "that A-LoL does better than supervised fine-tuning on the best dialogues alone, with ten seeds per arm. Checked "
    "again: importance ratio, clipping and the restriction to positive advantages are those of the authors' code. "
    "Likely cause: with one return for a whole dialogue both methods get the same information, and a quarter of "
    "A-LoL's updates went to the value head.",
)
