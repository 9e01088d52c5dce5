"""SWEET-RL: training multi-turn LLM agents on collaborative reasoning tasks."""

from __future__ import annotations

from thespis.evidence.claims import Better
from thespis.evidence.listening import ASKER, KNOWN, SECRETS
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.learners.merits import Merits
from thespis.methods.language.dpo import DPO
from thespis.methods.language.sft import SFT
from thespis.methods.language.sweet import SWEET

_RETURN, _FIRST = final_return("sampled"), 300
_CRITIC = Merits(first=_FIRST, learning_rate=1e-3)

PAPER = Paper(
    id="sweet-rl",
    name="SWEET-RL",
    citation=SWEET.citations[0],
    family="llm-agent-rl",
    does="A critic that reads what the actor must find out learns, from pairs of conversations, what each turn is "
    "worth, as a mean log-ratio of ids; it ranks what the actor might say at a turn, and the actor learns to prefer "
    "the better half.",
    claim="6% more successes and wins on ColBench than other multi-turn methods, multi-turn DPO among them; the "
    "critic's asymmetry matters.",
    parts=(
        "thespis.methods.language.sweet:SWEET",
        "thespis.learners.merits:Merits",
        "thespis.envs.text.task:Hides",
    ),
    use="thespis train sweet-rl --data demonstrations:1000 --env text:questions-told --model tiny",
    miniature=Trial(
        arms=(
            Arm("SWEET-RL", SWEET(**ASKER, critic=_CRITIC), KNOWN),
            Arm("told nothing", SWEET(**ASKER, critic=_CRITIC, informed=False), KNOWN),
            Arm("preferred", DPO(**ASKER), KNOWN),
            Arm("best", SFT(**ASKER, least=0.5), KNOWN),
        ),
        envs=SECRETS,
        steps=2 * _FIRST,
        claims=(
            Better("SWEET-RL", "preferred", _RETURN),
            Better("SWEET-RL", "told nothing", _RETURN),
            Better("SWEET-RL", "best", _RETURN),
        ),
        batch=5,
        looks=2,
        episodes=200,
    ),
    remarks="One animal of eight is to be found in four questions and guesses, by a decoder of two layers that was "
    "taught by somebody who asks and guesses anything every second time; the paper's agents are Llamas of 8B and more "
    "that write programs and pages with a simulated partner. Of its benchmark nothing is here. Pairs are of games with "
    "the same animal, one won and one lost. The critic learns in the first half of the updates; the others learn in "
    "all. Eight utterances are ranked where the paper has sixteen. Wins by a judge, and value functions as rivals, are "
    "not tried. Sizes were set by a look at one seed.",
)
