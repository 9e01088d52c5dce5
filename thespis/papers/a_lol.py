"""Improving language models with advantage-based offline policy gradients."""

from __future__ import annotations

from thespis.core.records import Citation
from thespis.evidence.claims import Better
from thespis.evidence.listening import ALL, BEST, DATA, ECHO, PREFERRED, SMALL, UPDATES
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.learners.appraising import Onlooker
from thespis.methods.language.alol import ALoL

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
    does="Takes a whole answer for one action: a head on the frozen reference says what is to be expected, and answers "
    "beyond that are learnt, weighed by how far beyond and by a clipped importance weight.",
    claim="Learns more from noisy data than imitation and preference-based methods do.",
    parts=("thespis.methods.language.alol:ALoL", "thespis.learners.appraising:Onlooker"),
    use="thespis train a-lol --data demonstrations:1000 --env text:echo --model tiny",
    miniature=Trial(
        arms=(Arm("A-LoL", ALoL(**SMALL, critic=Onlooker(100)), DATA), ALL, BEST, PREFERRED),
        envs=ECHO,
        steps=UPDATES + 100,
        claims=(
            Better("A-LoL", "all", _RETURN),
            Better("A-LoL", "best", _RETURN),
            Better("A-LoL", "preferred", _RETURN),
        ),
        episodes=200,
    ),
    remarks="The paper's tasks are an assistant and three more, judged by reward models and people; its claims on "
    "diversity, and PPO beside it, are not tried. Here three words are to be said again, learnt from conversations of "
    "somebody who says any word. The head learns in the first 100 of 400 updates; the others make 400 of their own "
    "model. Sizes were set by a look at one seed. What "
    "is not shown: that it does better than the best conversations alone, by ten seeds of each. Second look: ratio, "
    "clip and positive advantages are those of the authors' code. Likely cause: a reward for a whole conversation "
    "tells both the same, and a quarter of its updates went to the head.",
)
