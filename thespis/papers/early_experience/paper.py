"""Agent learning via early experience: predict the outcomes of own attempts, then imitate an expert."""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.core.records import Citation
from thespis.data.feeds import LoggedEpisodes
from thespis.evidence.benches.few_demonstrations import (
    BASELINE,
    BATCH_SIZE,
    BENCH,
    DEMONSTRATIONS,
    IMITATION_ARM,
    NUM_DEMONSTRATIONS,
    RETURN,
    unseen_goods_return,
)
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.learners.language.loss_masks import EnvTokensFirst

_ENV_TOKENS_FIRST = EnvTokensFirst(600)
_BRANCHES: dict[str, Any] = {"data": f"branches:{NUM_DEMONSTRATIONS}x16"}
_EARLY_EXPERIENCE = dataclasses.replace(
    BASELINE, loss_mask=_ENV_TOKENS_FIRST, feed=LoggedEpisodes(batch_size=2 * BATCH_SIZE)
)

PAPER = Paper(
    id="early-experience",
    name="Early Experience",
    citation=Citation("Agent Learning via Early Experience", "Zhang et al.", 2025, "arXiv:2510.08558"),
    family="imitation",
    summary="A method between imitation and learning from rewards: at states of an expert other actions are tried; "
    "the policy first learns to predict the environment's replies to them, then to imitate the expert.",
    claim="Predicting the outcomes of own attempts and then imitating succeeds more often than imitation alone with "
    "as many updates, in eight environments, and generalizes further.",
    parts=(
        "thespis.learners.language.loss_masks:EnvTokensFirst",
        "thespis.training.counterfactual_branches:sample_branches",
        "thespis.methods.language.sft:SFT",
        "thespis.papers.early_experience.envs:Shop",
    ),
    command="thespis train sft --data branches:12x16 --env thespis.papers.early_experience.envs:SHOP --steps 800 "
    "--set loss_mask=EnvTokensFirst num_env_token_updates=600 num_layers=1 hidden_size=32 learning_rate=3e-3",
    miniature=BENCH.trial(
        arms=(
            Arm("early experience", _EARLY_EXPERIENCE, _BRANCHES),
            IMITATION_ARM,
            Arm(
                "replies to the expert alone",
                dataclasses.replace(BASELINE, loss_mask=_ENV_TOKENS_FIRST),
                DEMONSTRATIONS,
            ),
        ),
        headline=Comparison("early experience", "imitation", RETURN),
        mechanisms=(
            Comparison("early experience", "imitation", unseen_goods_return()),
            Comparison("early experience", "replies to the expert alone", RETURN),
        ),
        context=(
            Comparison("replies to the expert alone", "imitation", RETURN),
            Comparison("early experience", "imitation", final_return("sampled")),
            NotApplicable(
                "self-reflection, the paper's second approach, succeeds more often than imitation alone",
                "a model that can give reasons",
            ),
        ),
    ),
    remarks="A shop of 48 goods replaces eight environments: the agent is asked for a good and has to name it, and "
    "the reply names what was bought. A one-layer decoder with random parameters replaces instruction-tuned "
    "models of 3B to 8B, so that the first stage also teaches how dialogues look; an arm that predicts only "
    "the replies to the expert shows how much of the effect is due to that. The alternative actions are "
    "random goods, as the paper draws them where actions can be listed, not proposals of the model. All arms "
    "make the same number of updates, and each imitating update has as many of the expert's dialogues; arms "
    "that predict use three quarters of the updates for it. Self-reflection needs a model that can give "
    "reasons and is not tested, nor is learning from rewards afterwards. All seeds have the same twelve "
    "demonstrations. An earlier trial by protocol 1, in a text maze of sixteen cells, was not decided by ten "
    "seeds: there eight dialogues already showed most cells. Shown: the larger return (interquartile means of "
    "0.647 and 0.456). Predicting the replies to the expert alone gives nearly half of the gain (0.543); the "
    "rest comes from the other actions that were tried. Of the goods that no demonstration shows, imitation "
    "buys none and early experience 15%, so that most of the gain is in goods that were shown, asked for at "
    "other turns or after other purchases.",
    fidelity=(
        Fidelity(
            "alternative actions",
            "several at every state of the expert, other than the expert's: drawn from the list of admissible actions "
            "where there is one, else proposed by the model",
            "16 for each dialogue, each at one of its four turns: any good, drawn uniformly, so that one in 48 is the "
            "expert's",
        ),
        Fidelity("where they are tried", "at states that the expert has visited; each is executed once"),
        Fidelity("rewards", "not used"),
        Fidelity("loss of the first stage", "next-token prediction of the environment's reply, given state and action"),
        Fidelity(
            "replies of the first stage",
            "those to the alternatives; code and paper also execute the expert's action for the reflections",
            "half of the dialogues of a batch are the expert's, whose replies are predicted too; an arm predicts these "
            "alone",
        ),
        Fidelity("invalid actions", "replies to them are kept as a training signal", "every good can be bought"),
        Fidelity("second stage", "maximum likelihood of the expert's actions, with the same parameters"),
        Fidelity(
            "number of updates",
            "about one epoch of the first stage; all updates together as many as for imitation",
            "600 of 800 updates, as many as for imitation; tuned",
        ),
        Fidelity("model", "instruction-tuned, 3B to 14B parameters", "one layer, random parameters"),
        Fidelity("state", "the text of the page or room, in places summarized", "the whole dialogue"),
    ),
)
