"""SPIRAL: self-play on zero-sum games by multi-agent multi-turn reinforcement learning."""

from __future__ import annotations

from thespis.evidence.benches.games import BASELINE, BENCH, EVEN_ENV, SETTINGS
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.measures import exploitability, mean_metric
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.papers.spiral.method import SPIRAL

_EXPLOITABILITY = exploitability()
_GRADIENT_NORM = mean_metric("gradient", larger_is_better=False)

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
        "thespis.envs.games.kuhn_antes:KuhnAntes",
    ),
    command="thespis train spiral --env text:kuhn-duel --model tiny --steps 50000 --set num_layers=1 hidden_size=64",
    miniature=BENCH.trial(
        arms=(
            Arm("SPIRAL", SPIRAL(**SETTINGS)),
            Arm("one mean", BASELINE),
            Arm("no baseline", SPIRAL(**SETTINGS, rollout_transform=None)),
            Arm("one mean, equal antes", BASELINE, env=EVEN_ENV),
        ),
        headline=Comparison("SPIRAL", "one mean", _EXPLOITABILITY),
        mechanisms=(Comparison("SPIRAL", "one mean", _GRADIENT_NORM),),
        context=(
            Comparison("SPIRAL", "no baseline", _EXPLOITABILITY),
            Comparison("one mean, equal antes", "one mean", _EXPLOITABILITY),
            NotApplicable("self-play on games improves reasoning in mathematics", "a model of billions of parameters"),
        ),
    ),
    remarks="A one-layer decoder of 32 units, pretrained on random legal moves, stands for a model of 4B that reasons "
    "before it moves; with it, transfer from games to mathematics cannot be tested. The game is one of the paper's "
    "three, Kuhn poker, with antes of three chips for one player and minus one for the other. Every payoff is that of "
    "Kuhn poker plus two chips for the favored player, so that equilibria and exploitability are the same as with "
    "equal antes. One mean for both players is 0 in a zero-sum game, as without a baseline, except where a response "
    "is illegal before the second player has moved. Both arms have the learning rate and entropy coefficient that "
    "were the best of seven pairs for each. The entropy bonus is not the paper's: without one, self-play cycles where "
    "the optimal strategy is mixed. Exploitability is exact, and that of moves: illegal responses do not count in it. "
    "The mean gradient is the mean norm of the gradient before clipping, with the entropy bonus. Shown with 20 pairs "
    "for both games together; alone, the game that favors the second player would not decide it. With equal antes one "
    "mean also leads to less exploitable play than with unequal ones. The verdict is about play after 1,000 updates: "
    "with twice as many, in the game that favors the first player and on ten tuning seeds, the mean exploitability "
    "was 0.164 with a mean for each player and 0.185 with one. An earlier trial by protocol 1, with equal antes and "
    "five seeds, did not show the claim in poker, nor in tic-tac-toe. With equal antes, near the optimal strategy, "
    "one mean is wrong by only an eighteenth of a chip, where one or two chips are won. Beyond the trial, with a "
    "critic of turns (benchmarks/games/lm_self_play.py): after 23 million turns of tic-tac-toe, with an entropy "
    "coefficient of 0.3, a learning rate that decays from 1e-3 to 0 and two layers pretrained on legal moves for "
    "1,000 steps, the greedy policy won 0.955 of games with means per player besides the critic (seed 0), 0.953 "
    "without (seed 1), and lost none. A run of seed 0 without them ended at 0.952, one with an entropy coefficient of "
    "0.4 at 0.946. The exploitability in poker with equal antes after a million turns was 0.04, 0.10 and 0.08 without "
    "means, and 0.12, 0.13 and 0.06 with them. By enumeration, perfect play in tic-tac-toe (all best moves equally "
    "likely) wins 0.873 of games against random moves and loses none; the entropy-regularized equilibrium with that "
    "coefficient wins 0.953; the best response to the opponent wins 0.967, and may lose.",
    fidelity=(
        Fidelity("players", "one model plays both, and each sees what that player has observed"),
        Fidelity("return", "the same for all of a player's responses: no discount, no KL penalty"),
        Fidelity("decay of the running mean", "0.95 per game, one mean for each player, from 0"),
        Fidelity(
            "which mean is subtracted",
            "that before the game in the code, after it in the paper; every actor has means of its own",
            "that after the batch's 16 games, the same for all of them",
        ),
        Fidelity(
            "rival without baselines per role", "returns as they are", "one mean for both; no baseline is context"
        ),
        Fidelity(
            "illegal response",
            "ends the game: -1.5 for its player, 0.5 for the other",
            "ends the game: its player loses 5 chips to the other, more than any game can cost",
        ),
        Fidelity(
            "reward",
            "1 for who has more chips after five rounds of Kuhn poker, -1 for the other",
            "chips won in one round, with unequal antes",
        ),
        Fidelity(
            "loss",
            "sum or mean over the tokens of a response, by a setting",
            "sum, divided by the number of tokens that a player's responses may have",
        ),
        Fidelity(
            "steps on a batch",
            "two epochs on 128 responses, by the PPO learner of a library",
            "one step on all responses of 16 games, by REINFORCE",
        ),
        Fidelity("responses with an advantage of 0", "left out of the batch", "stay in it, with no policy gradient"),
        Fidelity("entropy bonus", "none", "coefficient 0.6: see above"),
        Fidelity("model", "Qwen3-4B-Base, which thinks before it moves", "one layer of 32 units, moves of one word"),
        Fidelity("learning rate", "1e-6, constant", "1e-3, constant, tuned on the bench"),
    ),
)
