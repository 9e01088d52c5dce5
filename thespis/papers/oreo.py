"""Offline reinforcement learning for LLM multi-step reasoning."""

from __future__ import annotations

from thespis.core.records import Citation
from thespis.evidence.claims import Better
from thespis.evidence.listening import BEST, DATA, ECHO, PREFERRED, SMALL, UPDATES
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.learners.appraising import SoftReturn
from thespis.methods.language.kto import KTO
from thespis.methods.language.oreo import OREO

_RETURN = final_return("sampled")

PAPER = Paper(
    id="oreo",
    name="OREO",
    citation=Citation(
        "Offline Reinforcement Learning for LLM Multi-Step Reasoning", "Wang et al.", 2024, "arXiv:2412.16145"
    ),
    family="language",
    does="Policy and critic are made to agree about the soft Bellman equation at every step of conversations that "
    "somebody had; neither pairs nor fresh ones are needed.",
    claim="Learns more from given attempts at tasks of several steps than rejection sampling, DPO and KTO do.",
    parts=("thespis.methods.language.oreo:OREO", "thespis.learners.appraising:SoftReturn"),
    use="thespis train oreo --data demonstrations:1000 --env text:echo --model tiny",
    miniature=Trial(
        arms=(
            Arm("OREO", OREO(**SMALL, critic=SoftReturn(0.2, turns=True, learning_rate=1e-3)), DATA),
            BEST,
            PREFERRED,
            Arm("judged", KTO(**SMALL, above=1.5), DATA),
        ),
        envs=ECHO,
        steps=UPDATES,
        claims=(
            Better("OREO", "best", _RETURN),
            Better("OREO", "preferred", _RETURN),
            Better("OREO", "judged", _RETURN),
        ),
        episodes=200,
    ),
    remarks="The paper's tasks are school mathematics and ALFWorld. Here three words are to be said again, learnt from "
    "conversations of somebody who says any word; steps are turns, as in the paper's variant by steps, and rewards "
    "come by turns. Beta is 0.2 (theirs: 0.03 for ids). Iterations and search by the critic are not tried. Sizes were "
    "set by a look at one seed.",
)
