"""SWEET-RL: training multi-turn LLM agents on collaborative reasoning tasks."""

from __future__ import annotations

from typing import Any

from thespis.core.feeds import LoggedEpisodes
from thespis.evidence.claims import Better
from thespis.evidence.listening import ASKER, DATA, SECRETS
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.evidence.speaking import TALKER
from thespis.learners.merits import Merits
from thespis.methods.language.dpo import DPO
from thespis.methods.language.sft import SFT
from thespis.methods.language.sweet import SWEET

_RETURN, _FIRST = final_return("sampled"), 150
_SWEET: dict[str, Any] = ASKER | {"candidates": 4, "critic": Merits(first=_FIRST, learning_rate=1e-3)}

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
            Arm("SWEET-RL", SWEET(**_SWEET), DATA),
            Arm("told nothing", SWEET(**_SWEET, informed=False), DATA),
            Arm("preferred", DPO(**ASKER), DATA),
            Arm("best", SFT(**TALKER, least=0.5, feed=LoggedEpisodes(batch=32)), DATA),
        ),
        envs=SECRETS,
        steps=3 * _FIRST,
        claims=(
            Better("SWEET-RL", "preferred", _RETURN),
            Better("SWEET-RL", "told nothing", _RETURN),
            Better("SWEET-RL", "best", _RETURN),
        ),
        batch=5,
        looks=2,
        episodes=200,
    ),
    remarks="One animal of four is to be found in three questions and guesses, by a decoder of two layers that was "
    "taught by somebody who asks and guesses anything every second time; the paper's agents are Llamas of 8B and "
    "more that write programs and pages with a simulated partner. Of its benchmark nothing is here. Pairs are of "
    "games with the same animal, one won and one lost. The critic learns in the first third of the updates; the "
    "others learn in all. Beta of the actors' preferences is 1, as utterances are short; theirs and the critic's is "
    "0.1. Four utterances are ranked where the paper has sixteen. Sizes were set by looks at one seed: in these the "
    "actor bettered what it began with, but by guessing at once, in which the critic finds more merit than in a "
    "question, and likelihood of games that were won did better; preference of whole conversations lost, in a "
    "longer game, what the model had been taught, at smaller steps too. The claims are as they were before. Wins by "
    "a judge, and value functions as rivals, are not tried. In ten seeds likelihood of the games that were won "
    "ended far ahead (0.71 of games against 0.37): with half of the teacher's sentences drawn at random a game that "
    "was won holds more about what to ask than the order of a critic that reads its merits off pairs, and by which "
    "a lucky guess is the best thing to say. What the critic is told changed little: with four animals three turns "
    "of a conversation tell it nearly as much.",
)
