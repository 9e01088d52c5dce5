"""Continuous control with deep reinforcement learning."""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.core.records import Citation
from thespis.data.feeds import Replay
from thespis.evidence.benches.off_policy_control import BASELINE, BENCH
from thespis.evidence.claims import MinimumScore, Superiority
from thespis.evidence.comparisons import Comparison
from thespis.evidence.continuous_control import LARGE_STEPS, MUJOCO_ENVS
from thespis.evidence.measures import final_return, planner_normalized_return
from thespis.evidence.paper import Arm, Fidelity, Paper, Trial
from thespis.methods.online.ddpg import DDPG

_LARGE_DDPG = DDPG(
    exploration_noise=0.2,
    noise_theta=0.15,
    hidden_sizes=(400, 300),
    actor_learning_rate=1e-4,
    tau=0.001,
    feed=Replay(batch_size=64, learning_starts=10_000),
)


def _arms(base: DDPG) -> tuple[Arm, ...]:
    feed: Any = base.feed
    newest = dataclasses.replace(feed, buffer_size=feed.batch_size)
    return (
        Arm("DDPG", base),
        Arm("no target nets", dataclasses.replace(base, tau=1.0)),
        Arm("no replay", dataclasses.replace(base, feed=newest)),
    )


_ABLATION_CLAIMS = tuple(Superiority("DDPG", arm, final_return()) for arm in ("no target nets", "no replay"))

PAPER = Paper(
    id="ddpg",
    name="DDPG",
    citation=Citation(
        "Continuous control with deep reinforcement learning", "Lillicrap et al.", 2016, "arXiv:1509.02971"
    ),
    family="off-policy-ac",
    summary="Off-policy deterministic policy gradient with deep networks: a Q-function learned from replay with "
    "slowly updated target networks, a deterministic actor that maximizes it, and temporally correlated exploration "
    "noise.",
    claim="One algorithm, network architecture and set of hyperparameters solves many physics tasks, competitively "
    "with a planner that is given the dynamics.",
    parts=(
        "thespis.methods.online.ddpg:DDPG",
        "thespis.actors.deterministic:DeterministicActor",
        "thespis.actors.deterministic:NoisyPolicy",
        "thespis.critics.value_functions:ContinuousQ",
    ),
    command="thespis train ddpg --env Pendulum-v1 --set exploration_noise=0.2 noise_theta=0.15",
    miniature=BENCH.trial(
        arms=_arms(BASELINE),
        headline=Comparison("DDPG", "no target nets", final_return()),
        mechanisms=(Comparison("DDPG", "no replay", final_return()),),
        context=(MinimumScore("DDPG", planner_normalized_return(), 0.8),),
    ),
    remarks="Without target networks, targets use the current networks; without replay, only the last 64 transitions "
    "are kept. The former is the paper's own ablation (figure 2), the latter its argument for replay (section 3); both "
    "do not learn, or hardly, as it says. The planner is a cross-entropy method with the true dynamics, as the paper's "
    "iLQG is given them: 0 is random play, 1 the planner. Not implemented: learning from "
    "pixels, batch normalization, weight decay, small last layers.",
    fidelity=(
        Fidelity("critic target", "target critic at the target actor's action, one-step"),
        Fidelity("actor", "ascends the critic's gradient in the action, after the critic's update"),
        Fidelity("target networks", "Polyak rate 0.001", "0.005, as the run is a hundredth as long"),
        Fidelity("learning rates", "1e-4 for the actor, 1e-3 for the critic", "tuned on the bench, as TD3's"),
        Fidelity(
            "exploration",
            "Ornstein-Uhlenbeck noise with theta 0.15 and sigma 0.2",
            "normal noise of 0.1 in all arms of the bench; the paper's is an option (noise_theta)",
        ),
        Fidelity("networks", "400 and 300 units; actions enter at the second layer", "64 and 64; at the first layer"),
        Fidelity("last layers", "initialized within 0.003", "as the other layers, scaled by their number of inputs"),
        Fidelity("regularization", "weight decay of 0.01 in the critic, batch normalization", "neither"),
        Fidelity("replay", "a million transitions, batches of 64", "as many as are played, batches of 64"),
        Fidelity("time limits", "not stated", "bootstrap; other ends do not"),
    ),
    full=Trial(arms=_arms(_LARGE_DDPG), envs=MUJOCO_ENVS, steps=LARGE_STEPS, claims=_ABLATION_CLAIMS, max_looks=1),
)
