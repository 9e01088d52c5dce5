"""RODE: learning roles to decompose multi-agent tasks."""

from __future__ import annotations

import dataclasses

from thespis.critics.mixers import MonotonicMixer
from thespis.critics.role_matching import DotProductUtility
from thespis.data.feeds import Replay
from thespis.evidence.claims import Superiority
from thespis.evidence.measures import learning_curve_auc
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.methods.multi_agent.qmix import QMIX
from thespis.papers.rode.action_roles import ActionRoles, RandomAssignment
from thespis.papers.rode.method import RODE

_QMIX = QMIX(
    mixer=MonotonicMixer(16, (32,)),
    hidden_sizes=(64,),
    learning_rate=1e-3,
    discount=0.95,
    target_update_interval=50,
    epsilon_decay_updates=1_000.0,
    feed=Replay(
        buffer_size=30_000, batch_size=16, learning_starts=1_000, update_interval=2, sequence_length=5, num_envs=8
    ),
)
_LEVEL_QMIX = dataclasses.replace(_QMIX, utility_network=DotProductUtility())
_ROLES = ActionRoles(num_pretrain_updates=200.0, learning_rate=3e-3, embedding_size=8)
_RODE = RODE(_LEVEL_QMIX, _LEVEL_QMIX, _ROLES, high_level_interval=3)

PAPER = Paper(
    id="rode",
    name="RODE",
    citation=RODE.citations[0],
    family="multi-agent",
    summary="A model of the effects of actions is learned first, and actions with similar effects form a role. Agents "
    "choose a role every few steps, and in between only actions of their role; the values of both are mixed as in "
    "QMIX.",
    claim="Beats prior methods on 10 of 14 StarCraft tasks (9 as published), above all on the hard ones; restricted "
    "action sets and the learned effects of actions both matter.",
    parts=(
        "thespis.papers.rode.method:RODE",
        "thespis.learners.multi_agent.hierarchical:Hierarchical",
        "thespis.papers.rode.action_roles:ActionRoles",
        "thespis.papers.rode.action_roles:ForwardModel",
        "thespis.critics.role_matching:DotProductUtility",
        "thespis.objectives.clustering:k_means",
    ),
    command="thespis train rode --env thespis.envs.compiled.harvest:Harvest --steps 30000",
    miniature=Trial(
        arms=(
            Arm("RODE", _RODE),
            Arm("QMIX", _QMIX),
            Arm(
                "roles by lot",
                dataclasses.replace(
                    _RODE, high_level_actions=dataclasses.replace(_ROLES, clustering=RandomAssignment())
                ),
            ),
        ),
        envs=("thespis.envs.compiled.harvest:MANY_TOOLS_HARVEST",),
        steps=30_000,
        claims=(
            Superiority("RODE", "QMIX", learning_curve_auc()),
            Superiority("RODE", "roles by lot", learning_curve_auc()),
        ),
        seeds_per_look=4,
        max_looks=1,
        num_episodes=5,
    ),
    remarks="A row of five cells with 32 tools of two kinds stands for StarCraft; tools of one kind are equivalent. "
    "Networks are small and without memory, and a role lasts three steps. The size of the environment, the budget and "
    "the exploration rates were chosen after looking at two seeds: with four tools of either kind QMIX learned as "
    "well. The paper's transfer to three times as many agents is not tested. Not shown: that RODE learns faster than "
    "with random roles (the arm roles by lot). RODE is ahead in 14 of 16 pairs of seeds, but four seeds do not decide "
    "it. Checked again: in three of four seeds the roles are moves, tools of one kind and tools of the other; in the "
    "fourth all tools are one role. After training the return of all four is 12 of 13. That of QMIX is 0; one of its "
    "seeds had learned the task and fell back. Random roles hinder less than expected: two of four seeds end at 12 as "
    "well, and the earlier of these has both moves in one role by chance. Likely cause: any role that lasts for some "
    "steps already walks farther than single random actions do.",
)
