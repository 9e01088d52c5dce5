"""SPIRAL: self-play on zero-sum games by multi-agent multi-turn reinforcement learning."""

from __future__ import annotations

from typing import Any

from thespis.data.feeds import Episodes
from thespis.evidence.claims import Superiority
from thespis.evidence.measures import exploitability, win_rate_vs_random
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.learners.language.rollout_transforms import PlayerBaseline
from thespis.papers.spiral.method import SPIRAL

_KUHN_ENV, _TICTACTOE_ENV = "text:kuhn-duel", "text:tictactoe-duel"
_SHARED_SETTINGS: dict[str, Any] = {
    "model": "tiny",
    "num_layers": 1,
    "hidden_size": 64,
    "learning_rate": 1e-3,
    "minibatch_size": 128,
    "feed": Episodes(num_envs=64),
}
_KUHN_SETTINGS: dict[str, Any] = _SHARED_SETTINGS | {"ent_coef": 0.3}
_SHARED_BASELINE = PlayerBaseline(per_player=False)
_WIN_RATE = win_rate_vs_random(_TICTACTOE_ENV)

PAPER = Paper(
    id="spiral",
    name="SPIRAL",
    citation=SPIRAL.citations[0],
    family="self-play-games",
    summary="One language model plays both sides of zero-sum text games against itself and learns by policy gradient; "
    "the baseline is a running mean of the returns for each game and player.",
    claim="Self-play on games alone improves reasoning elsewhere, and the baseline per role keeps it stable.",
    parts=(
        "thespis.papers.spiral.method:SPIRAL",
        "thespis.learners.language.rollout_transforms:PlayerBaseline",
        "thespis.envs.text.text_games:TextGameEnv",
    ),
    command="thespis train spiral --env text:kuhn-duel --model tiny --steps 50000 --set num_layers=1 hidden_size=64",
    miniature=Trial(
        arms=(
            Arm("poker", SPIRAL(**_KUHN_SETTINGS)),
            Arm("poker, one mean", SPIRAL(**_KUHN_SETTINGS, rollout_transform=_SHARED_BASELINE)),
            Arm("noughts", SPIRAL(**_SHARED_SETTINGS), env=_TICTACTOE_ENV),
            Arm(
                "noughts, one mean", SPIRAL(**_SHARED_SETTINGS, rollout_transform=_SHARED_BASELINE), env=_TICTACTOE_ENV
            ),
        ),
        envs=(_KUHN_ENV,),
        steps=40_000,
        claims=(
            Superiority("poker", "poker, one mean", exploitability(_KUHN_ENV)),
            Superiority("noughts", "noughts, one mean", _WIN_RATE),
        ),
        seeds_per_look=5,
        max_looks=1,
        num_episodes=20,
    ),
    remarks="A one-layer decoder, pretrained on a demonstrator that plays mostly at random, stands for a model of 4B "
    "that reasons before it moves. Transfer from games to mathematics cannot be tested at this size. Kuhn poker and "
    "tic-tac-toe (the arms poker and noughts) are two of the paper's three games, each learned alone; the arms with "
    "one mean share the baseline between players. In poker there is an entropy bonus, which the paper does not have: "
    "without one, self-play cycles where the optimal strategy is mixed. Exploitability is exact. In tic-tac-toe the "
    "greedy policy plays, as either player, against an opponent that marks random free cells. Not shown: that one mean "
    "per player leads to better play than one for both. Checked again: means per player agree with loops over "
    "dialogues. Likely cause: near the optimal strategy of poker, one mean is wrong by only an eighteenth of a chip, "
    "and by the same amount for every response, where one or two chips are won; the noise of sampled games hides it. "
    "Beyond the trial, with a critic of turns (benchmarks/games/lm_self_play.py): after 23 million turns of "
    "tic-tac-toe, with an entropy coefficient of 0.3, a learning rate that decays from 1e-3 to 0 and two layers "
    "pretrained on legal moves for 1,000 steps, the greedy policy won 0.955 of games with means per player besides the "
    "critic (seed 0), 0.953 without (seed 1), and lost none. A run of seed 0 without them ended at 0.952, one with an "
    "entropy coefficient of 0.4 at 0.946. The exploitability in poker after a million turns was 0.04, 0.10 and 0.08 "
    "without means, and 0.12, 0.13 and 0.06 with them. By enumeration, perfect play in tic-tac-toe (all best moves "
    "equally likely) wins 0.873 of games against that opponent and loses none; the entropy-regularized equilibrium "
    "with that coefficient wins 0.953; the best response to the opponent wins 0.967, and may lose.",
)
