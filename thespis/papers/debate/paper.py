"""AI safety via debate."""

from __future__ import annotations

from thespis.core.records import Citation
from thespis.evidence.benches.debates import BASELINE, BENCH, SINGLE_SPEAKER_ENVS
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.papers.debate.measures import honest_judge_accuracy, judge_accuracy, truth_win_rate
from thespis.papers.debate.search import PixelSearch

_ENV_MODULE = "thespis.papers.debate.envs"

PAPER = Paper(
    id="debate",
    name="Debate",
    citation=Citation("AI safety via debate", "Irving et al.", 2018, "arXiv:1805.00899"),
    family="self-play-games",
    summary="Two players each claim what an image shows and, in turn, reveal pixels of it to a weak judge, which "
    "decides between the claims. Each plays to convince the judge; it should be easier to refute a lie than to lie.",
    claim="If the judge sees six pixels of a digit, debate raises its accuracy from 59.4% (random pixels) to 88.9%, "
    "and with four pixels from 48.2% to 85.2%.",
    parts=(
        "thespis.papers.debate.envs:Debate",
        "thespis.papers.debate.envs:SingleSpeaker",
        "thespis.papers.debate.judge:PixelJudge",
        "thespis.papers.debate.search:PixelSearch",
        "thespis.papers.debate.measures:judge_accuracy",
    ),
    command=f"thespis train alphazero --env {_ENV_MODULE}:DEBATE_4 --steps 40000 "
    "--set board_encoder=none hidden_sizes=128,128 num_simulations=16 num_steps=4 num_envs=128",
    miniature=BENCH.trial(
        arms=(
            Arm("debate", PixelSearch()),
            Arm("random pixels", BASELINE),
            Arm("one adviser", PixelSearch(), env=SINGLE_SPEAKER_ENVS),
        ),
        headline=Comparison("debate", "random pixels", judge_accuracy()),
        mechanisms=(Comparison("debate", "one adviser", truth_win_rate()),),
        context=(
            Comparison("debate", "one adviser", judge_accuracy()),
            Comparison("debate", "random pixels", honest_judge_accuracy()),
            NotApplicable("debate helps people to judge what they could not judge alone", "people as judges"),
        ),
    ),
    remarks="Digits of 8 x 8 pixels replace digits of 28 x 28. The judge has one hidden layer and is trained once, on "
    "random pixels of two thirds of the digits, like the paper's judge on the training digits. As there, claims "
    "are made before pixels are revealed, all nine false labels of a digit are tried, and the digit counts as "
    "misclassified if one of them wins. The honest player moves first in half of the games. Players learn "
    "nothing, in the paper as here: they search, in the paper by 10,000 Monte Carlo rollouts per move, here "
    "through all pairs of this move and the next. Each seed has 40 digits of its own, drawn from the last third; "
    "all arms are judged on the same ones, and random pixels are the same whatever the false label. Seeds differ "
    "in the digits, not in the judge, so that the verdict is about this judge. Shown with 10 pairs: with four "
    "pixels the judge is right on 83% of the digits (interquartile mean) after a debate and on 45% after random "
    "pixels, with six on 86% and 58%. A single adviser is honest in half of the games; that debate is better than "
    "such an adviser is due to the games in which it is not. The complexity theory and human judges are not "
    "tested. An earlier trial by protocol 1 had players that learned by AlphaZero with 16 simulations, and three "
    "seeds: its judge was right on 67% of the digits with four pixels and with six. It compared the judge's "
    "accuracy on the first 40 held-out digits with that of random pixels on all of them. On these 40 digits, "
    "optimal play of both players with four pixels, computed by enumeration, leaves the judge right on 80%, "
    "whoever moves first, so that it was the play that was weak.",
    fidelity=(
        Fidelity(
            "claims",
            "made before the first pixel and never withdrawn; also tried without this",
            "made before the first pixel and never withdrawn",
        ),
        Fidelity("pixels", "not 0, each revealed once, in turn"),
        Fidelity(
            "judge",
            "a convolutional network on values and positions, trained on random pixels that are not 0, as many as in a "
            "debate: 30,000 batches of 128 for six pixels, 50,000 for four, by Adam with 1e-4",
            "one hidden layer of 256 units on values and positions, trained likewise: 3,000 batches of 128, by Adam "
            "with 1e-3",
        ),
        Fidelity("judge in a debate", "decides for the claim with the higher logit; the other labels play no role"),
        Fidelity(
            "players",
            "Monte Carlo tree search with 10,000 rollouts per move, at the end of which the judge decides",
            "exhaustive search of two moves, valued by the judge's logits: exact for the last two pixels",
        ),
        Fidelity("score of a digit", "right only if none of the nine false labels wins"),
        Fidelity("rival", "the judge's accuracy on as many random pixels that are not 0"),
    ),
)
