"""Distributional soft actor-critic."""

from __future__ import annotations

import dataclasses

from thespis.core.records import Citation
from thespis.evidence.claims import Superiority
from thespis.evidence.continuous_control import (
    FAST_TEMPERATURE,
    LARGE_SAC,
    LARGE_SETTINGS,
    LARGE_STEPS,
    MUJOCO_ENVS,
    SMALL_ENVS,
    SMALL_SAC,
    SMALL_SETTINGS,
    SMALL_STEPS,
    with_critic_learning_rate,
)
from thespis.evidence.measures import final_return, overestimation
from thespis.evidence.paper import Arm, Fidelity, Paper, Trial
from thespis.methods.online.dsac import DSAC
from thespis.methods.online.sac import SAC
from thespis.methods.online.td3 import TD3


def _baseline_arms(sac: SAC, td3: TD3) -> tuple[Arm, ...]:
    return Arm("SAC", sac), Arm("TD3", td3), Arm("SAC with one critic", dataclasses.replace(sac, num_critics=1))


_CLAIMS = (
    Superiority("DSAC", "SAC", final_return()),
    Superiority("DSAC", "TD3", final_return()),
    Superiority("DSAC", "SAC with one critic", overestimation()),
)
_SMALL_DSAC = DSAC(
    **with_critic_learning_rate(SMALL_SETTINGS),
    actor_learning_rate=1e-3,
    temperature=FAST_TEMPERATURE,
    tau=0.005,
    reward_scale=1.0,
)

PAPER = Paper(
    id="dsac",
    name="DSAC",
    citation=Citation("Distributional Soft Actor-Critic", "Duan et al.", 2021, "arXiv:2001.02811"),
    family="distributional-risk",
    summary="Off-policy maximum-entropy actor-critic whose single critic is a normal distribution of the soft return. "
    "The learned variance makes the critic's updates smaller where returns are uncertain.",
    claim="State-of-the-art returns in continuous control, with less overestimation of action values.",
    parts=(
        "thespis.methods.online.dsac:DSAC",
        "thespis.critics.value_functions:GaussianReturnQ",
        "thespis.objectives.value_losses:gaussian_return_loss",
        "thespis.learners.off_policy.critic_updates:fit_gaussian_returns",
    ),
    command="thespis train dsac --env Pendulum-v1 --set hidden_sizes=64,64 critic_learning_rate=1e-3 "
    "actor_learning_rate=1e-3",
    miniature=Trial(
        arms=(Arm("DSAC", _SMALL_DSAC), *_baseline_arms(SMALL_SAC, TD3(**SMALL_SETTINGS))),
        envs=SMALL_ENVS,
        steps=SMALL_STEPS,
        claims=_CLAIMS,
    ),
    remarks="Learning rates, tau of the target networks and network sizes are those of the other arms, because with "
    "the paper's own (5e-5 to 8e-5, five layers) little is learned in this budget. Values are compared with realized "
    "soft returns, entropy included. Contradicted: higher returns than SAC's. Checked again: a first run scaled "
    "rewards by 0.2 as for MuJoCo, where returns are far larger. The standard deviation's floor of 0.9 then hid the "
    "swing-up's reward; returns stayed below 52 and values too high. The authors say of this version that its reward "
    "scale must suit the task (arXiv:2310.05858). With unscaled rewards the lower overestimation is shown, but "
    "returns still trail SAC's. Likely cause: the budget. Targets are noisy samples and the actor is updated only at "
    "every second critic update, so it learns later. After 45,000 steps the five seeds on the swing-up are at 158 to "
    "168, where SAC is after 15,000.",
    fidelity=(
        Fidelity("critic", "one network with mean and standard deviation of the soft return, no minimum of two"),
        Fidelity(
            "critic loss", "the mean's error over the fixed variance; the deviation's gradient has a bounded error"
        ),
        Fidelity("bound of that error", "20 by default", "10"),
        Fidelity(
            "target", "a sample of the target critic, noise clipped at 2 deviations, at the target actor's action"
        ),
        Fidelity("standard deviation", "between 0.90 and 54.6, in rewards times 0.2", "a floor of 0.9 plus a softplus"),
        Fidelity("delay", "actor, temperature and both targets at every second update"),
        Fidelity("learning rates", "8e-5 and 5e-5, annealed to 1e-6 by a cosine", "1e-3, constant, as the other arms"),
        Fidelity("target networks", "rate 0.001", "0.005, as the other arms"),
        Fidelity("networks", "five layers of 256 units, GELU, batches of 256", "two layers of 64 units, batches of 64"),
        Fidelity("rewards", "times 0.2", "as they are"),
        Fidelity("runs", "six actors, three buffers and four learners, asynchronous", "one of each, synchronous"),
    ),
    full=Trial(
        arms=(Arm("DSAC", DSAC()), *_baseline_arms(LARGE_SAC, TD3(**LARGE_SETTINGS))),
        envs=MUJOCO_ENVS,
        steps=LARGE_STEPS,
        claims=_CLAIMS,
        max_looks=1,
    ),
)
