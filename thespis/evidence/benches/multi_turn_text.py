"""Bench of delayed rewards in dialogues: language models that choose in eight turns and are told a score at the end.

The menu task of :mod:`thespis.papers.spa_rl.envs`: every choice contributes its own share to the score, and the outcome
alone does not say which choices were good. Responses are two tokens long and the model has one layer, so that twenty
seeds train together in a minute or two.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float

from thespis.core.contracts import Mode
from thespis.data.feeds import Episodes
from thespis.envs.registry import make_compiled
from thespis.evaluation.run import Run
from thespis.evidence.bench import Bench, Headroom, Symptom
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import Measure, final_return, learning_curve_auc, play_in, untrained_return
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm
from thespis.learners.language.advantage_estimators import TurnGAE
from thespis.learners.optim.optimizers import OptaxOptimizer
from thespis.methods.language.ppo_lm import LanguagePPO

MENU_ENV, DELAYED_MENU_ENV = (f"thespis.papers.spa_rl.envs:{name}" for name in ("MENU", "DELAYED_MENU"))
NUM_UPDATES, NUM_DIALOGUES, NUM_TURNS = 38, 16, 8
STEPS = NUM_UPDATES * NUM_DIALOGUES * NUM_TURNS
SETTINGS: dict[str, Any] = {
    "num_layers": 1,
    "hidden_size": 32,
    "num_pretrain_steps": 500,
    "optimizer": OptaxOptimizer("adam(b2=0.95)"),
    "kl_penalty": None,
    "minibatch_size": 8,
    "feed": Episodes(max_steps=NUM_TURNS, num_envs=NUM_DIALOGUES),
}
"""Settings of all methods. The model is pretrained on a demonstrator that chooses at random: it knows the form of the
responses and nothing else. Adam forgets fast, so that a policy that has only explored does not begin with large steps,
and without a penalty it stays as it is until it is rewarded."""

FINAL_RETURN = final_return("sampled")
BASELINE = LanguagePPO(**SETTINGS, learning_rate=1e-3, advantage_estimator=TurnGAE(1.0))
"""PPO on the outcome, with a critic of turns."""
MYOPIC = dataclasses.replace(BASELINE, advantage_estimator=TurnGAE(0.0))
"""PPO that credits a turn with its own reward and the change of the critic's value: for rewards of turns."""
_REFERENCE = dataclasses.replace(BASELINE, learning_rate=5e-4, advantage_estimator=TurnGAE(0.5))
_COPY = dataclasses.replace(BASELINE, learning_rate=1.000001e-3)


def misattributed_share(num_episodes: int = 200) -> Measure:
    """Share of sampled turns whose own reward and the outcome are on different sides of their means.

    What the outcome alone says of a turn is wrong that often. Turns of all dialogues of a seed count alike; the run's
    environment must be a :class:`~thespis.envs.text.delayed_reward.DelayedReward`.
    """

    def shares(run: Run) -> Float[np.ndarray, " seed"]:
        env: Any = make_compiled(run.config["env"])
        paid_env = dataclasses.replace(env, task=env.task.task)
        result = play_in(run, paid_env, num_episodes, Mode.SAMPLE, "credit", num_kept=num_episodes)
        return np.array([disagreement([step.reward for step in episodes]) for episodes in result.episodes])

    return Measure("share of turns that the outcome misjudges", shares, False, bounds=(0.0, 1.0))


def disagreement(rewards: list[np.ndarray]) -> float:
    """Share of turns whose reward and whose dialogue's return are on different sides of their means.

    ``rewards``: those of each dialogue's turns.
    """
    own = np.concatenate(rewards)
    outcome = np.concatenate([np.full(len(turns), turns.sum()) for turns in rewards])
    return float(((own > own.mean()) != (outcome > np.mean([turns.sum() for turns in rewards]))).mean())


BENCH = Bench(
    name="multi-turn-text",
    version=1,
    summary="Eight choices in a dialogue, scored together at the end: methods that find out which turn earned what.",
    envs=(DELAYED_MENU_ENV,),
    steps=STEPS,
    arms=(
        Arm("outcome", BASELINE),
        Arm("outcome again", _COPY),
        Arm("true progress", MYOPIC, env=MENU_ENV),
        Arm("true progress, twice as long", _REFERENCE, env=MENU_ENV, steps=2 * STEPS),
    ),
    positive=Comparison("true progress", "outcome", learning_curve_auc()),
    negative=Comparison("outcome", "outcome again", FINAL_RETURN),
    headroom=Headroom("outcome", "true progress, twice as long", FINAL_RETURN, untrained_return()),
    symptoms=(Symptom("outcome", misattributed_share(), 0.3),),
    tuning="All on seeds 1,100 to 1,109, by the mean return of sampled play at the end. PPO on the outcome, with "
    "lambda, learning rate, epochs and number of updates: 0.644 (0.95, 1e-3, 2, 32), 0.715 (0.95, 1e-3, 2, 40), 0.650 "
    "(0.95, 2e-3, 2, 40), 0.754 (1, 1e-3, 2, 40), 0.757 (0.95, 1e-3, 4, 44), 0.744 (1, 1e-3, 4, 36), 0.813 (1, 1e-3, "
    "4, 48). Four epochs learn faster at first, but their seeds differ twice as much. PPO on shares, always with "
    "lambda 0 and a learning rate of 1e-3, with batches of exploration, the estimator's learning rate, epochs and "
    "updates: 0.691 (14, 3e-3, 2, 32), 0.824 (16, 1e-3, 2, 40), 0.754 (14, 1e-3, 4, 36); with 0.125 for accepted "
    "dishes in place of the penalty 0.662 (14, 3e-3, 2, 32). True progress with lambda 0: 0.862 (1e-3, 2, 40) and "
    "0.871 (1e-3, 2, 36); with lambda 0.5, 0.899 (5e-4, 2, 80), which is the best known: the outcome had 0.869 (1, "
    "1e-3, 2, 120) and 0.839 (1, 1e-3, 4, 108). Before training the model returns 0.266. The number of updates was "
    "chosen for headroom, and so that there is time to learn after exploration. With twelve courses in a dialogue, 40 "
    "updates the outcome had 0.849 (lambda 1, 4 epochs) and shares 0.662 (lambda 0, 2 epochs). Before refusals were "
    "part of the task, fourteen more trials: six of the outcome (lambda 0.95; 1e-3 or 3e-3; 2 or 4 epochs; 32 to 60 "
    "updates) and eight of shares (lambda 0 or 0.5; 1e-3 or 3e-3; 2 or 4 epochs; without a buffer, or 12 or 14 "
    "batches of exploration; 32 to 60 updates), with a penalty for the distance from the initial model or without. "
    "Two other tasks were given up: in a maze of nine cells with six turns PPO did not learn from the outcome; in the "
    "echo task the estimator learned nothing from the sum.",
    looks=plan_looks((20,)),
)
