"""SPIRAL: self-play on zero-sum games by multi-agent multi-turn reinforcement learning."""

from __future__ import annotations

from typing import Any

from thespis.core.feeds import Episodes
from thespis.evidence.claims import Better
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.evidence.seats import exploitability, share_won
from thespis.learners.experience import BySeat
from thespis.methods.language.spiral import Spiral

_CARDS, _DUEL = "text:kuhn-duel", "text:tictactoe-duel"
_COMMON: dict[str, Any] = {
    "model": "tiny",
    "layers": 1,
    "width": 64,
    "learning_rate": 1e-3,
    "minibatch": 128,
    "feed": Episodes(envs=64),
}
_POKER: dict[str, Any] = _COMMON | {"entropy_weight": 0.3}
_ONE = BySeat(apart=False)
_WON = share_won(_DUEL)

PAPER = Paper(
    id="spiral",
    name="SPIRAL",
    citation=Spiral.citations[0],
    family="self-play-games",
    does="One language model speaks from both seats of games of words against itself as it is; a running mean for each "
    "game and seat is what its winnings are compared with.",
    claim="Self-play on games alone improves reasoning elsewhere, and it is the baseline by role that keeps it stable.",
    parts=(
        "thespis.methods.language.spiral:Spiral",
        "thespis.learners.experience:BySeat",
        "thespis.envs.text.told:Duel",
    ),
    use="thespis train spiral --env text:kuhn-duel --model tiny --steps 50000 --set layers=1 width=64",
    miniature=Trial(
        arms=(
            Arm("poker", Spiral(**_POKER)),
            Arm("poker, one mean", Spiral(**_POKER, experience=_ONE)),
            Arm("noughts", Spiral(**_COMMON), env=_DUEL),
            Arm("noughts, one mean", Spiral(**_COMMON, experience=_ONE), env=_DUEL),
        ),
        envs=(_CARDS,),
        steps=40_000,
        claims=(
            Better("poker", "poker, one mean", exploitability(_CARDS)),
            Better("noughts", "noughts, one mean", _WON),
        ),
        batch=5,
        looks=1,
        episodes=20,
    ),
    remarks="A decoder of one layer, taught by a demonstrator that plays mostly at random, stands for one of 4B that "
    "thinks before it moves; what games teach of mathematics cannot be tried at this size. Kuhn's poker and "
    "tic-tac-toe are two of their three games, each learnt alone. In poker there is an entropy bonus, which "
    "theirs has not: without one self-play goes in circles where the best play is mixed. Exploitability is "
    "exact; in tic-tac-toe greedy play meets an opponent who marks any free cell, from both seats. What is "
    "not shown: that a mean for each seat leads to better play than one for both. Second look: means of seats"
    " agree with loops over conversations. Likely cause: near the best play of poker one mean errs by an "
    "eighteenth of a chip only, and by the same whatever was said, where what is won is one or two; the noise"
    " of sampled games hides it. "
    "Beyond the trial, with a critic of turns (benchmarks/games/talkers.py): after 23 million turns of "
    "noughts, an entropy weight of 0.3, steps that fall from 1e-3 to nothing and two layers taught legal moves "
    "for 1,000 steps, greedy play won 0.955 of games with means of seats beside the critic (seed 0), 0.953 "
    "without (seed 1), and lost none; a look at seed 0 without them ended at 0.952, one with an entropy weight of "
    "0.4 at 0.946. Poker was exploitable by 0.04, 0.10 and 0.08 after a million turns without means, by 0.12, "
    "0.13 and 0.06 with them. By enumeration, play that is perfect in tic-tac-toe (all best moves alike often) "
    "wins 0.873 of games against that opponent and loses none, the softened equilibrium of that entropy weight "
    "0.953; the best reply to it wins 0.967, and may lose.",
)
