"""Reinforcement learning with action sequences: a critic that values the next several actions together."""

from __future__ import annotations

import dataclasses

from thespis.evidence.benches.demonstrations import BASELINE, BENCH, FEED
from thespis.evidence.claims import Superiority
from thespis.evidence.comparisons import Comparison
from thespis.evidence.continuous_control import LARGE_SAC, LARGE_STEPS, MUJOCO_ENVS
from thespis.evidence.measures import final_return, learning_curve_auc
from thespis.evidence.paper import Arm, Fidelity, Paper, Trial
from thespis.learners.off_policy.actor_regularizers import BehaviorCloning
from thespis.methods.online.td3 import TD3
from thespis.papers.action_sequence_critic_rl.measures import newest_plan_return
from thespis.papers.action_sequence_critic_rl.method import CQNAS

_SEQUENCES = dataclasses.replace(BASELINE, action_sequence_length=4, feed=dataclasses.replace(FEED, sequence_length=4))
_TD3 = TD3(
    discount=0.97, hidden_sizes=(32, 32), learning_rate=3e-3, actor_regularizer=BehaviorCloning(alpha=0.25), feed=FEED
)
_LARGE_CQN_AS = CQNAS()

PAPER = Paper(
    id="action-sequence-critic-rl",
    name="CQN-AS",
    citation=CQNAS.citations[0],
    family="off-policy-ac",
    summary="Value-based control without an actor: a critic values the bins of the next several actions, from coarse "
    "to fine and for every dimension, each value conditioned on the earlier actions of the sequence. The actions "
    "planned for the same step are averaged.",
    claim="With sparse rewards and noisy trajectories, values of action sequences are easier to learn than those of "
    "single actions: CQN-AS outperforms the same method without sequences, and common actor-critics.",
    parts=(
        "thespis.papers.action_sequence_critic_rl.method:CQNAS",
        "thespis.papers.action_sequence_critic_rl.method:CQN",
        "thespis.papers.action_sequence_critic_rl.coarse_to_fine:CoarseToFineQ",
        "thespis.papers.action_sequence_critic_rl.coarse_to_fine:TemporalEnsemble",
        "thespis.learners.optim.optimizers:AdamW",
    ),
    command="thespis train cqn-as --env Pendulum-v1 --set learning_starts=1000 hidden_sizes=128,128",
    miniature=BENCH.trial(
        arms=(Arm("CQN-AS", _SEQUENCES), Arm("CQN", BASELINE), Arm("TD3 with cloning", _TD3)),
        headline=Comparison("CQN-AS", "CQN", final_return()),
        context=(
            Comparison("CQN-AS", "CQN", newest_plan_return()),
            Comparison("CQN-AS", "CQN", learning_curve_auc()),
            Comparison("CQN-AS", "TD3 with cloning", final_return()),
        ),
    ),
    remarks="A point that goes to a goal stands for humanoids and manipulation, and only the last step is rewarded. "
    "Demonstrations are made by a script instead of people: it goes straight to the goal, but trembles, and before "
    "every tenth step on average stands still for eight. The same twenty demonstrations serve all seeds. Both critics "
    "of bins have the same settings, which were tuned with three trials each; sequences have the parameters of a GRU "
    "in addition. TD3 with cloning stands for the actor-critics with demonstrations that the authors compare with. It "
    "was tuned with three trials as well, and is context, since it did as well as sequences there (0.560). Acting "
    "averages the last four plans: the context says what is left of the lead if the newest plan alone acts. The "
    "critic is evaluated only through its actions, and imitation without reinforcement is not compared. Shown: with "
    "sequences more episodes reach their goals than with single actions, by 0.12 (1.2 standard deviations), and "
    "learning is faster. Two thirds of the difference remain where the newest plan alone acts, which 20 pairs do not "
    "decide. Undecided as well: whether sequences do better than TD3 with cloning in the end (by 0.07); it learns "
    "more slowly.",
    fidelity=(
        Fidelity("values", "of every bin, per level, step of the sequence and dimension; a GRU over the steps"),
        Fidelity("inputs of a step", "features, the center chosen on the last level, one-hots of step and level"),
        Fidelity(
            "layers",
            "two linear ones without biases, orthogonal at first, layer normalization, SiLU; the head begins at 0",
            "the same with biases, uniform by fan-in at first",
        ),
        Fidelity("sampling", "an episode, then a step of it", "a step, uniformly"),
        Fidelity("target", "the online network chooses the next sequence, the target network values it, bin by bin"),
        Fidelity("returns", "of one step beside demonstrations, of three elsewhere", "of one step"),
        Fidelity("sequences at an episode's end", "its last action is repeated"),
        Fidelity(
            "acting",
            "mean of the plans for this step, each exp(0.01) times the next newer one; those with a 0 are left out",
            "the same mean, of all plans",
        ),
        Fidelity("ties", "bins whose values differ by less than 1e-4 are drawn at random"),
        Fidelity("optimizer", "AdamW with a weight decay of 0.1"),
        Fidelity("margin loss", "0.1 on all bins, the demonstrated one included, on demonstrations alone"),
        Fidelity("batches", "as many rows of demonstrations as of own steps", "the same, 16 of each (authors: 256)"),
        Fidelity(
            "returns, where there are demonstrations",
            "distributions of 51 atoms with a dueling head; a loss of stochastic dominance beside the margin loss",
            "scalar values, as the authors' where there are none; so there is no dominance loss",
        ),
        Fidelity("weights of the losses", "critic 0.1, margin 1", "critic 1, margin 3, tuned; the errors are squared"),
        Fidelity("own successes", "the agent's successful episodes become demonstrations", "they do not: replay alone"),
        Fidelity(
            "target network",
            "copied in part at every update (rate 0.02); of single actions whole, at every 50th update",
            "whole at every 100th update, of both",
        ),
        Fidelity(
            "who acts, where there are demonstrations", "the target network", "the online network, as in other tasks"
        ),
        Fidelity("exploration", "normal noise of 0.01", "normal noise of 0.05, of both"),
        Fidelity("own steps before learning", "0, beside demonstrations", "500, at random"),
        Fidelity("sequence", "16 actions beside demonstrations, 4 for humanoids", "4"),
        Fidelity("levels and bins", "3 of 5", "2 of 5, for time"),
        Fidelity("sizes and rates", "512 units, batches of 512, 5e-5", "32 units, batches of 32, tuned: 3e-3"),
        Fidelity("observations", "images and joint angles, four frames", "positions of point and goal"),
    ),
    full=Trial(
        arms=(
            Arm("CQN-AS", _LARGE_CQN_AS),
            Arm("CQN", dataclasses.replace(_LARGE_CQN_AS, action_sequence_length=1)),
            Arm("SAC", LARGE_SAC),
        ),
        envs=MUJOCO_ENVS,
        steps=LARGE_STEPS,
        claims=(Superiority("CQN-AS", "CQN", final_return()), Superiority("CQN-AS", "SAC", final_return())),
        max_looks=1,
    ),
)
