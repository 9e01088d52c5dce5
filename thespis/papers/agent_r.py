"""Agent-R: training language model agents to reflect via iterative self-training."""

from __future__ import annotations

from typing import Any

from thespis.core.records import Citation
from thespis.evidence.claims import Better
from thespis.evidence.measures import final_return, learning_area
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.evidence.speaking import STEPS
from thespis.learners.baselines import Alone
from thespis.learners.credit import Whole
from thespis.learners.experience import Experience
from thespis.learners.revisions import Chosen, Revisions
from thespis.learners.utterances import OverTokens
from thespis.methods.language.reinforce import REINFORCE

_COMMON: dict[str, Any] = STEPS | {"credit": Whole(Alone()), "divisor": OverTokens(), "minibatch": 16}


def _learns(experience: Experience) -> REINFORCE:
    return REINFORCE(**_COMMON, experience=experience)


PAPER = Paper(
    id="agent-r",
    name="Agent-R",
    citation=Citation(
        "Agent-R: Training Language Model Agents to Reflect via Iterative Self-Training",
        "Yuan et al.",
        2025,
        "arXiv:2501.11425",
    ),
    family="llm-self-improvement",
    does="An agent learns from its own conversations by likelihood: from those that went well, and from those that "
    "went wrong up to their first error, where it changes its mind and goes on as one did that went well from there.",
    claim="5.59% more reward than other ways to learn in WebShop, ScienceWorld and TextCraft, learning from good "
    "trajectories alone among them.",
    parts=(
        "thespis.learners.revisions:Revisions",
        "thespis.learners.revisions:Chosen",
        "thespis.envs.text.take_back:TakeBack",
        "thespis.methods.language.reinforce:REINFORCE",
    ),
    use="thespis train reinforce --env thespis.evidence.speaking:MENDED --model tiny --steps 50000 --set "
    "experience=Revisions credit=Whole credit.baseline=Alone divisor=OverTokens feed.group=8",
    miniature=Trial(
        arms=(Arm("revisions", _learns(Revisions())), Arm("good ones alone", _learns(Chosen()))),
        envs=("thespis.evidence.speaking:MENDED",),
        steps=40 * 10 * 64,
        claims=(
            Better("revisions", "good ones alone", final_return("sampled")),
            Better("revisions", "good ones alone", learning_area()),
        ),
        batch=5,
        looks=2,
        episodes=100,
    ),
    remarks="A maze of sixteen cells, told in words, in which one's last step can be taken back, and a decoder of two"
    " layers, taught by a demonstrator that is lost in six of ten cells, stand for three environments and a "
    "model of 8B. Eight conversations from each beginning stand for Monte Carlo tree search. The first error "
    "is the first utterance after which none of them went well, where in the paper the actor itself is asked "
    "whether a step was good: a model that was made here cannot be asked. Every batch is an iteration; theirs"
    " are few and large, and ask for more from one to the next. That one changes one's mind is said by saying"
    " nothing, which this world understands, and answers as it did before the error; in theirs nothing is "
    "taken back, and a sentence of reflection is answered by a fixed word. A wrong step can be walked back, "
    "too, for as many turns, so that good conversations hold recoveries of their own. Revision at the end of "
    "a bad trajectory, general data mixed in, and preferences are not tried. Sizes were set by looks at "
    "single seeds. Second look: the code revises what the declaration says, and the two arms end alike (0.87 "
    "and 0.89); what is contradicted is the area. Revised are conversations that went wrong, a quarter of "
    "them halfway and fewer later. With them the actor stays more spread out (an entropy of 0.64 to 0.67 "
    "against 0.52 to 0.56 halfway), for in the same places it learns both to go on and to say nothing. Here a"
    " wrong step can also be walked back at the cost of one turn more, which good conversations show, so that"
    " there likely is nothing to gain by another way to do that.",
)
