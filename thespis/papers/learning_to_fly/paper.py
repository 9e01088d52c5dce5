"""Learning to fly in seconds."""

from __future__ import annotations

from thespis.core.records import Citation
from thespis.curricula.annealing import hover_reward_annealing
from thespis.curricula.domain_randomization import DomainRandomization
from thespis.data.feeds import Replay
from thespis.evidence.claims import Superiority
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.methods.online.td3 import TD3
from thespis.papers.learning_to_fly.measures import dynamics_shift_return, strict_reward_return

_STEPS = 300_000
_ENV_MODULE = "thespis.papers.learning_to_fly.envs"
_SCALED_REWARD = DomainRandomization((("reward.scale", 0.05, 0.05), ("reward.constant", 0.2, 0.2)))
"""A tenth of the reward, so that values are near the predictions of an untrained critic."""
_TD3 = TD3(
    hidden_sizes=(64, 64),
    learning_rate=1e-3,
    feed=Replay(buffer_size=_STEPS, batch_size=256, learning_starts=15_000, sequence_length=3, num_envs=20),
)
_CURRICULUM_OPTIONS = {"curriculum": hover_reward_annealing(_SCALED_REWARD)}

PAPER = Paper(
    id="learning-to-fly",
    name="Learning to Fly in Seconds",
    citation=Citation("Learning to Fly in Seconds", "Eschmann et al.", 2023, "arXiv:2311.13081"),
    family="off-policy-ac",
    summary="TD3 flies a quadrotor by its rotor speeds: the critics observe the full state without noise, the actor "
    "its measurements and its last 32 actions, and the reward's penalties grow during training.",
    claim="The policy is trained within seconds on a laptop, and the critics' full state, the action history and the "
    "growing penalties each improve it.",
    parts=(
        "thespis.papers.learning_to_fly.envs:Quadrotor",
        "thespis.curricula.annealing:ParameterAnnealing",
        "thespis.critics.value_functions:critic_spec",
        "thespis.methods.online.td3:TD3",
    ),
    command=f"thespis train td3 --env {_ENV_MODULE}:Quadrotor --steps 300000 --set num_envs=20 sequence_length=3 "
    "hidden_sizes=64,64",
    miniature=Trial(
        arms=(
            Arm("Learning to Fly", _TD3, _CURRICULUM_OPTIONS),
            Arm("critics see as the actor", _TD3, _CURRICULUM_OPTIONS, env=f"{_ENV_MODULE}:NO_PRIVILEGED_QUADROTOR"),
            Arm("no action history", _TD3, _CURRICULUM_OPTIONS, env=f"{_ENV_MODULE}:NO_HISTORY_QUADROTOR"),
            Arm("no curriculum", _TD3, {"curriculum": _SCALED_REWARD}),
        ),
        envs=(f"{_ENV_MODULE}:Quadrotor",),
        steps=_STEPS,
        claims=(
            Superiority("Learning to Fly", "critics see as the actor", dynamics_shift_return()),
            Superiority("Learning to Fly", "no action history", dynamics_shift_return()),
            Superiority("Learning to Fly", "no curriculum", strict_reward_return()),
        ),
        seeds_per_look=5,
        max_looks=1,
    ),
    remarks="Unlike the paper, the trial uses ReLU instead of tanh, three-step instead of one-step targets, a tenth "
    "of the reward, 20 quadrotors in parallel with a critic update at every 20th step (the paper: one quadrotor, "
    "every 10th), no weight decay, and stored rewards are not recomputed when penalty weights grow. The first two "
    "claims are tested on a quadrotor with 1.2 times the mass and 1.3 times the rotor lag of training, the third with "
    "the weights at which the paper's curriculum ends. The paper's sim-to-real transfer cannot be tested here. The "
    "configuration was chosen with seed 0, which is also in the trial, before any arm was run: after the same number "
    "of updates, 96% of its flights lasted with three-step targets, 86% with five-step targets and 1% or less with "
    "one-step targets; the paper's ratio of updates was tried once and learned only in part. Not shown: the benefits "
    "of the critics' full state and of the curriculum. On the heavier quadrotor four of five seeds fly as well "
    "without the full state (under the final weights all but one do worse, but that is not what was declared), and "
    "training with the initial weights throughout does no harm: perhaps three-step targets and small rewards leave "
    "little for the growing penalties to improve. Five seeds decide neither.",
)
