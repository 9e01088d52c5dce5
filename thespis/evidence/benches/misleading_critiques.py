"""Bench of misleading critiques: a model with uncertain memory that learns how far to follow its critics.

The recall task (:mod:`thespis.papers.wafer_qa.envs`): a first answer, a critique by one who knows more or less, and a
second answer. Beside constructive critics a model learns to follow those who name a source. What a misleading critic
does to it is measured in an examination, in which all agents have the same questions.
"""

from __future__ import annotations

import dataclasses

from thespis.data.feeds import Episodes
from thespis.evidence.bench import Bench, Headroom, Symptom
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import Measure, constant, learning_curve_auc
from thespis.evidence.paired_verdict import SHORT_LOOKS
from thespis.evidence.paper import Arm
from thespis.methods.language.grpo import GRPO
from thespis.papers.wafer_qa.envs import GROUNDED, PARAMETRIC, SILENT, ExaminedEnv, Recall
from thespis.papers.wafer_qa.measures import abandoned_share, accuracy_after, accuracy_in

CONSTRUCTIVE, MIXED = Recall(first_reward=0.5), Recall(first_reward=0.5, misleading_share=0.5)
"""Critics of all kinds of knowledge, all constructive or half of them misleading."""
SOURCE_LIES, MEMORY_LIES = (Recall(knowledge=knowledge, misleading_share=1.0) for knowledge in (GROUNDED, PARAMETRIC))
"""Critics who all mislead, with a source or without."""
MISLED = ExaminedEnv(CONSTRUCTIVE, examination=SOURCE_LIES)
MISLED_BY_MEMORY = ExaminedEnv(CONSTRUCTIVE, examination=MEMORY_LIES)
ASKED_AGAIN = ExaminedEnv(CONSTRUCTIVE, examination=Recall(knowledge=SILENT))
WARY_MISLED = ExaminedEnv(MIXED, examination=SOURCE_LIES)
"""Learning beside constructive critics, or beside mixed ones (wary), with different examinations."""
MISLED_ENV, MISLED_BY_MEMORY_ENV, ASKED_AGAIN_ENV, WARY_MISLED_ENV = (
    f"{__name__}:{name}" for name in ("MISLED", "MISLED_BY_MEMORY", "ASKED_AGAIN", "WARY_MISLED")
)
NUM_ROWS, NUM_TURNS, NUM_UPDATES = 64, 2, 100
STEPS = NUM_UPDATES * NUM_ROWS * NUM_TURNS
SOLVER = GRPO(
    model="tiny",
    num_layers=1,
    hidden_size=64,
    num_pretrain_steps=600,
    num_pretrain_dialogues=4_096,
    feed=Episodes(max_steps=NUM_TURNS, group_size=8, num_envs=NUM_ROWS),
    learning_rate=1e-3,
    kl_penalty=None,
)
"""An agent that is pretrained to answer from memory and to follow half of its critics, and trained on right answers."""
_COPY = dataclasses.replace(SOLVER, learning_rate=1.0001e-3)
ACCURACY, ABANDONED = accuracy_after(), abandoned_share()
MISLED_ARM = Arm("misled by a source", SOLVER)
WARY_ARM = Arm("wary and misled by a source", SOLVER, env=WARY_MISLED_ENV)


def random_accuracy() -> Measure:
    """Share of right answers among random ones."""
    return constant("accuracy of random answers", 1 / CONSTRUCTIVE.num_answers, bounds=(0.0, 1.0))


BENCH = Bench(
    name="misleading-critiques",
    version=1,
    summary="Answers from three recollections, critics who may name another answer and a source, and second answers: "
    "how far a model follows critics who help it while it learns, when one misleads it.",
    envs=(MISLED_ENV,),
    steps=STEPS,
    num_episodes=20,
    arms=(MISLED_ARM, Arm("misled by a source, again", _COPY), WARY_ARM),
    positive=Comparison(WARY_ARM.name, MISLED_ARM.name, ACCURACY),
    negative=Comparison(MISLED_ARM.name, "misled by a source, again", learning_curve_auc()),
    headroom=Headroom(MISLED_ARM.name, WARY_ARM.name, accuracy_in(MIXED, "mixed critics"), random_accuracy()),
    symptoms=(Symptom(MISLED_ARM.name, ABANDONED, 0.3),),
    tuning="By accuracies after critiques of 500 questions, on seeds 1,100 to 1,104. One layer, 600 steps of "
    "pretraining, 100 updates, a learning rate of 1e-3 and half a reward for right first answers, beside "
    "constructive critics: 0.66 after silent critics, 0.84 after constructive ones with a source, 0.08 after "
    "misleading ones with a source, where 0.89 of the right answers are given up, and 0.21 after misleading ones "
    "without. Looked at before and not kept: two layers, 1,000 steps and a penalty on KL of 0.04, on three seeds "
    "(0.64, 0.93, 0.02 and 0.11, in the same order); a learning rate of 2e-3 with 60 updates (0.61, 0.90, 0.06 and "
    "0.23, and a third seed with 0.17 after misleading ones with a source). Without reward for first answers and "
    "with 2e-3, learning beside mixed critics spoiled the first answers (0.00 to 0.54 right). By Bayes' rule the "
    "accuracies are 0.72, 0.96, 0.22 and 0.54: an agent that errs in nothing keeps an answer that three recollections "
    "agree on. Beside mixed critics, with the same settings, which were tried once: 0.69, 0.70, 0.66 and 0.68; 0.69 "
    "after mixed critics, where the agent that learned beside constructive ones has about 0.55.",
    looks=SHORT_LOOKS,
)
