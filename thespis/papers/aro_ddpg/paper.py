"""Off-policy average-reward actor-critic."""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.data.feeds import Replay
from thespis.evidence.benches.average_reward import AVERAGE_REWARD, BASELINE, BENCH
from thespis.evidence.claims import Superiority
from thespis.evidence.comparisons import Comparison
from thespis.evidence.continuous_control import LARGE_DDPG, LARGE_PPO, LARGE_STEPS
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Fidelity, Paper, Trial
from thespis.learners.optim.normalizers import RewardCentering, RunningMeanStd
from thespis.papers.aro_ddpg.method import ARODDPG

_FEED = Replay(batch_size=64, learning_starts=1_000)
_ARO_DDPG = ARODDPG(hidden_sizes=(64, 64), learning_rate=1e-3, average_reward_learning_rate=1e-3, feed=_FEED)
_AVERAGE_REWARD_SETTINGS: dict[str, Any] = {
    "discount": 1.0,
    "reward_normalizer": RewardCentering(),
    "obs_normalizer": RunningMeanStd(),
}

PAPER = Paper(
    id="aro-ddpg",
    name="ARO-DDPG",
    citation=ARODDPG.citations[0],
    family="off-policy-ac",
    summary="Off-policy actor-critic for the average-reward criterion: a deterministic actor maximizes the "
    "differential values of twin critics, the average reward is learned as well, and all three have target copies.",
    claim="ARO-DDPG reaches a higher average reward than on-policy average-reward actor-critics after the same number "
    "of steps in MuJoCo tasks.",
    parts=(
        "thespis.papers.aro_ddpg.method:ARODDPG",
        "thespis.learners.optim.normalizers:RewardCentering",
        "thespis.envs.compiled.time_limit:TimeLimit",
    ),
    command="thespis train aro-ddpg --env Pendulum-v1 --set average_reward_learning_rate=1e-3",
    miniature=BENCH.trial(
        arms=(
            Arm("ARO-DDPG", _ARO_DDPG),
            Arm("average-reward PPO", BASELINE),
        ),
        headline=Comparison("ARO-DDPG", "average-reward PPO", AVERAGE_REWARD),
        context=(Comparison("ARO-DDPG", "average-reward PPO", final_return()),),
    ),
    remarks="Episodes have 200 steps in training and 1,000 in evaluation, where the paper has 1,000 and 10,000; "
    "neither environment ever terminates. The paper's baselines, average-reward TRPO and APO, are replaced by PPO "
    "without a discount, with the running mean subtracted from its rewards; APO's constraint on the mean of its values "
    "is not implemented. An off-policy method makes an update for every step and PPO 40 passes for 1,024 steps, so "
    "ARO-DDPG needs more computation for as many steps. The version of the paper that was read is the one once "
    "submitted to ICLR.",
    fidelity=(
        Fidelity("critics", "two, fitted to the reward minus the average plus the minimum of the target critics"),
        Fidelity("actor", "maximizes the minimum of the critics"),
        Fidelity(
            "average reward",
            "paper: its own squared error, with a target copy; code: learned with the critics, no target copy",
            "as in the paper",
        ),
        Fidelity("delay", "actor and targets at every second update, Polyak rate 0.005"),
        Fidelity("first steps", "5,000 random steps", "1,000"),
        Fidelity("updates", "in bursts of 1,000 after as many steps", "one after every step"),
        Fidelity("time limits", "end an episode", "do not, as the task goes on"),
        Fidelity("learning rates", "3e-4", "1e-3, also of the average reward; tuned, with fewer trials than PPO had"),
        Fidelity("networks", "128 and 128 units, batches of 256", "64 and 64 units, batches of 64, for time"),
    ),
    full=Trial(
        arms=(
            Arm("ARO-DDPG", ARODDPG()),
            Arm("average-reward PPO", dataclasses.replace(LARGE_PPO, **_AVERAGE_REWARD_SETTINGS)),
            Arm("DDPG", LARGE_DDPG),
        ),
        envs=("gymnasium:HalfCheetah-v5", "gymnasium:Swimmer-v5"),
        steps=LARGE_STEPS,
        claims=(Superiority("ARO-DDPG", "average-reward PPO", final_return()),),
        max_looks=1,
    ),
)
