"""Real-time recurrent learning in an actor-critic."""

from __future__ import annotations

from thespis.data.feeds import Rollouts
from thespis.evidence.benches.memory import BASELINE, BENCH, recurrent_actor_critic
from thespis.evidence.claims import MinimumScore, Superiority
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import final_return
from thespis.evidence.memory_tasks import lost_cue_information
from thespis.evidence.paper import Arm, Fidelity, Paper, Trial
from thespis.nets.elstm import ELSTM
from thespis.papers.rtrl_actor_critic.method import R2AC

_LARGE_SETTINGS = {"discount": 0.98, "feed": Rollouts(num_steps=50, num_envs=32, policy_lag=1)}

PAPER = Paper(
    id="rtrl-actor-critic",
    name="RTRL actor-critic",
    citation=R2AC.citations[0],
    family="architecture",
    summary="An actor-critic with a recurrent core whose units depend on their own past alone, so that real-time "
    "recurrent learning (RTRL) is exact and cheap: the core carries the derivatives of its cells with respect to its "
    "weights, and short rollouts give the gradient of whole episodes.",
    claim="Where memory matters, exact real-time recurrent learning is no worse than truncated backpropagation through "
    "time, and learns what lies beyond the truncation.",
    parts=(
        "thespis.nets.elstm:ELSTM",
        "thespis.papers.rtrl_actor_critic.method:R2AC",
        "thespis.papers.rtrl_actor_critic.envs:TMaze",
    ),
    command="thespis train ppo --env thespis.papers.rtrl_actor_critic.envs:NOISY_T_MAZE "
    "--set memory=ELSTM forget_bias=2",
    miniature=BENCH.trial(
        arms=(
            Arm("RTRL, 5 steps", recurrent_actor_critic(5, use_rtrl=True)),
            Arm("truncated, 5 steps", BASELINE),
            Arm("truncated, 10 steps", recurrent_actor_critic(10, use_rtrl=False)),
        ),
        headline=Comparison("RTRL, 5 steps", "truncated, 5 steps", final_return()),
        mechanisms=(
            Comparison("RTRL, 5 steps", "truncated, 5 steps", lost_cue_information()),
            Comparison("RTRL, 5 steps", "truncated, 10 steps", lost_cue_information()),
        ),
        context=(
            Comparison("RTRL, 5 steps", "truncated, 10 steps", final_return()),
            MinimumScore("RTRL, 5 steps", final_return(), 3.5),
        ),
    ),
    remarks="A noisy T-maze with a corridor of 20 steps, and delayed recall after 16 steps, stand for the memory "
    "tasks of DMLab. Without memory the best mean return is 1.95 of 4, and 18 of 24. All arms have the same "
    "networks, make as many updates and learn from 80 steps in each: rollouts of 5 steps from 16 "
    "environments, of 10 from 8. Sizes are small; the optimizer is Adam, not RMSProp; lambda is 0.9; and no "
    "layer comes before the core, so that the gradient of all that it learns is exact. Much depends on the "
    "initial bias of the forget gates. With one of 2, with which cells keep 88% of their value at first, "
    "nine of ten tuning seeds with RTRL learned to turn, and four of ten to recall; with one of 3 (95%) all "
    "ten learned both, and none with truncation. That short rollouts have the gradient of whole episodes is "
    "tested in the package, and is no claim of the trial: its mechanism is how much of the cue the policy "
    "uses. Truncation after 20 and 40 steps, where cue and reward can be in one rollout, is left out for "
    "time: in an earlier trial with 10 seeds and a corridor of the same length, RTRL with rollouts of 5 "
    "steps was no worse than either.",
    fidelity=(
        Fidelity("headline", "the same network by RTRL or by truncated backpropagation, with equal rollouts"),
        Fidelity(
            "cell", "candidate, forget gate and output gate; each unit's gates see the inputs and its own cell alone"
        ),
        Fidelity("output gate", "sees inputs and all new cells; by backpropagation, without sensitivities"),
        Fidelity(
            "sensitivities",
            "six arrays, for input weights, own-cell weights and biases of both gates; 0 where an episode starts",
            "the same numbers in one array",
        ),
        Fidelity(
            "start of a rollout",
            "cells and sensitivities as the acting network carried them, not recomputed with newer weights",
        ),
        Fidelity(
            "gradient of the core's weights",
            "at each step the loss's derivative by the cell, times the sensitivity, summed up",
            "backpropagation within the rollout, plus the sensitivity at its start: equal, which tests show",
        ),
        Fidelity(
            "layers before the core", "gradients within the rollout alone", "the same; the trial has no such layers"
        ),
        Fidelity("initial weights", "normal, 0.1; output gate by PyTorch's default", "the same; its bias is 0"),
        Fidelity(
            "bias of the forget gate", "0", "3, for all arms: the cue is seen once, 16 or 20 steps before it is used"
        ),
        Fidelity("actor and critic", "linear layers on one core", "a core each"),
        Fidelity("inputs", "256 features of an image, and the last reward clipped to [-1, 1]", "the observation alone"),
        Fidelity("rewards", "clipped to [-1, 1]", "not clipped"),
        Fidelity(
            "losses",
            "V-trace with lambda 1; sums over the batch; squared errors of values times 0.25",
            "lambda 0.9; means; 0.5",
        ),
        Fidelity("time limits", "end an episode", "bootstrap with the value of the last observation"),
        Fidelity("gradient clipping", "global norm 40 of sums", "0.5 of means"),
        Fidelity("optimizer", "RMSProp, 6e-4, annealed linearly to 0", "Adam, tuned on the bench for both arms"),
        Fidelity("entropy", "0.01 times the sum", "0.02 times the mean"),
        Fidelity("discount", "0.99", "0.98"),
        Fidelity("sizes", "256 to 512 units, 32 rollouts of 50 to 100 steps", "16 units, 16 rollouts of 5 steps"),
    ),
    full=Trial(
        arms=(
            Arm("RTRL", R2AC(**_LARGE_SETTINGS)),
            Arm("truncated", R2AC(**_LARGE_SETTINGS, memory=ELSTM(256, use_rtrl=False))),
        ),
        envs=("thespis.papers.rtrl_actor_critic.envs:LONG_T_MAZE",),
        steps=20_000_000,
        claims=(Superiority("RTRL", "truncated", final_return()),),
        max_looks=1,
    ),
)
