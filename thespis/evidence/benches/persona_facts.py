"""Bench of persona facts: faithfulness to a character, by preferences that a score of its responses gives.

A character has nine facts, and answers questions about three of them (:mod:`thespis.envs.text.persona`). A model of
two layers has learned from a demonstrator who often says what is typical of characters, whatever the facts. Pairs of
its responses are ordered by a score, and DPO learns from them. Measured is the exact faithfulness of sampled responses.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float

from thespis.core.contracts import Mode
from thespis.data.feeds import Episodes
from thespis.envs.text.persona import Persona
from thespis.envs.text.task import TextEnv
from thespis.evidence.bench import Bench, Headroom, Symptom
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import Measure, play_in
from thespis.evidence.paired_verdict import SHORT_LOOKS
from thespis.evidence.paper import Arm
from thespis.learners.language.preference_losses import SigmoidLoss
from thespis.methods.language.online_dpo import OnlineDPO, ReferenceSampledDPO
from thespis.papers.apc_score.envs import GradedPersona
from thespis.training.demonstrations import demonstration_returns

TASK = Persona()
"""Nine facts, three of them relevant."""
_ACTIVE_TASK = dataclasses.replace(TASK, passive_weight=0.0)
"""The same with a reward for relevant facts alone."""
PERSONA = TextEnv(TASK)
"""The environment whose reward is the exact faithfulness."""
GRADED = TextEnv(GradedPersona())
"""The same with a coarse grade as the reward."""
PERSONA_ENV, GRADED_ENV = (f"{__name__}:{name}" for name in ("PERSONA", "GRADED"))
NUM_ROWS = 64
NUM_UPDATES = 30
NUM_PLAYED = 500
MODEL: dict[str, Any] = {
    "model": "tiny",
    "num_layers": 2,
    "hidden_size": 64,
    "num_pretrain_steps": 2_500,
    "num_pretrain_dialogues": 16_384,
}
FEED = Episodes(max_steps=1, group_size=2, num_envs=NUM_ROWS)
STEPS = NUM_UPDATES * NUM_ROWS


def faithfulness(mode: Mode = Mode.SAMPLE) -> Measure:
    """Exact faithfulness of responses to some hundred questions; 1 is the best."""
    name = "faithfulness" if mode is Mode.SAMPLE else "faithfulness of greedy responses"
    return Measure(name, lambda run: _played(run, TASK, mode))


def active_reward() -> Measure:
    """Share of the relevant facts that entail the response."""
    name = "share of relevant facts that are said"
    return Measure(name, lambda run: _played(run, _ACTIVE_TASK, Mode.SAMPLE), bounds=(0.0, 1.0))


def passive_penalty() -> Measure:
    """Contradicted facts about other topics, for each relevant fact; lower is better."""

    def penalties(run: Any) -> Float[np.ndarray, " seed"]:
        return _played(run, _ACTIVE_TASK, Mode.SAMPLE) - _played(run, TASK, Mode.SAMPLE)

    return Measure("number of contradicted facts about other topics per relevant fact", penalties, False)


def mean_grade() -> Measure:
    """Coarse grade of sampled responses, divided by 10."""
    name = "coarse grade of sampled responses"
    return Measure(name, lambda run: _played(run, GradedPersona(), Mode.SAMPLE), bounds=(0.0, 1.0))


def missing_faithfulness() -> Measure:
    """What is missing to a faithfulness of 1; lower is better."""
    name = "what is missing to a faithfulness of 1"
    return Measure(name, lambda run: 1.0 - _played(run, TASK, Mode.SAMPLE), False)


def typical_faithfulness() -> Measure:
    """Faithfulness of a character who only says what is typical: the lower end of the scale."""
    env = TextEnv(dataclasses.replace(TASK, demonstrator_noise=1.0))

    def returns(run: Any) -> Float[np.ndarray, " seed"]:
        return np.full(len(run.config["seeds"]), demonstration_returns(env, 4_000)[3].mean())

    return Measure("faithfulness of what is typical", returns)


def _played(run: Any, task: Persona, mode: Mode) -> Float[np.ndarray, " seed"]:
    return play_in(run, TextEnv(task), NUM_PLAYED, mode, "questions").episode_returns.mean(axis=1)


FAITHFULNESS = faithfulness()
DPO = ReferenceSampledDPO(**MODEL, feed=FEED, learning_rate=3e-4, loss_type=SigmoidLoss(0.3))
"""DPO on pairs of responses of the imitator, which the environment's reward orders: exact or coarse."""
_COPY_ROWS = NUM_ROWS + 2
_COPY = dataclasses.replace(DPO, feed=dataclasses.replace(FEED, num_envs=_COPY_ROWS))
_ON_POLICY = OnlineDPO(**MODEL, feed=FEED, learning_rate=1e-3, loss_type=SigmoidLoss(0.1))
IMITATION_ARM = Arm("imitation", dataclasses.replace(DPO, learning_rate=0.0), steps=NUM_ROWS)
"""The model that has learned from demonstrations alone."""
COARSE_ARM = Arm("coarse grade", DPO, env=GRADED_ENV)
ON_POLICY_ARM = Arm("online DPO on the exact score", _ON_POLICY, steps=5 * STEPS)
"""As good as is known: its own pairs, and five times as many updates."""

BENCH = Bench(
    name="persona-facts",
    version=1,
    summary="A character with nine facts answers questions about three of them: preferences between responses, ordered "
    "by a score, and the exact faithfulness of the model that learns from them.",
    envs=(PERSONA_ENV,),
    steps=STEPS,
    num_episodes=20,
    arms=(
        COARSE_ARM,
        Arm("coarse grade again", _COPY, env=GRADED_ENV, steps=NUM_UPDATES * _COPY_ROWS),
        ON_POLICY_ARM,
        IMITATION_ARM,
    ),
    positive=Comparison("online DPO on the exact score", "imitation", FAITHFULNESS),
    negative=Comparison("coarse grade", "coarse grade again", FAITHFULNESS),
    headroom=Headroom("coarse grade", "online DPO on the exact score", FAITHFULNESS, typical_faithfulness()),
    symptoms=(Symptom("coarse grade", missing_faithfulness(), 0.2),),
    tuning="By the faithfulness of sampled responses on seeds 1,100 and 1,101, with learning rate and beta, "
    "three trials of each score after 150 updates: exact 0.682 (3e-4, 1), 0.658 (1e-3, 1) and 0.749 "
    "(3e-4, 0.3); coarse grade 0.630, 0.598 and 0.683. For the exact score alone 0.271 with 1e-3 and 0.1, "
    "where the probability of all responses that were compared falls. Online DPO on the exact score has "
    "0.797 (1e-3, 0.3) and 0.807 (1e-3, 0.1). The model that has learned from demonstrations has 0.234, "
    "and who only says what is typical -0.135. With 3e-4 and 0.3 the scores have 0.739 and 0.713 after 80 "
    "updates, and 0.625 and 0.586 after 30, the budget: with more updates coarse grades are more than 80% "
    "of the way. The copy of the negative control draws 33 pairs for each update. With prompts that say "
    "the facts in any order, a demonstrator noise of 0.7 and 1,000 steps of pretraining, which was looked "
    "at before, the model had not learned to read the facts (-0.01), and DPO did not teach it.",
    looks=SHORT_LOOKS,
)
