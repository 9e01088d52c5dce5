"""Multi-level actor-critic: average reward without knowing the mixing time."""

from __future__ import annotations

import dataclasses

from thespis.data.feeds import Rollouts
from thespis.evidence.benches.slow_mixing import BASELINE, BENCH
from thespis.evidence.claims import Superiority
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import Measure, final_return, learning_curve_auc, mean_metric
from thespis.evidence.paper import Arm, Fidelity, Paper, Trial
from thespis.methods.online.a2c import A2C
from thespis.papers.mac.method import MAC, FixedTrajectoryLength, MultiLevelMonteCarlo

_MAC = MAC(actor_learning_rate=0.03, critic_learning_rate=0.03, average_reward_rate=0.01)
_FIXED_LENGTH_MAC = MAC(trajectory_length=FixedTrajectoryLength(4), optimizer="sgd")
_A2C = A2C(feed=Rollouts(num_steps=16, num_envs=1))
_AUC = learning_curve_auc()
_GRID_ENVS = ("thespis.papers.mac.envs:GoalGrid", "thespis.papers.mac.envs:LARGE_GOAL_GRID")


def gradient_norm() -> Measure:
    """Mean norm of the weighted sum of a trajectory's gradients so far."""
    return dataclasses.replace(mean_metric("gradient", larger_is_better=False), name="gradient norm")


PAPER = Paper(
    id="mac",
    name="MAC",
    citation=MAC.citations[0],
    family="on-policy-ac",
    summary="Average-reward actor-critic whose gradients of actor, critic and average reward are multi-level Monte "
    "Carlo estimates: trajectories of random length give the expectation of long trajectories at the cost of short "
    "ones. AdaGrad sets the step sizes, so the environment's mixing time need not be known.",
    claim="Learns faster than plain average-reward actor-critic where rewards are sparse and mixing is slow.",
    parts=(
        "thespis.papers.mac.method:MAC",
        "thespis.papers.mac.method:MultiLevelMonteCarlo",
        "thespis.papers.mac.method:FixedTrajectoryLength",
        "thespis.papers.mac.method:average_reward_loss",
        "thespis.papers.mac.method:gradient_transform",
        "thespis.papers.mac.envs:SlowWalk",
        "thespis.papers.mac.envs:GoalGrid",
    ),
    command="thespis train mac --env thespis.papers.mac.envs:SlowWalk --set num_levels=5",
    miniature=BENCH.trial(
        arms=(
            Arm("MAC", _MAC),
            Arm("actor-critic", BASELINE),
            Arm("actor-critic with AdaGrad", dataclasses.replace(_MAC, trajectory_length=FixedTrajectoryLength(4))),
        ),
        headline=Comparison("MAC", "actor-critic", final_return("sampled")),
        context=(
            Comparison("MAC", "actor-critic", learning_curve_auc()),
            Comparison("MAC", "actor-critic with AdaGrad", final_return("sampled")),
            Comparison("MAC", "actor-critic with AdaGrad", gradient_norm()),
        ),
        first_seed=40,
    ),
    remarks="Contradicted: after 3,200 steps MAC's sampled return is lower than that of the plain actor-critic, by 1.0 "
    "standard deviations of seeds on the grid and 0.7 on the walk. A first trial on seeds 0 to 39 said the same, with "
    "1.0 and 1.1; it was repeated with fresh seeds as it had been declared before the bench passed its last check. The "
    "areas under the learning curves could not be told apart in either. Likely cause: the estimator's variance. Half "
    "of the steps count minus one and half one, so a trajectory's gradient is a difference of noisy sums, and each "
    "large gradient makes all later AdaGrad steps permanently smaller. In the first trial MAC had larger gradients and "
    "lower returns than an actor-critic with AdaGrad, the same learning rates and means over four steps, which the "
    "paper does not have; in this one both differences have the same sign and are undecided. What the estimator "
    "avoids, the bias of short means where mixing is slow, is no disadvantage of the plain actor-critic that could be "
    "seen, although the walk takes 128 steps to forget its start under a random policy. Networks, the longest "
    "trajectory of 16 steps and the plain actor-critic (four steps, no AdaGrad) are those of the authors' run on "
    "grids. The average reward is a running mean, as in their code with networks; in an earlier trial it took "
    "multi-level steps of its own, as in their tabular code. Learning rates are tuned on the bench; of 0.003, 0.01 and "
    "0.03 MAC has the last, on the grid it had 3 with the first after 4,000 steps. With their own learning rate of "
    "0.01 for both methods, 30,000 steps and the same kinds of environments, an earlier trial by another protocol had "
    "found both equal. Checked: the estimator's weights give exactly the required expectation.",
    fidelity=(
        Fidelity("trajectory length", "2^J steps, J geometric with probability 1/2, up to 16 steps"),
        Fidelity(
            "draws beyond the longest trajectory",
            "with networks drawn again; in the tabular code a single step",
            "a single step, with which the expectation is exactly that of the longest trajectory",
        ),
        Fidelity("estimator", "first gradient plus 2^J times (mean of all minus mean of the first half)"),
        Fidelity("actor", "-log pi times the TD error r - eta + V(s') - V(s), which is not differentiated"),
        Fidelity("critic", "squared TD error with a fixed target", "half of it, which AdaGrad does not notice"),
        Fidelity("average reward", "running mean of the mean rewards of trajectories, rate 0.01"),
        Fidelity("plain actor-critic", "mean over four steps, stochastic gradient descent"),
        Fidelity(
            "its average reward",
            "the same running mean",
            "stochastic gradient descent with the critic's rate, 0.03: also a running mean",
        ),
        Fidelity("optimizer of MAC", "AdaGrad for actor and critic"),
        Fidelity("learning rates", "0.01 for both methods", "tuned on the bench, three values for each"),
        Fidelity(
            "networks",
            "two layers of 64 units, inputs are coordinates of agent and goal",
            "two layers of 64 units, inputs are one-hot cells; orthogonal instead of uniform initial weights",
        ),
        Fidelity(
            "episodes",
            "200 steps, ended by the goal in the newest version; a trajectory is cut at an episode's end",
            "200 steps, the goal pays at each step on it; trajectories go on",
        ),
        Fidelity("steps", "350 episodes of 200 steps on a grid of five", "3,200 steps on a grid of eight and a walk"),
    ),
    full=Trial(
        arms=(
            Arm("MAC", MAC(trajectory_length=MultiLevelMonteCarlo(7))),
            Arm("actor-critic", _FIXED_LENGTH_MAC),
            Arm("A2C", _A2C),
        ),
        envs=_GRID_ENVS,
        steps=300_000,
        claims=(Superiority("MAC", "actor-critic", _AUC), Superiority("MAC", "A2C", _AUC)),
        max_looks=1,
    ),
)
