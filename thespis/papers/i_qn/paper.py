"""Iterated Q-network: beyond one-step Bellman updates in deep reinforcement learning."""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.data.feeds import Replay
from thespis.evidence.claims import Superiority
from thespis.evidence.measures import final_return, learning_curve_auc
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.learners.off_policy.discrete_q import IteratedTargets, PeriodicCopy
from thespis.papers.i_qn.method import IDQN

_SMALL_SETTINGS: dict[str, Any] = {
    "learning_rate": 1e-3,
    "discount": 0.97,
    "hidden_sizes": (64, 64),
    "target_update_interval": 45,
    "epsilon_decay_updates": 1_000.0,
    "feed": Replay(batch_size=32, learning_starts=500, update_interval=4),
}


def _arms(settings: dict[str, Any], target_interval: int, chain_target_interval: int) -> tuple[Arm, ...]:
    """Arms: chains of five and of two networks, and a single network.

    ``chain_target_interval``: updates between copies to the targets within a chain; ``target_interval``: updates
    between copies to the target of the single network.
    """
    chain = IDQN(**settings, target_network=IteratedTargets(ensemble_size=5, copy_interval=chain_target_interval))
    return (
        Arm("five", chain),
        Arm(
            "two",
            dataclasses.replace(
                chain, target_network=IteratedTargets(ensemble_size=2, copy_interval=chain_target_interval)
            ),
        ),
        Arm("one", dataclasses.replace(chain, target_network=PeriodicCopy(), target_update_interval=target_interval)),
    )


PAPER = Paper(
    id="i-qn",
    name="i-QN",
    citation=IDQN.citations[0],
    family="off-policy-ac",
    summary="A chain of Q-networks is learned at once, each fitted to the Bellman update of its predecessor, so that "
    "several consecutive updates are learned in parallel. The chain moves on one update at a time.",
    claim="Learns faster and reaches higher returns than learning one Bellman update at a time, on Atari games and in "
    "continuous control.",
    parts=(
        "thespis.papers.i_qn.method:IDQN",
        "thespis.learners.off_policy.discrete_q:IteratedTargets",
        "thespis.learners.off_policy.discrete_q:PerStep",
    ),
    command="thespis train i-dqn --env CartPole-v1 --set ensemble_size=3 learning_rate=1e-3 target_update_interval=45",
    miniature=Trial(
        arms=_arms(_SMALL_SETTINGS, 60, 4),
        envs=("gymnax:CartPole-v1", "gymnax:Acrobot-v1"),
        steps=30_000,
        claims=(
            Superiority("five", "one", learning_curve_auc()),
            Superiority("five", "one", final_return()),
            Superiority("two", "one", learning_curve_auc()),
        ),
    ),
    remarks="Two classic-control environments replace Atari games. As in the authors' settings, the chain's targets "
    "stay fixed for three quarters as long as those of the single network. All arms have the same steps and updates; "
    "a chain needs as many times more computation as it has networks. Only the method for discrete actions is tested; "
    "the actor-critic variant is not implemented. The budget was chosen after preliminary runs with two seeds: with "
    "targets fixed for 150 and 200 updates, the single network did not learn Acrobot in 20,000 steps; so targets are "
    "fixed for 45 and 60 updates, and there are 30,000 steps. The chain's lead on CartPole disappeared with that. "
    "Contradicted: that the chain of five learns faster. Over ten seeds it is the slowest; the chain of two is as "
    "good as one network. Likely cause: a chain helps where the number of Bellman updates is the bottleneck, as with "
    "targets that stay fixed for thousands of steps. With targets as short-lived as Acrobot required here, a single "
    "network makes over a hundred Bellman updates, and the later networks of a chain are fitted to networks that are "
    "not yet fitted themselves. Checked again: a second reading against the paper's procedure (window, copies, acting "
    "network) found no error.",
    full=Trial(
        arms=_arms({}, 2_000, 8),
        envs=("gymnax:Breakout-MinAtar", "gymnax:SpaceInvaders-MinAtar", "gymnax:Asterix-MinAtar"),
        steps=5_000_000,
        claims=(Superiority("five", "one", learning_curve_auc()), Superiority("five", "one", final_return())),
        max_looks=1,
    ),
)
