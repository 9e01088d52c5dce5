"""Meta-gradients of the discount, with and without a critic of the outer discount."""

from __future__ import annotations

import dataclasses

from thespis.data.feeds import Rollouts
from thespis.evidence.benches.learned_discount import BASELINE, BENCH
from thespis.evidence.claims import Superiority
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import final_return, learning_curve_auc, mean_metric
from thespis.evidence.paper import Arm, Fidelity, Paper, Trial
from thespis.methods.online.a2c import A2C
from thespis.papers.outer_value_function_meta_gradient.meta_gradient import DiscountBounds, SeparateCritic, SharedCritic
from thespis.papers.outer_value_function_meta_gradient.method import MetaA2C

_OUTER_CRITIC = dataclasses.replace(BASELINE, outer_critic=SeparateCritic())
_LARGE_A2C = A2C(
    hidden_sizes=(32,),
    learning_rate=3e-3,
    discount=0.95,
    gae_lambda=0.9,
    ent_coef=0.1,
    max_grad_norm=1e9,
    feed=Rollouts(num_steps=20, num_envs=64),
)
_LARGE_META = MetaA2C(
    _LARGE_A2C,
    discount_bounds=DiscountBounds(0.9, 1.0),
    outer_gae_lambda=0.9,
    meta_learning_rate=0.03,
    max_meta_grad_norm=1e9,
)

PAPER = Paper(
    id="outer-value-function-meta-gradient",
    name="Meta-gradients with an outer value function",
    citation=MetaA2C.citations[0],
    family="on-policy-ac",
    summary="A2C learns its discount by the meta-gradient of an outer objective with a fixed discount. A second "
    "critic, trained with the outer discount, gives the advantages of the outer objective.",
    claim="With the critic of the learned discount, the meta-gradient favors short horizons and can fail altogether; a "
    "critic of the outer discount fixes this.",
    parts=(
        "thespis.papers.outer_value_function_meta_gradient.method:MetaA2C",
        "thespis.papers.outer_value_function_meta_gradient.meta_gradient:SeparateCritic",
        "thespis.papers.outer_value_function_meta_gradient.meta_gradient:SharedCritic",
        "thespis.papers.outer_value_function_meta_gradient.meta_gradient:DiscountBounds",
        "thespis.papers.outer_value_function_meta_gradient.envs:DelayedChain",
    ),
    command="thespis train meta-a2c --env CartPole-v1 --set outer_critic=SharedCritic",
    miniature=BENCH.trial(
        arms=(
            Arm("outer critic", _OUTER_CRITIC),
            Arm("one critic", BASELINE),
        ),
        headline=Comparison("outer critic", "one critic", final_return()),
        mechanisms=(
            Comparison("outer critic", "one critic", mean_metric("discount")),
            Comparison("outer critic", "one critic", mean_metric("outer_advantage", larger_is_better=False)),
        ),
        context=(Comparison("outer critic", "one critic", learning_curve_auc()),),
    ),
    remarks="The paper's first experiment, on a smaller chain: episodes of ten steps, and critics that are learned "
    "instead of given. On this chain the choices that are paid at once are halfway between random play and the best "
    "choice, so that one critic fails without being worse than random play. Its discount falls whatever the learning "
    "rate of the discount was. The outer critic needs small rates: until it is learned, the outer objective is biased "
    "in the same way. With a hidden layer and smaller learning rates of the networks it was learned too late, and the "
    "discount fell with either critic. In an earlier trial a tenth of the reward separated the best choice from the "
    "others, and random play earned more than one critic did. Snake and bootstrapped meta-gradients are not tested.",
    fidelity=(
        Fidelity("outer objective", "policy gradient without a discount on a rollout of the updated policy"),
        Fidelity(
            "outer rollout",
            "collected for the outer objective and then discarded",
            "the next training rollout, so that no steps are spent on it",
        ),
        Fidelity("meta-gradient", "through one update of the actor, with respect to the logit of the discount"),
        Fidelity(
            "outer critic", "a second head of the critic", "a network of its own; in linear networks no difference"
        ),
        Fidelity("critics on the chain", "the true values", "learned"),
        Fidelity("inner and outer lambda", "0 on the chain, 0.95 and 1 in Snake", "0.8, as critics are learned"),
        Fidelity(
            "entropy bonus",
            "0.005 in the inner and the outer objective on the chain; 0.01 and none in Snake",
            "0.2 in the inner objective, so that choices are still tried after critics are learned, none in the outer",
        ),
        Fidelity("discount", "0.95 at the start, within 0.9 and 1", "the same start, within 0.8 and 1"),
        Fidelity("optimizers", "SGD of 0.5; Adam of 0.1 for the discount", "RMSProp of 0.1; Adam of 3e-3, tuned"),
        Fidelity("networks on the chain", "linear"),
        Fidelity(
            "chain",
            "five choices paid after 1, 3, 10, 30 and 100 steps; all pay 1, the best 1.1",
            "five choices, paid after 1 and 10 steps; what pays at once is halfway from random play to the best",
        ),
        Fidelity("batches", "128 episodes of 100 steps", "16 episodes of 10 steps"),
    ),
    full=Trial(
        arms=(
            Arm("outer critic", _LARGE_META),
            Arm("one critic", dataclasses.replace(_LARGE_META, outer_critic=SharedCritic())),
        ),
        envs=("thespis.papers.outer_value_function_meta_gradient.envs:LONG_DELAYED_CHAIN",),
        steps=5_000_000,
        claims=(Superiority("outer critic", "one critic", final_return()),),
        max_looks=1,
    ),
)
