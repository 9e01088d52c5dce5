"""AI safety via debate."""

from __future__ import annotations

from thespis.core.feeds import Rollouts
from thespis.core.records import Citation
from thespis.evidence.claims import AtLeast, Better
from thespis.evidence.debating import help_to_judge, judge_accuracy
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.methods.games.alphazero import AlphaZero
from thespis.nets.residual import Flat

_WORLD = "thespis.envs.games.debate"
_PLAYERS = AlphaZero(
    board=Flat(),
    hidden=(128, 128),
    simulations=16,
    playing=32,
    considered=16,
    feed=Rollouts(length=6, envs=128),
)

PAPER = Paper(
    id="debate",
    name="Debate",
    citation=Citation("AI safety via debate", "Irving et al.", 2018, "arXiv:1805.00899"),
    family="self-play-games",
    does="Two players who each claim what a picture shows choose, in turn, which of its pixels a weak judge may see; "
    "self-play makes both persuasive, and the judge decides between the claims.",
    claim="On digits of which a judge sees six pixels, debate takes its accuracy from 59.4% with random ones to 88.9%, "
    "and from 48.2% to 85.2% with four.",
    parts=(
        "thespis.envs.games.debate:Debate",
        "thespis.envs.games.debate:Adviser",
        "thespis.envs.games.digits:Judge",
        "thespis.methods.games.alphazero:AlphaZero",
        "thespis.evidence.debating:judge_accuracy",
    ),
    use=f"thespis train alphazero --env {_WORLD}:SIX --steps 40000 "
    "--set board=Flat hidden=128,128 simulations=16 length=6 envs=128",
    miniature=Trial(
        arms=(
            Arm("debate of six pixels", _PLAYERS),
            Arm("debate of four pixels", _PLAYERS, env=f"{_WORLD}:FOUR"),
            Arm("one adviser, honest or not", _PLAYERS, env=f"{_WORLD}:ADVISED"),
        ),
        envs=(f"{_WORLD}:SIX",),
        steps=40_000,
        claims=(
            AtLeast("debate of six pixels", help_to_judge(), 0.0),
            AtLeast("debate of four pixels", help_to_judge(), 0.0),
            Better("debate of six pixels", "one adviser, honest or not", judge_accuracy()),
        ),
        batch=3,
        looks=1,
        episodes=4,
    ),
    remarks="Digits of 8 x 8 pixels in place of 28 x 28; a judge of one hidden layer, trained once on two thirds of "
    "them, is right about 46% and 60% of the others from four and six random pixels, nearly as the paper's. As there, "
    "claims are made first, all nine lies about a digit are tried, and one that wins is enough; the honest player "
    "speaks first in half of the games. Players learn (AlphaZero, 16 simulations, 32 when measured) where the "
    "paper searches without learning, with 10,000. 40 digits per seed that neither judge nor players have learnt "
    "by; seeds differ in the players, not in the judge. Sizes were set by two looks: 71% with six "
    "pixels after 20,000 steps (seeds 0 and 1, which are also among the trial's), 63% with half the simulations. "
    "The complexity theory, and human judges, are not "
    "tried. Alone, an adviser is believed on 97% of digits where it is honest, and where it lies the truth prevails "
    "on 7%. What is not shown: with six pixels all three seeds help the judge, by 4 to 10 points, and all three are "
    "above a lone adviser (64 to 70% against 50 to 54%), but three seeds a side cannot decide a comparison of two "
    "arms, and leave the interval of the first claim at -0.6 points: too few were declared. Second look: rules, "
    "verdicts and the search's last word agree with brute force. Four pixels help by 18 to 23 points. That six "
    "hardly take the judge further than four (67% both) is probably the players': more pixels are a deeper game "
    "for a search of 32 simulations, and in the looks the player who spoke last won far more often, honest or "
    "not.",
)
