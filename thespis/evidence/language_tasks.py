"""Environments, datasets, model sizes and measures that trials of language models share."""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.data.feeds import Episodes, PreferencePairs
from thespis.envs.text.correction import Correction
from thespis.envs.text.countdown import Countdown
from thespis.envs.text.fixed_tasks import FixedTasks
from thespis.envs.text.household import Household
from thespis.envs.text.maze import Maze
from thespis.envs.text.questions import Questions
from thespis.envs.text.review import Review
from thespis.envs.text.task import TextEnv
from thespis.evidence.measures import Measure, modified_env_return
from thespis.learners.language.preference_losses import SigmoidLoss
from thespis.papers.agent_r.envs import UndoTask

COUNTDOWN = TextEnv(Countdown(num_numbers=2, max_turns=1))
"""One turn: combine two numbers and an operator to a third number. Random success is 1/6."""
COUNTDOWN_FROM_HALF = TextEnv(Countdown(num_numbers=2, max_turns=1, demonstrator_noise=0.3))
"""``COUNTDOWN`` with a demonstrator that is random in 30% of its attempts: pretrained models are often right."""
MAZE_3X3 = TextEnv(Maze(size=3, max_turns=6))
"""Up to six turns to a corner of nine cells."""
MAZE_EXPERT = TextEnv(Maze(demonstrator_random_cells=0.0))
"""``text:maze`` with an expert demonstrator."""
MAZE_2X2 = TextEnv(Maze(size=2, max_turns=3))
"""Up to three turns from one of four cells to another."""
MAZE_2X2_EXPERT = TextEnv(Maze(size=2, max_turns=3, demonstrator_random_cells=0.0))
"""The same with an expert demonstrator."""
COUNTDOWN_EXPERT = TextEnv(Countdown(num_numbers=2, max_turns=1, demonstrator_noise=0.0))
"""``COUNTDOWN`` with an expert demonstrator."""
_HOUSEHOLD_TASK = Household(max_turns=8, num_places=3, demonstrator_noise=0.3)
HOUSEHOLD = TextEnv(_HOUSEHOLD_TASK)
"""Up to eight commands in a household of three places, with a sparse reward at the end."""
HOUSEHOLD_DENSE_REWARD = TextEnv(dataclasses.replace(_HOUSEHOLD_TASK, subgoal_reward=0.25))
"""The same with rewards for subgoals."""
HOUSEHOLD_200 = TextEnv(dataclasses.replace(_HOUSEHOLD_TASK, num_layouts=200))
"""The same with 200 initial states, so that others are unseen in training."""
MAZE_4X4_RANDOM = TextEnv(Maze(size=4, max_turns=8, demonstrator_random_cells=1.0))
"""Up to eight turns to a corner of sixteen cells, with a random demonstrator."""
MAZE_4X4_UNDO = TextEnv(UndoTask(Maze(size=4, max_turns=8), extra_turns=2))
"""Up to ten turns to a corner of sixteen cells; the last step can be undone."""
COUNTDOWN_64 = TextEnv(FixedTasks(Countdown(num_numbers=2, max_turns=1, demonstrator_noise=0.95), num_tasks=64))
"""64 tasks of ``COUNTDOWN``, with a demonstrator that is random in 95% of its attempts."""
COUNTDOWN_64_EXPERT = TextEnv(FixedTasks(COUNTDOWN_EXPERT.task, num_tasks=64))
"""The same tasks with an expert demonstrator."""
_SUM_TASK = Correction(num_digits=1, first_reward=1.0, demonstrator_noise=0.3)
SUM_CORRECTION = TextEnv(_SUM_TASK)
"""A sum of two digits in two attempts, without feedback after the first; both attempts are rewarded."""
SUM_COPIES = TextEnv(dataclasses.replace(_SUM_TASK, demonstrator_copies=0.65))
"""The same with a demonstrator that cannot correct itself: it often repeats its first answer, right or wrong."""
SUM_EXPERT = TextEnv(dataclasses.replace(_SUM_TASK, demonstrator_noise=0.0))
"""The same with an expert demonstrator."""

REVIEW_SENTIMENT = TextEnv(Review())
"""One turn: three clauses of praise or blame after a first clause of either. Praise is rewarded; chance gives half."""
REVIEW_PRAISE = TextEnv(Review(demonstrator_noise=0.0))
"""The same with a demonstrator that only praises."""

TINY_MODEL: dict[str, Any] = {"model": "tiny", "num_layers": 2, "hidden_size": 64}
"""A tiny model that trains in minutes."""
SINGLE_TURN_SETTINGS: dict[str, Any] = TINY_MODEL | {"feed": Episodes(max_steps=1, group_size=16, num_envs=128)}
"""One turn: eight prompts with sixteen responses each."""
THREE_TURN_SETTINGS: dict[str, Any] = TINY_MODEL | {"feed": Episodes(max_steps=3, group_size=8, num_envs=64)}
"""Up to three turns: eight initial states with eight dialogues each."""
PRETRAINED_MODEL: dict[str, Any] = TINY_MODEL | {"num_pretrain_steps": 1000}
"""The tiny model with long pretraining: random responses solve household tasks too rarely."""
HOUSEHOLD_SETTINGS: dict[str, Any] = PRETRAINED_MODEL | {"feed": Episodes(max_steps=8, group_size=8, num_envs=64)}
"""Up to eight turns in a household."""


def household_success_rate() -> Measure:
    """Success rate in ``HOUSEHOLD``, whatever subgoal rewards training had."""
    return Measure("share of tasks that are done", modified_env_return(400, "sampled", task=_HOUSEHOLD_TASK).compute)


def unseen_home_success_rate() -> Measure:
    """Success rate in initial states that were not in training."""
    return Measure("share of tasks that are done in homes not seen before", household_success_rate().compute)


def unseen_minus_seen_rate() -> Measure:
    """Success rate in unseen initial states minus that in the ones of training."""
    training_rate, unseen_rate = modified_env_return(400, "sampled", task=HOUSEHOLD_200.task), household_success_rate()
    name = "share of tasks done in homes not seen before, beyond those seen,"
    return Measure(name, lambda run: unseen_rate.compute(run) - training_rate.compute(run))


MAZE_4X4_EXPERT = TextEnv(Maze(size=4, max_turns=8, demonstrator_random_cells=0.0))
"""A maze of sixteen cells with an expert demonstrator."""
DEMONSTRATION_OPTIONS: dict[str, Any] = {"data": "demonstrations:1000"}


GUESS_ANIMAL = TextEnv(Questions(max_turns=3, num_animals=4), use_privileged=True)
"""Guess one of four animals in three questions and guesses; the critic observes the animal (privileged)."""
GUESS_ANIMAL_ENVS = ("thespis.evidence.language_tasks:GUESS_ANIMAL",)
GUESS_ANIMAL_SETTINGS: dict[str, Any] = TINY_MODEL | {
    "feed": PreferencePairs(batch_size=16),
    "loss_type": SigmoidLoss(1.0),
}
