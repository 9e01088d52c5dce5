"""Soft actor-critic as first published, with a state value."""

from __future__ import annotations

import dataclasses

from thespis.core.records import Citation
from thespis.evidence.benches.off_policy_control import BASELINE, BENCH, PPO_STEPS, SETTINGS, TUNED_PPO, TUNED_TD3
from thespis.evidence.comparisons import Comparison, LowerSpread
from thespis.evidence.continuous_control import EARLY_LOOKS, EARLY_STEPS, LARGE_DDPG, LARGE_SETTINGS
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Fidelity, PairedTrial, Paper
from thespis.learners.off_policy.temperature import FixedTemperature
from thespis.methods.online.sac_v import SACV
from thespis.methods.online.td3 import TD3


def _deterministic(td3: TD3) -> Arm:
    """The paper's ablation: two critics, no entropy, exploration noise."""
    return Arm("deterministic", dataclasses.replace(td3, target_policy_noise=0.0, policy_delay=1))


PAPER = Paper(
    id="sac-original",
    name="SAC",
    citation=Citation(
        "Soft Actor-Critic: Off-Policy Maximum Entropy Deep RL", "Haarnoja et al.", 2018, "arXiv:1801.01290"
    ),
    family="off-policy-ac",
    summary="The first version of soft actor-critic: a stochastic actor that maximizes return and entropy, twin soft "
    "critics, and a state value with a target network.",
    claim="Beats prior on- and off-policy methods on continuous control, with very similar results across seeds.",
    parts=(
        "thespis.methods.online.sac_v:SACV",
        "thespis.critics.value_functions:StateValue",
        "thespis.learners.off_policy.temperature:FixedTemperature",
    ),
    command="thespis train sac-v --env Pendulum-v1",
    miniature=BENCH.trial(
        arms=(
            Arm("SAC", SACV(**SETTINGS, learning_rate=1e-3, temperature=FixedTemperature(0.05))),
            Arm("DDPG", BASELINE),
            Arm("PPO", TUNED_PPO, steps=PPO_STEPS),
            _deterministic(TUNED_TD3),
        ),
        headline=Comparison("SAC", "DDPG", final_return()),
        mechanisms=(LowerSpread("SAC", "deterministic", final_return()),),
        context=tuple(Comparison("SAC", other, final_return()) for other in ("PPO", "deterministic")),
    ),
    remarks="The deterministic arm stands for the paper's ablation (section 5.2): two critics, no entropy, Gaussian "
    "exploration noise. Unlike there, its target networks are updated slowly, and its actor has one too. The entropy "
    "coefficient of 0.05 is a reward scale of 20; like the paper's, it was tuned, together with the learning rate: "
    "1e-3 and 3e-3 with 0.05 and 0.2, on ten tuning seeds of the swing-up, as many trials as DDPG and TD3 had; the "
    "deterministic arm has TD3's learning rate. Rewards are normalized for PPO, and observations. At full size the "
    "coefficient is 0.2, the paper's reward scale of 5 for this robot.",
    fidelity=(
        Fidelity(
            "state value",
            "regresses on the minimum of both critics minus the log-probability; its target network "
            "is a Polyak average with rate 0.005 (first code: 0.01)",
            "rate 0.005",
        ),
        Fidelity("critics", "two in the paper (the first code has one); target: reward plus the target value"),
        Fidelity(
            "actor",
            "reparameterized, on the minimum of both critics (first code: likelihood ratio, a mixture)",
            "reparameterized, squashed Gaussian",
        ),
        Fidelity("entropy", "rewards multiplied by 5 to 100, temperature 1", "temperature 0.05, the same objective"),
        Fidelity("order", "all from the same parameters", "value and actor on the updated critics"),
        Fidelity("regularization", "0.001 times the squares of the actor's mean and log-deviation", "none"),
        Fidelity("learning rate", "3e-4", "1e-3, tuned on the bench"),
        Fidelity("networks", "256 and 256 units, batches of 256", "64 and 64 units, batches of 64, for time"),
        Fidelity("first steps", "1,000 random steps (10,000 in large tasks)", "1,000"),
        Fidelity("discount", "0.99", "0.97, as in all arms of the bench"),
    ),
    full=PairedTrial(
        arms=(Arm("SAC", SACV(**LARGE_SETTINGS, temperature=FixedTemperature(0.2))), Arm("DDPG", LARGE_DDPG)),
        envs=("envpool:HalfCheetah-v5",),
        steps=EARLY_STEPS,
        headline=Comparison("SAC", "DDPG", final_return()),
        looks=EARLY_LOOKS,
        num_episodes=20,
    ),
)
