"""AI safety via debate."""

from __future__ import annotations

from thespis.core.records import Citation
from thespis.data.feeds import Rollouts
from thespis.evidence.claims import MinimumScore, Superiority
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.methods.games.alphazero import AlphaZero
from thespis.papers.debate.measures import judge_accuracy, judge_accuracy_gain

_ENV_MODULE = "thespis.papers.debate.envs"
_ALPHAZERO = AlphaZero(
    board_encoder=None,
    hidden_sizes=(128, 128),
    num_simulations=16,
    num_eval_simulations=32,
    max_num_considered_actions=16,
    feed=Rollouts(num_steps=6, num_envs=128),
)

PAPER = Paper(
    id="debate",
    name="Debate",
    citation=Citation("AI safety via debate", "Irving et al.", 2018, "arXiv:1805.00899"),
    family="self-play-games",
    summary="Two players each claim what an image shows and, in turn, reveal pixels of it to a weak judge, which "
    "decides between the claims. Self-play trains both players to convince the judge.",
    claim="If the judge sees six pixels of a digit, debate raises its accuracy from 59.4% (random pixels) to 88.9%, "
    "and with four pixels from 48.2% to 85.2%.",
    parts=(
        "thespis.papers.debate.envs:Debate",
        "thespis.papers.debate.envs:SingleSpeaker",
        "thespis.papers.debate.judge:PixelJudge",
        "thespis.methods.games.alphazero:AlphaZero",
        "thespis.papers.debate.measures:judge_accuracy",
    ),
    command=f"thespis train alphazero --env {_ENV_MODULE}:DEBATE_6 --steps 40000 "
    "--set board_encoder=none hidden_sizes=128,128 num_simulations=16 num_steps=6 num_envs=128",
    miniature=Trial(
        arms=(
            Arm("debate of six pixels", _ALPHAZERO),
            Arm("debate of four pixels", _ALPHAZERO, env=f"{_ENV_MODULE}:DEBATE_4"),
            Arm("one adviser, honest or not", _ALPHAZERO, env=f"{_ENV_MODULE}:SINGLE_SPEAKER_DEBATE"),
        ),
        envs=(f"{_ENV_MODULE}:DEBATE_6",),
        steps=40_000,
        claims=(
            MinimumScore("debate of six pixels", judge_accuracy_gain(), 0.0),
            MinimumScore("debate of four pixels", judge_accuracy_gain(), 0.0),
            Superiority("debate of six pixels", "one adviser, honest or not", judge_accuracy()),
        ),
        seeds_per_look=3,
        max_looks=1,
        num_episodes=4,
    ),
    remarks="Digits of 8 x 8 pixels replace digits of 28 x 28. The judge has one hidden layer and is trained once, on "
    "two thirds of the digits; on the others its accuracy is about 46% with four random pixels and 60% with six, "
    "nearly that of the paper's judge. As in the paper, claims are made before pixels are revealed, all nine false "
    "labels of a digit are tried, and the digit counts as misclassified if one of them wins. The honest player moves "
    "first in half of the games. Players learn by AlphaZero with 16 simulations (32 in evaluation), where the paper "
    "searches without learning, with 10,000. Each seed is evaluated on 40 digits that were not used to train judge or "
    "players. Seeds differ in the players, not in the judge. The complexity theory and human judges are not tested. "
    "Sizes were chosen after two preliminary runs: accuracy was 71% with six pixels after 20,000 steps (seeds 0 and "
    "1, which are also in the trial) and 63% with half the simulations. A single honest player is believed on 97% of "
    "the digits; where the single player lies, the truth wins on 7%. Not shown: the claims with six pixels. All three "
    "seeds help the judge, by 4 to 10 points, and all three are above the single player (64 to 70% against 50 to "
    "54%), but three seeds per arm cannot decide a comparison of two arms, and the interval of the first claim "
    "reaches down to -0.6 points: too few seeds were declared. Four pixels help by 18 to 23 points. Checked again: "
    "rules, judge decisions and the last move of the search agree with brute force. Likely cause of the same accuracy "
    "(67%) with six pixels as with four: the players. More pixels make a deeper game for a search with 32 "
    "simulations, and in the preliminary runs the player that moved last won far more often, honest or not.",
)
