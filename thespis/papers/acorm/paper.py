"""Attention-guided contrastive role representations."""

from __future__ import annotations

from typing import Any

from thespis.critics.role_encoding import AttentionMixer, RoleUtility
from thespis.evidence.benches.hidden_trades import BASELINE, BENCH, MIXER, SETTINGS
from thespis.evidence.claims import MinimumScore
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import final_return, learning_curve_auc
from thespis.evidence.paired_verdict import DEFAULT_LOOKS
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.learners.multi_agent.role_contrast import RoleContrast
from thespis.papers.acorm.method import ACORM
from thespis.papers.acorm.role_agreement import role_agreement

_SETTINGS: dict[str, Any] = SETTINGS | {"discount": 0.9}
_ACORM = ACORM(
    mixer=AttentionMixer(MIXER, query_size=4, num_heads=2, attention_size=16, output_size=4),
    utility_network=RoleUtility(role_size=32, embedding_size=16, index_visible=False),
    auxiliary_loss=RoleContrast(update_interval=5),
    **_SETTINGS,
)

PAPER = Paper(
    id="acorm",
    name="ACORM",
    citation=ACORM.citations[0],
    family="multi-agent",
    summary="QMIX with a role vector for each agent, computed from its observations so far. A contrastive loss makes "
    "the roles of agents similar whose histories are in the same cluster, and other roles dissimilar; the mixer "
    "attends to all roles.",
    claim="ACORM has the best results among value-decomposition methods in StarCraft and Google Research Football, and "
    "both the contrastive loss and attention to roles matter.",
    parts=(
        "thespis.papers.acorm.method:ACORM",
        "thespis.critics.role_encoding:RoleUtility",
        "thespis.learners.multi_agent.role_contrast:RoleContrast",
        "thespis.objectives.contrastive:cluster_nce",
        "thespis.objectives.clustering:k_means",
        "thespis.critics.role_encoding:AttentionMixer",
    ),
    command="thespis train acorm --env thespis.envs.compiled.harvest:Harvest --steps 30000",
    miniature=BENCH.trial(
        arms=(Arm("ACORM", _ACORM), Arm("QMIX", BASELINE)),
        headline=Comparison("ACORM", "QMIX", learning_curve_auc()),
        mechanisms=(MinimumScore("ACORM", role_agreement(), 0.1),),
        context=(Comparison("ACORM", "QMIX", final_return()),),
        looks=DEFAULT_LOOKS,
    ),
    remarks="On six tuning seeds ACORM had four trials (learning rate 1e-3, 3e-3, discount 0.8, 0.9, the contrast at "
    "every fifth or 200th update, with and without pretraining), QMIX three. Agreement of roles and trades is the"
    " adjusted Rand index, 0 by chance and 1 for equal partitions. Contradicted: ACORM learns more slowly, by two"
    " standard deviations of seeds in the area under the curve; at the end both play about equally well "
    "(undecided). Its roles are those of the trades to more than half of what exact beliefs allow, so the part "
    "does what it says, and QMIX's recurrent agents find out by themselves what each is good at. The state shows "
    "the trades to both mixers, so attention to roles has nothing to add there. Networks are small and runs "
    "short; StarCraft was not tried.",
    fidelity=(
        Fidelity(
            "agents' networks",
            "a layer, a GRU and a linear output with 64 units, over observation, last action and role",
            "the same with 16 units; the environment's observation holds the last action",
        ),
        Fidelity(
            "agent's index",
            "no input of networks with roles; of QMIX by a setting that the published command lacks",
            "no input of networks with roles; an input of QMIX",
        ),
        Fidelity(
            "embedding and role",
            "layer, GRU and layer of 128 units; the role is a sigmoid of a layer of 64",
            "the same with 16 and 32 units",
        ),
        Fidelity(
            "training of roles",
            "values train embeddings and roles, the contrast only the role layer, at every 200th update",
            "the same, at every fifth of some 700 updates",
        ),
        Fidelity(
            "contrast",
            "k-means over the embeddings of a team at each step, 3 clusters; sums over a cluster, itself included, "
            "bilinear scores, keys from a Polyak-averaged copy of the role layer",
        ),
        Fidelity("start of k-means", "ten random starts", "the points that are farthest apart: nothing is random"),
        Fidelity(
            "mixer",
            "a layer over the state, a GRU whose units are split into a query for each agent, 4 heads of 128 units "
            "over all roles, and QMIX's mixer on state and attention",
            "the same with queries of 4, and 2 heads of 16 units",
        ),
        Fidelity(
            "targets",
            "utilities and mixer are Polyak-averaged; roles and the GRU of the state are those of the trained networks",
            "all networks are copied every 50 updates, as QMIX's here",
        ),
        Fidelity(
            "pretraining",
            "120 updates of the embeddings, to predict the next observation and the index, and 100 of the roles, while "
            "random play is collected, whose steps do not count",
            "none in this trial (``num_embedding_updates``, ``num_role_updates``); its steps count",
        ),
        Fidelity(
            "replay", "whole episodes", "windows of 8 steps, the length of episodes, which begin anywhere in them"
        ),
        Fidelity("exploration", "all agents of a team act at random, or none", "each agent on its own"),
        Fidelity(
            "optimizer",
            "Adam with 6e-4, another one for roles, multiplied by 0.98 every 500 updates",
            "one Adam with 3e-3 for all, and another for the contrast",
        ),
    ),
)
