"""Bench of scarce labels: reward models of answers with several qualities, of which the query decides which one counts.

A language model is pretrained on answers and on critiques of them by a teacher with a habit (criticized answers,
:mod:`thespis.papers.critic_rm.envs`). Few pairs of its own answers are labelled, new ones for each seed. A reward model
that starts as this model has to find out which quality counts. What is measured is how often it prefers the better
answer of new pairs. What right critiques are worth is known from a model whose teacher had no habit.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.data.feeds import Episodes
from thespis.envs.text.task import TextEnv
from thespis.evidence.bench import Bench, Headroom, Symptom
from thespis.evidence.comparisons import Comparison
from thespis.evidence.paired_verdict import SHORT_LOOKS
from thespis.evidence.paper import Arm
from thespis.papers.critic_rm.envs import CriticizedAnswers
from thespis.papers.critic_rm.measures import chance, pair_accuracy, pair_error, pair_loss
from thespis.papers.critic_rm.method import CriticRM
from thespis.papers.deepseek_grm_spct.envs import GradedAnswers

ANSWERS = TextEnv(CriticizedAnswers(GradedAnswers(habit=0.5)))
"""Half of the teacher's critiques name the length, whatever counts."""
EXACT_CRITIQUES = TextEnv(CriticizedAnswers(GradedAnswers(habit=0.0, grade_noise=0.0)))
"""All of them name what counts, and the right grade."""
HABITUAL_CRITIQUES = TextEnv(CriticizedAnswers(GradedAnswers(habit=1.0, grade_noise=0.0)))
"""All of them name the length, and its right grade."""
ANSWERS_ENV, EXACT_ENV, HABITUAL_ENV = (
    f"{__name__}:{name}" for name in ("ANSWERS", "EXACT_CRITIQUES", "HABITUAL_CRITIQUES")
)
NUM_PAIRS, NUM_TURNS = 192, 2
STEPS = 2 * NUM_PAIRS * NUM_TURNS
MODEL: dict[str, Any] = {
    "model": "tiny",
    "num_layers": 2,
    "hidden_size": 64,
    "num_pretrain_steps": 1_500,
    "num_pretrain_dialogues": 16_384,
    "feed": Episodes(max_steps=NUM_TURNS, group_size=2, num_envs=2 * NUM_PAIRS),
    "learning_rate": 1e-3,
    "num_gradient_steps": 300,
    "batch_size": 16,
}
"""Settings of all reward models: one update, with 300 gradient steps on 16 pairs each."""

ACCURACY = pair_accuracy()
SCALAR = CriticRM(**MODEL, critiques="none", reads="answer")
"""A reward model of answers alone."""
_COPY = dataclasses.replace(SCALAR, learning_rate=1e-3 * 1.0001)
_NOTHING_LEARNED: dict[str, Any] = MODEL | {"num_gradient_steps": 0}
JUDGE = CriticRM(**_NOTHING_LEARNED, critiques="none", reads="score")
"""The initial model as judge: the score in its critique is the reward. It learns nothing."""
SCALAR_ARM = Arm("scalar reward model", SCALAR)
JUDGE_ARM = Arm("judge", JUDGE)

BENCH = Bench(
    name="scarce-labels",
    version=1,
    summary="Answers with three qualities, of which the query decides which one counts, and few labelled pairs: how "
    "often a reward model prefers the better one of two new answers.",
    envs=(ANSWERS_ENV,),
    steps=STEPS,
    num_episodes=20,
    arms=(
        SCALAR_ARM,
        Arm("scalar reward model again", _COPY),
        Arm("judge with exact critiques", JUDGE, env=EXACT_ENV),
        Arm("judge by length", JUDGE, env=HABITUAL_ENV),
    ),
    positive=Comparison("judge with exact critiques", "judge by length", ACCURACY),
    negative=Comparison(SCALAR_ARM.name, "scalar reward model again", pair_loss()),
    headroom=Headroom(SCALAR_ARM.name, "judge with exact critiques", ACCURACY, chance()),
    symptoms=(Symptom(SCALAR_ARM.name, pair_error(), 0.1),),
    tuning="By the accuracy on 500 new pairs, on seeds 1,100 to 1,102. The scalar reward model with 192 pairs, 300 "
    "steps of 16 pairs and learning rates of 3e-4, 1e-3 and 3e-3: 0.702, 0.718 and 0.667; with 256 pairs and "
    "1e-4, 3e-4, 1e-3 and 3e-3: 0.700, 0.693, 0.788 (0.685 to 0.894) and 0.641; with 128 pairs and 200 steps "
    "(two seeds) 0.657 with 3e-4 and 0.652 with 1e-3. With 192 pairs it is less than half of the way from "
    "chance to exact rewards. The judge has 0.753 with one critique and 0.826 with four where the teacher has"
    " its habit in half of the critiques, and 0.631 and 0.693 where it has it in three quarters.",
    looks=SHORT_LOOKS,
)
