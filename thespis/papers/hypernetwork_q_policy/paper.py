"""Critics whose weights on the action are generated from the observation by a hypernetwork."""

from __future__ import annotations

import dataclasses

from thespis.core.records import Citation
from thespis.critics.hypernetwork import ConcatCritic, HypernetworkCritic
from thespis.evidence.claims import Superiority
from thespis.evidence.continuous_control import (
    LARGE_SETTINGS,
    LARGE_STEPS,
    MUJOCO_ENVS,
    SMALL_ENVS,
    SMALL_SAC,
    SMALL_SETTINGS,
    SMALL_STEPS,
)
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Fidelity, Paper, Trial
from thespis.methods.online.sac import SAC
from thespis.methods.online.td3 import TD3
from thespis.papers.hypernetwork_q_policy.measures import action_gradient_cosine

_HYPERNETWORK, _CONCAT_CRITIC = HypernetworkCritic((32, 64), 64), ConcatCritic((195, 195))
_TD3 = TD3(**SMALL_SETTINGS)


def _arm_pair(
    name: str, method: TD3 | SAC, hypernetwork: HypernetworkCritic, concat_critic: ConcatCritic
) -> tuple[Arm, Arm]:
    return (
        Arm(f"{name}, hypernetwork", dataclasses.replace(method, critic=hypernetwork)),
        Arm(name, dataclasses.replace(method, critic=concat_critic)),
    )


PAPER = Paper(
    id="hypernetwork-q-policy",
    name="Hypernetwork Q/policy",
    citation=Citation(
        "Recomposing the Reinforcement Learning Building Blocks with Hypernetworks",
        "Sarafian et al.",
        2021,
        "arXiv:2106.06842",
    ),
    family="architecture",
    summary="A critic in which a hypernetwork generates, from the observation, the weights of a small network of the "
    "action, instead of one network with both as concatenated inputs.",
    claim="TD3 and SAC reach higher returns with it in locomotion, because the critic's action gradient is closer to "
    "that of the true returns.",
    parts=("thespis.critics.hypernetwork:HypernetworkCritic", "thespis.critics.hypernetwork:HypernetworkQ"),
    command="thespis train td3 --env Pendulum-v1 --set critic=HypernetworkCritic",
    miniature=Trial(
        arms=(
            *_arm_pair("TD3", _TD3, _HYPERNETWORK, _CONCAT_CRITIC),
            *_arm_pair("SAC", SMALL_SAC, _HYPERNETWORK, _CONCAT_CRITIC),
        ),
        envs=(*SMALL_ENVS[1:], "thespis.envs.compiled.reacher:Reacher"),
        steps=SMALL_STEPS,
        claims=(
            Superiority("TD3, hypernetwork", "TD3", final_return()),
            Superiority("SAC, hypernetwork", "SAC", final_return()),
            Superiority("TD3, hypernetwork", "TD3", action_gradient_cosine()),
        ),
    ),
    remarks="Two compiled environments, one with one action dimension and one with two, replace MuJoCo. On the "
    "swing-up both kinds of critic have about forty thousand weights: residual blocks of 32 and 64 units with a "
    "generated network of 64 units, or two layers of 195. The authors' have many millions, their baselines' far "
    "fewer. Action gradients are compared with finite differences of the returns of greedy play, in states of greedy "
    "play. Meta-policies (MAML, PEARL) are not tested: there is no meta-learning of policies here. Not shown: a "
    "difference; all arms end alike in ten seeds. The hypernetwork critic's action gradient agrees better with that "
    "of returns in both environments and with both methods, as the paper claims, but differences between seeds are as "
    "large. Likely cause: nothing is left to gain. With one or two action dimensions and about forty thousand "
    "weights, a plain network's action gradient suffices for the best possible return; locomotion has more action "
    "dimensions. Checked again: the critic's code was reread and no error was found.",
    fidelity=(
        Fidelity("hypernetwork", "on the observation: three linear layers, each with two residual blocks after it"),
        Fidelity("residual block", "input plus linear, ReLU, linear of its ReLU"),
        Fidelity("generated network", "one hidden layer with ReLU; weights, biases, and gains that are added to 1"),
        Fidelity("outputs of the hypernetwork", "uniform in ±0.05 (last layer ±0.008) at first, biases 0"),
        Fidelity(
            "layers of the hypernetwork",
            "uniform at first, within 1 / (2 sqrt(inputs)) in TD3 and 1 / sqrt(2 inputs) in SAC",
            "within 1 / (2 sqrt(inputs))",
        ),
        Fidelity(
            "learning rate in SAC",
            "5e-5 for hypernetwork critics, 3e-4 for actor, temperature and plain critics",
            "1e-3 for all; SAC has a setting for it",
        ),
        Fidelity(
            "sizes", "256, 512 and 1,024 units, 256 generated; plain critics two layers of 256", "see the remarks"
        ),
        Fidelity("entropy coefficient in SAC", "fixed at 1 by default", "tuned"),
        Fidelity("batches", "256", "64, for time"),
    ),
    full=Trial(
        arms=(
            *_arm_pair("TD3", TD3(**LARGE_SETTINGS), HypernetworkCritic(), ConcatCritic()),
            *_arm_pair("SAC", SAC(**LARGE_SETTINGS), HypernetworkCritic(), ConcatCritic()),
        ),
        envs=MUJOCO_ENVS,
        steps=LARGE_STEPS,
        claims=(
            Superiority("TD3, hypernetwork", "TD3", final_return()),
            Superiority("SAC, hypernetwork", "SAC", final_return()),
        ),
        max_looks=1,
    ),
)
