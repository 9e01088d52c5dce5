"""Back to basics: RLOO."""

from __future__ import annotations

from typing import Any

from thespis.evidence.claims import Superiority
from thespis.evidence.language_tasks import SINGLE_TURN_SETTINGS
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.learners.language.advantage_estimators import NoBaseline, TrajectoryReturn
from thespis.learners.language.rollout_transforms import MovingAverageBaseline
from thespis.methods.language.ppo_lm import LanguagePPO
from thespis.methods.language.rloo import RLOO

_SHARED_SETTINGS: dict[str, Any] = SINGLE_TURN_SETTINGS | {"minibatch_size": 128}
_RETURN = final_return("sampled")

PAPER = Paper(
    id="rloo",
    name="RLOO",
    citation=RLOO.citations[0],
    family="preference-rlhf",
    summary="REINFORCE with a whole response as one action; the baseline is the mean reward of the other responses to "
    "the same prompt (leave-one-out).",
    claim="Simple variants of REINFORCE do better than PPO at lower cost, and among them the leave-one-out baseline "
    "does better than a moving average.",
    parts=(
        "thespis.methods.language.rloo:RLOO",
        "thespis.learners.language.advantage_estimators:LeaveOneOut",
        "thespis.learners.language.rollout_transforms:MovingAverageBaseline",
        "thespis.methods.language.ppo_lm:LanguagePPO",
    ),
    command="thespis train rloo --env text:countdown --model tiny --steps 20000",
    miniature=Trial(
        arms=(
            Arm("RLOO", RLOO(**_SHARED_SETTINGS)),
            Arm(
                "moving mean",
                RLOO(
                    **_SHARED_SETTINGS,
                    advantage_estimator=TrajectoryReturn(NoBaseline()),
                    rollout_transform=MovingAverageBaseline(),
                ),
            ),
            Arm("PPO", LanguagePPO(**_SHARED_SETTINGS, num_epochs=1)),
        ),
        envs=("thespis.evidence.language_tasks:COUNTDOWN",),
        steps=300 * 128,
        claims=(
            Superiority("RLOO", "moving mean", _RETURN),
            Superiority("RLOO", "PPO", _RETURN),
            Superiority("moving mean", "PPO", _RETURN),
        ),
        seeds_per_look=5,
        max_looks=1,
        num_episodes=100,
    ),
    remarks="The miniature has a verifier in place of a reward model of human preferences, a two-layer decoder, and "
    "sixteen responses per prompt in place of two or four. RAFT, DPO and wall-clock time are not compared. All arms "
    "have the same KL penalty to the initial model, as a loss in place of a part of the reward. The arm moving mean "
    "samples the same sixteen responses per prompt but does not use the groups. Every arm makes one gradient step per "
    "batch, though PPO may do better with more. The step size was chosen after looking at one seed, in which one three "
    "times as large lost what the moving mean and PPO had learned in pretraining. Not shown: that any of the three is "
    "better than another; the interquartile means of five seeds each are between 0.51 and 0.56. Checked again: the "
    "leave-one-out mean agrees with enumeration, and the moving mean and PPO's losses agree with loops. Likely cause: "
    "with 128 responses per step, the noise that a baseline removes is small compared with the differences between "
    "seeds. PPO with one step per batch never clips and is nearly the same method. The paper's PPO has a separate "
    "value model, and its responses are many times as long.",
)
