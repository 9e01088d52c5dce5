"""Context-aware Bayesian networks as joint policies."""

from __future__ import annotations

from thespis.core.records import Citation
from thespis.evidence.benches.cooperative_teams import ALL_EDGES, BASELINE, BENCH, CLIMBING_ENV
from thespis.evidence.comparisons import Comparison, NoWorse
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.papers.bayesian_joint_policy.graph_policy import LearnedGraph
from thespis.papers.bayesian_joint_policy.method import BayesianNetworkPPO, LinearEdgeDecay

_EDGES_REMOVED = BayesianNetworkPPO(ALL_EDGES.method, LearnedGraph(), LinearEdgeDecay(38.0, 67.0))
"""Edges are removed between 40% and 70% of the 96 updates."""
_EDGES_AT_FIRST = BayesianNetworkPPO(ALL_EDGES.method, LearnedGraph(), LinearEdgeDecay(0.0, 1.0))
"""Edges in the first rollout only."""

PAPER = Paper(
    id="bayesian-joint-policy",
    name="Bayesian network joint-policy actor-critic",
    citation=Citation(
        "Context-Aware Bayesian Network Actor-Critic Methods for Cooperative Multi-Agent Reinforcement Learning",
        "Chen and Zhang",
        2023,
        "arXiv:2306.01920",
    ),
    family="multi-agent",
    summary="Factorizes the joint policy of a team along a directed acyclic graph, which a network trained with the "
    "actors samples from the observations; edges are removed during training until the actors are independent.",
    claim="Agents whose actions may depend on each other learn to cooperate better than independent ones, also when "
    "edges are removed during training until none is left.",
    parts=(
        "thespis.papers.bayesian_joint_policy.method:BayesianNetworkPPO",
        "thespis.papers.bayesian_joint_policy.method:LinearEdgeDecay",
        "thespis.papers.bayesian_joint_policy.graph_policy:BayesianNetworkPolicy",
        "thespis.papers.bayesian_joint_policy.graph_policy:LearnedGraphSampler",
        "thespis.papers.bayesian_joint_policy.joint_actor_critic:JointActorCritic",
        "thespis.papers.bayesian_joint_policy.envs:ClimbingGame",
        "thespis.papers.bayesian_joint_policy.envs:CoordinationGame",
    ),
    command=f"thespis train bayesian --env {CLIMBING_ENV} --set edge_schedule=LinearEdgeDecay",
    miniature=BENCH.trial(
        arms=(
            Arm("edges removed", _EDGES_REMOVED),
            Arm("MAPPO", BASELINE),
            Arm("all edges", ALL_EDGES),
            Arm("edges only at first", _EDGES_AT_FIRST),
        ),
        headline=Comparison("edges removed", "MAPPO", final_return()),
        mechanisms=(
            Comparison("all edges", "MAPPO", final_return()),
            Comparison("edges removed", "edges only at first", final_return()),
        ),
        context=(
            NoWorse("edges removed", "all edges", final_return(), margin=1.0),
            Comparison("edges removed", "MAPPO", final_return("sampled")),
        ),
    ),
    remarks="The climbing game is that of Claus and Boutilier; in each episode one of three agents is left out, "
    "and all observe which one. The other two can get 11, but the action that leads there can cost 30 unless both "
    "choose it. The coordination game is the paper's, with three agents. Of a learned graph, edges are removed "
    "between 40% and 70% of the updates, so that agents are independent in the end. An arm with edges in the first "
    "rollout only has everything else of the method: the joint policy's ratio, and its entropy coefficient. Both "
    "the method and MAPPO had six trials of learning rate and entropy coefficient. The method needs much entropy, "
    "0.2 in units of normalized advantages: a first player whose follower responds well then prefers the best "
    "action, whatever it began with. MAPPO is best with 0.01. So greedy play is compared: sampled play of the "
    "coordination game is only 0.5 better than MAPPO's (interval -2.2 to 3.1). Not tried: Aloha and StarCraft; "
    "environments in which agents have different observations; the proof. Result: with edges removed, greedy play "
    "earns the same as with all edges in every seed: on average 11 in the climbing game and 55.7 in the "
    "coordination game, where the best joint actions earn 11 and, in expectation, 55.4. MAPPO earns 6.9 and 47.5; "
    "it never finds the best joint action of the climbing game. The arm with edges in the first rollout only earns "
    "7.5 and 44.7.",
    fidelity=(
        Fidelity("joint policy", "agents act in topological order; the actions of parents, one-hot, are inputs"),
        Fidelity(
            "edges",
            "binary Gumbel softmax with straight-through gradients, from the observations",
            "the same distribution, written as a logit with logistic noise",
        ),
        Fidelity(
            "order",
            "Gumbel-Sinkhorn permutation in the coordination game and Aloha, the order of the agents in StarCraft",
            "sorted scores with Gumbel noise, and the slope of a sigmoid of their differences",
        ),
        Fidelity(
            "rivals",
            "all edges, in the order of the agents; a graph without edges, which is MAPPO",
            "all edges, the same; MAPPO, with its own ratio for each agent",
        ),
        Fidelity(
            "graph in the update",
            "sampled anew; in the coordination game and Aloha the parents' actions, too",
            "the random numbers of acting are used again, so that ratios start at 1",
        ),
        Fidelity("ratio", "one for each agent, clipped at 0.2", "one for the joint action, clipped at 0.2"),
        Fidelity(
            "removal of edges",
            "only in StarCraft: penalty on the distance of the share of edges from a target that falls from 1 to 0 in "
            "steps, between 40% and 70% of training",
            "in both games: edges are kept with a probability that falls from 1 to 0 in the same part of training",
        ),
        Fidelity(
            "coordination game",
            "three agents, flips with a probability of 0.1, 25 steps; bits of the first state are 0 with a probability "
            "of 1/3",
            "the same, but a uniform first state",
        ),
        Fidelity("networks", "shared by all agents, 64 units", "one for each agent, 32 units, for time"),
        Fidelity(
            "PPO",
            "learning rate 5e-4, 15 epochs in one batch, entropy coefficient 0.01, 10 million steps",
            "learning rate and coefficient tuned on the bench, 4 epochs in minibatches of 256, 76,800 steps",
        ),
        Fidelity("values", "normalized by PopArt, Huber loss, clipped", "PPO's squared error, as for MAPPO"),
        Fidelity(
            "measure", "exact value of the sampled joint policy over the best", "returns of 100 episodes of greedy play"
        ),
    ),
)
