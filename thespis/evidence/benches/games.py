"""Bench of self-play in zero-sum text games whose rules favor one player.

Kuhn poker in which one player pays an ante of three chips and the other receives one, so that a game is worth nearly
two chips to the favored player. A language model plays both players. Equilibria and exploitability are those of Kuhn
poker with equal antes, but most of the variance of returns is due to the player's number, which no response changes.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float

from thespis.data.feeds import Episodes
from thespis.envs.games.game_tree import build_game_tree, uniform_policy
from thespis.envs.games.kuhn_antes import KuhnAntes
from thespis.envs.games.self_play import SelfPlayEnv
from thespis.envs.registry import make_compiled
from thespis.envs.text.kuhn import CARDS, Kuhn
from thespis.envs.text.text_games import TextGame, TextGameEnv
from thespis.evaluation.exploitability import evaluate_policy_table
from thespis.evaluation.run import Run
from thespis.evidence.bench import Bench, Headroom, Symptom
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import Measure, exploitability
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm
from thespis.learners.language.rollout_transforms import PlayerBaseline
from thespis.methods.games.cfr_plus import CFRPlus
from thespis.papers.spiral.method import SPIRAL


def _text_poker(first_ante: int, second_ante: int) -> TextGameEnv:
    """Kuhn poker with these antes as a text game; a response that is no move costs more than any game can."""
    task_spec = dataclasses.replace(Kuhn().task_spec, name=f"text:kuhn-antes-{first_ante}-{second_ante}")
    game = TextGame(KuhnAntes((first_ante, second_ante)), task_spec, ("bet", "pass"), CARDS)
    return TextGameEnv(game, forfeit_penalty=5.0)


FIRST_FAVORED, SECOND_FAVORED, EVEN = _text_poker(-1, 3), _text_poker(3, -1), _text_poker(1, 1)
FIRST_FAVORED_MOVES, SECOND_FAVORED_MOVES = (SelfPlayEnv(KuhnAntes(antes)) for antes in ((-1, 3), (3, -1)))
"""The same games with moves instead of texts, for methods with tables."""
FIRST_FAVORED_ENV, SECOND_FAVORED_ENV, EVEN_ENV = (
    f"{__name__}:{name}" for name in ("FIRST_FAVORED", "SECOND_FAVORED", "EVEN")
)
ENVS = (FIRST_FAVORED_ENV, SECOND_FAVORED_ENV)
STEPS = 48_000
SETTINGS: dict[str, Any] = {
    "model": "tiny",
    "num_layers": 1,
    "hidden_size": 32,
    "learning_rate": 1e-3,
    "ent_coef": 0.6,
    "minibatch_size": 32,
    "feed": Episodes(num_envs=16),
}
"""Settings of all language models: 1,000 updates, each on 16 games of two players."""


def player_variance_share() -> Measure:
    """Share of the variance of sampled returns of both players that is due to the difference of the players' means."""

    def shares(run: Run) -> Float[np.ndarray, " seed"]:
        final: Any = run.final_scores
        first = np.asarray(final["sampled"]["scores"], np.float64)  # what the first player wins, the second loses
        return np.square(first.mean(axis=1)) / np.square(first).mean(axis=1)

    return Measure("share of the variance of returns that is due to the player's number", shares, False)


def uniform_exploitability() -> Measure:
    """Exact exploitability of uniformly random play in the run's game."""

    def exploitabilities(run: Run) -> Float[np.ndarray, " seed"]:
        game: Any = make_compiled(run.config["env"]).spec.game
        tree = build_game_tree(game)
        value = evaluate_policy_table(tree, uniform_policy(tree)).exploitability
        return np.full(len(run.config["seeds"]), value)

    return Measure("exploitability of uniform play", exploitabilities, False)


BASELINE = SPIRAL(**SETTINGS, rollout_transform=PlayerBaseline(per_player=False))
_COPY = dataclasses.replace(BASELINE, learning_rate=1.0001e-3)
_SLOW = dataclasses.replace(BASELINE, learning_rate=1e-5)
_EQUILIBRIUM = CFRPlus(num_iterations=10)

BENCH = Bench(
    name="games",
    version=1,
    summary="Kuhn poker with unequal antes in text: self-play of a language model in games whose rules favor a player.",
    envs=ENVS,
    steps=STEPS,
    arms=(
        Arm("one mean", BASELINE),
        Arm("one mean again", _COPY),
        Arm("hardly any learning", _SLOW),
        Arm(
            "equilibrium",
            _EQUILIBRIUM,
            env={
                FIRST_FAVORED_ENV: f"{__name__}:FIRST_FAVORED_MOVES",
                SECOND_FAVORED_ENV: f"{__name__}:SECOND_FAVORED_MOVES",
            },
            steps=100,
        ),
    ),
    positive=Comparison("one mean", "hardly any learning", exploitability()),
    negative=Comparison("one mean", "one mean again", exploitability()),
    headroom=Headroom("one mean", "equilibrium", exploitability(), uniform_exploitability()),
    symptoms=(Symptom("one mean", player_variance_share(), 0.4),),
    tuning="SPIRAL with a mean for each player and with one for both, on seeds 1,100 to 1,109 of the game that favors "
    "the first player, by the mean exploitability after 48,000 steps. Learning rates and entropy coefficients, with "
    "the results of both: 3e-3 and 0.3 (0.304, 0.273), 1e-2 and 0.3 (0.373, 0.400), 3e-3 and 1 (0.271, 0.331), 1e-3 "
    "and 1 (0.282, 0.305), 1e-3 and 0.6 (0.194, 0.249), 1e-3 and 0.4 (0.201, 0.299), 3e-3 and 0.6 (0.196, 0.257). "
    "Both are best with 1e-3 and 0.6. With these, after 96,000 steps: 0.164 and 0.185; in the game that favors the "
    "second player, after 48,000: 0.200 and 0.252. Before that, with antes of 0 and 2 chips, 64 units and a "
    "coefficient of 0.3: a learning rate of 1e-3 with 40,000 steps of 64 games in parallel (0.277 and 0.292; 0.279 "
    "without a baseline), and one of 3e-3 with 100,000 steps of 16 games (0.235 and 0.291). Uniform play has 0.458.",
    looks=plan_looks((20, 40)),
)
