"""MEow: maximum entropy RL via an energy-based normalizing flow."""

from __future__ import annotations

from typing import Any

from thespis.data.feeds import Replay
from thespis.evidence.benches.multi_goal import BENCH
from thespis.evidence.claims import Superiority
from thespis.evidence.comparisons import Comparison
from thespis.evidence.continuous_control import LARGE_SAC, LARGE_STEPS, MUJOCO_ENVS
from thespis.evidence.measures import final_return
from thespis.evidence.multi_goal import least_visited_goal_share, num_goals_visited
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm, Fidelity, Paper, Trial
from thespis.learners.off_policy.temperature import FixedTemperature
from thespis.methods.online.sac import SAC
from thespis.papers.meow.method import MEow

_ENV = "thespis.envs.compiled.multi_goal:LONG_MULTI_GOAL"
_SETTINGS: dict[str, Any] = {
    "learning_rate": 1e-3,
    "discount": 0.9,
    "feed": Replay(batch_size=128, learning_starts=1_000),
}
_MEOW = MEow(**_SETTINGS, temperature=2.5, log_std_range=(-2.0, 1.0), tau=5e-4, shift_hidden_sizes=(64, 64))
_SAC = SAC(**_SETTINGS, hidden_sizes=(64, 64), temperature=FixedTemperature(2.5))

PAPER = Paper(
    id="meow",
    name="MEow",
    citation=MEow.citations[0],
    family="off-policy-ac",
    summary="One normalizing flow over actions is both actor and critic: its log-density splits into a soft Q-value "
    "and its exact soft state value, and it is trained by the soft Bellman error alone, with learned reward shifts.",
    claim="Soft values without estimation, multimodal policies, and higher returns than SAC on MuJoCo.",
    parts=(
        "thespis.papers.meow.method:MEow",
        "thespis.papers.meow.flow:FlowActor",
        "thespis.papers.meow.flow:AdditiveCouplingFlow",
        "thespis.envs.compiled.multi_goal:MultiGoal",
        "thespis.evidence.multi_goal:num_goals_visited",
    ),
    command="thespis train meow --env Pendulum-v1 --set shift_hidden_sizes=64,64",
    miniature=BENCH.trial(
        arms=(Arm("MEow", _MEOW), Arm("SAC", _SAC)),
        envs=(_ENV,),
        steps=4_000,
        num_episodes=10,
        headline=Comparison("MEow", "SAC", num_goals_visited(env=_ENV)),
        context=(
            Comparison("MEow", "SAC", least_visited_goal_share(env=_ENV)),
            Comparison("MEow", "SAC", final_return("sampled")),
        ),
        looks=plan_looks((20,)),
    ),
    remarks="The multi-goal environment of the paper's first experiment, with the settings of the authors' code there; "
    "the entropy coefficient is fixed and equal in both arms, and neither was tuned. A maximum-entropy policy has to "
    "go to all four goals. Visits are counted over 100 sampled episodes of 30 steps that start exactly in the middle. "
    "Returns, which the paper compares in MuJoCo, are of sampled actions over up to 1,000 steps. The networks of "
    "the reward shifts have 64 units per layer, like the others. With training episodes of 30 steps one seed pushed "
    "into a corner forever: actions within 0.00001 of their bounds are valued as if they were that far inside, also "
    "in the authors' code, so a flow with its mass far beyond is not pulled back. Hence the longer episodes. The "
    "old trial was on the pendulum, where the flow of a single action dimension is a squashed normal. On foraging, "
    "whose patches are small, MEow did worse than SAC in a preliminary run: additive couplings preserve volume, so "
    "a flow cannot be flat over most actions and have high, narrow peaks. Shown: MEow goes to more goals than SAC. "
    "Larger sampled returns are not seen: they vary so widely between seeds that nothing is decided.",
    fidelity=(
        Fidelity("policy", "two pairs of additive couplings of a normal with state-dependent deviations, then tanh"),
        Fidelity("values", "soft Q-value and exact soft value from the flow's density, plus two learned reward shifts"),
        Fidelity("loss", "squared error of both shifted Q-values from reward plus discounted smaller target value"),
        Fidelity("target network", "Polyak average at every update, rate 0.0005"),
        Fidelity("optimizer", "Adam, learning rate 1e-3, gradients clipped to a norm of 30"),
        Fidelity("entropy and discount", "coefficient 2.5, discount 0.9, log deviations from -2 to 1"),
        Fidelity("budget", "4,000 steps, the first 1,000 random, an update at each of the others"),
        Fidelity("batches", "256", "128, for time, in both arms"),
        Fidelity("coupling networks", "layer norm, swish with learned slopes, dropout of 0.1", "no slopes, no dropout"),
        Fidelity(
            "reward shifts", "two layers of 256 units, all zero at first", "64 units, the last layer zero at first"
        ),
        Fidelity("environment", "four goals, the numbers of soft Q-learning's code, up to 1,000 steps"),
        Fidelity("invalid losses", "set to zero", "kept; log-determinants are computed without cancellation"),
    ),
    full=Trial(
        arms=(Arm("MEow", MEow()), Arm("SAC", LARGE_SAC)),
        envs=MUJOCO_ENVS,
        steps=LARGE_STEPS,
        claims=(Superiority("MEow", "SAC", final_return("sampled")),),
        max_looks=1,
    ),
)
