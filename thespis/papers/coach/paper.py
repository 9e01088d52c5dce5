"""COACH: learning from feedback that depends on the learner's policy, against TAMER and Q-learning."""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.core.contracts import Mode
from thespis.evidence.benches.trainer_feedback import (
    ACTING_RETURN,
    ACTION_ARM,
    BASELINE,
    BASELINE_ARM,
    BENCH,
    MISSED,
    RETURN,
)
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.papers.coach.measures import normalized_return
from thespis.papers.coach.method import Coach, FeedbackQLearning
from thespis.papers.coach.trainers import (
    ActionFeedback,
    AdvantageFeedback,
    ImprovementFeedback,
    TaskFeedback,
    Trainer,
)

COACH = Coach(trainer=AdvantageFeedback(), learning_rate=1.0, trace_decay=0.5)
Q_LEARNING = FeedbackQLearning(trainer=AdvantageFeedback(), learning_rate=0.1, epsilon=0.1)
TAMER = BASELINE
_LATE = AdvantageFeedback(delay=3)
_COACH, _TAMER, _Q = "COACH", BASELINE_ARM.name, "feedback as reward"
_EXPLORING = "TAMER with random actions"
_SIGN, _ACTION, _TASK = "by the sign of the advantage", "by action feedback", "by the task's reward"
_GREEDY_RETURN = normalized_return(Mode.EXPLOIT)


def _trained_by(name: str, learner: Any, trainer: Trainer) -> Arm:
    """A learner with another trainer, and all else as tuned."""
    return Arm(name, dataclasses.replace(learner, trainer=trainer))


PAPER = Paper(
    id="coach",
    name="COACH",
    citation=Coach.citations[0],
    family="preference-rlhf",
    summary="A trainer's praise and blame are taken for the advantage of the current policy: each is the weight of a "
    "step along an eligibility trace of gradients of log-probabilities, so that feedback may fade as the learner "
    "improves.",
    claim="People's feedback depends on the learner's policy. COACH converges to a local optimum with such feedback, "
    "where TAMER and Q-learning, which take it for a reward, unlearn what they were taught.",
    parts=(
        "thespis.papers.coach.method:Coach",
        "thespis.papers.coach.method:Tamer",
        "thespis.papers.coach.method:FeedbackQLearning",
        "thespis.papers.coach.trainers:AdvantageFeedback",
        "thespis.papers.coach.trainers:ImprovementFeedback",
        "thespis.papers.coach.envs:PathGrid",
    ),
    command="thespis train thespis.papers.coach.method:Coach --env thespis.papers.coach.envs:PathGrid --steps 1000",
    miniature=BENCH.trial(
        arms=(
            Arm(_COACH, COACH),
            BASELINE_ARM,
            Arm(_EXPLORING, dataclasses.replace(TAMER, epsilon=0.7)),
            Arm(_Q, Q_LEARNING),
            _trained_by(f"{_COACH} {_SIGN}", COACH, ImprovementFeedback()),
            _trained_by(f"{_TAMER} {_SIGN}", TAMER, ImprovementFeedback()),
            _trained_by(f"{_COACH} {_ACTION}", COACH, ActionFeedback()),
            ACTION_ARM,
            _trained_by(f"{_COACH} {_TASK}", COACH, TaskFeedback()),
            _trained_by(f"{_Q} {_TASK}", Q_LEARNING, TaskFeedback()),
            Arm(f"{_COACH} with feedback three steps late", dataclasses.replace(COACH, trainer=_LATE)),
            Arm(f"{_COACH} with the delay known", dataclasses.replace(COACH, trainer=_LATE, delay=3)),
        ),
        headline=Comparison(_COACH, _TAMER, ACTING_RETURN),
        mechanisms=(
            Comparison(_COACH, _Q, ACTING_RETURN),
            Comparison(_COACH, _TAMER, RETURN),
            Comparison(_COACH, _TAMER, MISSED),
            Comparison(f"{_COACH} with the delay known", f"{_COACH} with feedback three steps late", RETURN),
        ),
        context=(
            Comparison(_COACH, _EXPLORING, ACTING_RETURN),
            Comparison(_COACH, _EXPLORING, RETURN),
            Comparison(_COACH, _Q, RETURN),
            Comparison(_COACH, _EXPLORING, _GREEDY_RETURN),
            Comparison(f"{_COACH} {_SIGN}", f"{_TAMER} {_SIGN}", ACTING_RETURN),
            Comparison(f"{_COACH} {_ACTION}", ACTION_ARM.name, ACTING_RETURN),
            Comparison(f"{_COACH} {_ACTION}", _COACH, ACTING_RETURN),
            Comparison(ACTION_ARM.name, _TAMER, ACTING_RETURN),
            Comparison(f"{_Q} {_TASK}", f"{_COACH} {_TASK}", ACTING_RETURN),
            Comparison(f"{_Q} {_TASK}", f"{_COACH} {_TASK}", RETURN),
            NotApplicable("people's feedback depends on the learner's policy", "people"),
            NotApplicable("a robot learns five behaviours from feedback in a few minutes", "people and a robot"),
        ),
    ),
    remarks="Tried.",
    fidelity=(
        Fidelity("update", "step size times feedback times the trace of gradients of log-probabilities"),
        Fidelity(
            "trace",
            "decays by lambda at each step; the trainer may choose among several lambdas",
            "one lambda, 0.5 as tuned; it is not cut at the end of an episode",
        ),
        Fidelity("delay", "the gradient is that of the action some steps ago, by the current parameters"),
        Fidelity("policy", "softmax, linear in features", "softmax with a logit for each cell and action"),
        Fidelity(
            "environment",
            "a grid of 8 by 5 cells from one corner to the next one, 5 for the goal, -1 for the cells between",
            "the same; a discount of 0.95 in all values, and episodes of at most 100 steps",
        ),
        Fidelity(
            "feedback",
            "by the task, by a target action, or by improvement on what the learner does",
            "the same kinds; improvement is the exact advantage under the learner's policy, or its sign",
        ),
        Fidelity(
            "TAMER",
            "a linear model of feedback, with credit spread over recent actions, and greedy actions",
            "a table, one action at a time, and random actions with a tuned probability",
        ),
        Fidelity("Q-learning", "on the feedback as reward", "the same, with random actions by a tuned probability"),
        Fidelity("measure", "steps to the goal over episodes", "exact discounted return of what is learned"),
    ),
)
