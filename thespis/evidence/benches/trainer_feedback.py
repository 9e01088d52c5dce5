"""Bench of a trainer's feedback: a small grid in which a simulated trainer praises what is better than what is done.

The grid of :mod:`thespis.papers.coach.envs`, and a trainer whose feedback is the exact advantage of an action under the
learner's current policy. Praise for the same action fades while the learner gets better, and a learner that expects the
feedback of before goes in circles. Returns of policies are exact.
"""

from __future__ import annotations

import dataclasses

from thespis.evidence.bench import Bench, Symptom
from thespis.evidence.benches.segment_preferences import ExactHeadroom
from thespis.evidence.comparisons import Comparison
from thespis.evidence.paired_verdict import DEFAULT_LOOKS
from thespis.evidence.paper import Arm
from thespis.papers.coach.measures import acting_return, missed_goals, normalized_return
from thespis.papers.coach.method import Tamer
from thespis.papers.coach.trainers import ActionFeedback, AdvantageFeedback, TaskFeedback

ENV = "thespis.papers.coach.envs:PathGrid"
STEPS = 1_000
"""Steps of a run, each with feedback: as many as a person may give."""
ACTING_RETURN, RETURN, MISSED = acting_return(), normalized_return(), missed_goals()
BASELINE = Tamer(trainer=AdvantageFeedback(), learning_rate=1.0, epsilon=0.0)
"""TAMER, which takes the action whose last feedback was the best."""
_COPY = dataclasses.replace(BASELINE, stream=1)
BASELINE_ARM = Arm("TAMER", BASELINE)
ACTION_ARM = Arm("TAMER by action feedback", dataclasses.replace(BASELINE, trainer=ActionFeedback()))
"""Feedback that does not depend on the policy, for which TAMER was made."""
TASK_ARM = Arm("TAMER by the task's reward", dataclasses.replace(BASELINE, trainer=TaskFeedback()))
"""What follows an action is no part of this feedback."""

BENCH = Bench(
    name="trainer-feedback",
    version=1,
    summary="A small grid with bad cells on the straight way to the goal, and a simulated trainer whose feedback on an "
    "action is its advantage under the learner's current policy: praise fades as the learner gets better.",
    envs=(ENV,),
    steps=STEPS,
    num_episodes=10,
    arms=(BASELINE_ARM, Arm("TAMER again", _COPY), ACTION_ARM, TASK_ARM),
    positive=Comparison(ACTION_ARM.name, TASK_ARM.name, ACTING_RETURN),
    negative=Comparison("TAMER", "TAMER again", ACTING_RETURN),
    headroom=ExactHeadroom("TAMER", ACTION_ARM.name, ACTING_RETURN),
    symptoms=(Symptom("TAMER", MISSED, 0.3),),
    tuning="By the return while it learns, with seeds 1,110 to 1,119: learning rates of 0.1, 0.3 and 1 without "
    "random actions 0.53, 0.55 and 0.61, with one random action of ten 0.57, 0.58 and 0.60, with 0.3 of them "
    "0.57, 0.55 and 0.56, with half 0.52, 0.53 and 0.53, and with 0.7 of them 0.44, 0.44 and 0.45. The final "
    "return, without random actions, is largest where most actions were random: 0.88, 0.89 and 0.91 with 0.7 "
    "of them, 0.71, 0.76 and 0.72 with half, 0.54 to 0.65 with fewer; so it depends on what is compared, and "
    "the bench compares how learners act while they are trained. Chosen after looks at 4,000 steps, where "
    "TAMER ends at 0.54 to 0.73 with up to 0.3 of random actions and at 0.89 with half, too near to the best "
    "for a bench, and at the training return, in which random play is so bad (-13, where the best is 5) that "
    "all learners are in the last fifth. A value of 0.535 is that of a policy that neither meets a bad cell "
    "nor reaches the goal.",
    looks=DEFAULT_LOOKS,
)
