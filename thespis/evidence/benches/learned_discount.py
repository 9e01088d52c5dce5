"""Bench of meta-gradients of the discount: a chain whose best choice pays late, under a discount that starts too small.

Five choices at the start of an episode of ten steps. One pays nothing, three pay 0.85 at once, and one pays 1 at the
last step, which is worth more only under a discount above 0.982. The learned discount starts at 0.95 and stays above
0.8. To an outer objective that uses the critic of this discount the late reward seems to be worth less than those that
are paid at once, so the meta-gradient lowers the discount. Actors and critics are linear, as in the experiment of
Bonnet et al. 2022, so that critics are learned quickly; there they are the true values.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.data.feeds import Rollouts
from thespis.evidence.bench import Bench, Headroom, Symptom
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import Measure, final_return, learning_curve_auc, mean_metric
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm
from thespis.methods.online.a2c import A2C
from thespis.papers.outer_value_function_meta_gradient.envs import DelayedChain
from thespis.papers.outer_value_function_meta_gradient.meta_gradient import DiscountBounds, SharedCritic
from thespis.papers.outer_value_function_meta_gradient.method import MetaA2C

CHAIN = DelayedChain((1, 1, 1, 1, 10), (0.0, 0.85, 0.85, 0.85, 1.0))
CHAIN_ENV = f"{__name__}:CHAIN"
STEPS = 480_000
FIXED_DISCOUNT = A2C(
    hidden_sizes=(),
    learning_rate=0.1,
    discount=0.95,
    gae_lambda=0.8,
    ent_coef=0.2,
    max_grad_norm=1e9,
    feed=Rollouts(num_steps=10, num_envs=16),
)
"""A2C with the initial discount; a rollout is 16 whole episodes."""
SETTINGS: dict[str, Any] = {
    "discount_bounds": DiscountBounds(0.8, 1.0),
    "outer_gae_lambda": 0.8,
    "meta_learning_rate": 3e-3,
    "max_meta_grad_norm": 1e9,
}
"""Settings of all methods that learn the discount."""
BASELINE = MetaA2C(FIXED_DISCOUNT, **SETTINGS, outer_critic=SharedCritic())
NO_DISCOUNT = dataclasses.replace(FIXED_DISCOUNT, discount=1.0)
_COPY = dataclasses.replace(BASELINE, method=dataclasses.replace(FIXED_DISCOUNT, learning_rate=0.10001))


def discount_deficit() -> Measure:
    """One minus the learned discount, mean over training: how far it is from that of the outer objective."""
    discount = mean_metric("discount")
    return Measure("one minus the learned discount", lambda run: 1.0 - discount.compute(run), False)


BENCH = Bench(
    name="learned-discount",
    version=1,
    summary="A chain whose best choice pays late: methods that learn their discount.",
    envs=(CHAIN_ENV,),
    steps=STEPS,
    arms=(
        Arm("one critic", BASELINE),
        Arm("one critic again", _COPY),
        Arm("A2C, discount of 0.95", FIXED_DISCOUNT),
        Arm("A2C, no discount", NO_DISCOUNT),
    ),
    positive=Comparison("A2C, no discount", "A2C, discount of 0.95", final_return()),
    negative=Comparison("one critic", "one critic again", learning_curve_auc()),
    headroom=Headroom("one critic", "A2C, no discount", final_return()),
    symptoms=(Symptom("one critic", discount_deficit(), 0.08),),
    tuning="Learning rates of the discount (3e-3, 1e-3, 1e-2 and 3e-2) with one critic and with an outer critic, four "
    "each, on seeds 1,100 to 1,109: with one critic the final greedy return is 0.85 in all seeds with any of them, and "
    "the mean discount 0.875, 0.919, 0.829 and 0.812; with an outer critic the return is 1, 1, 0.895 and 0.895, as "
    "larger rates lower the discount before the critics are learned. 3e-3 was run first and kept. Before, a dozen "
    "settings of three chains were looked at, on six or ten of these seeds: with a hidden layer, learning rates of "
    "3e-3 and 1e-2 and entropy weights of 0.1 and 0.3 the outer critic is learned too late, and the discount falls "
    "with either critic; where three of five choices pay nothing, the discount rises with either; linear networks with "
    "a rate of 0.03 end as here, more slowly. Fixed discounts of 0.95 and 1 earn 0.85 and 1 in all seeds.",
    looks=plan_looks((20, 40)),
)
