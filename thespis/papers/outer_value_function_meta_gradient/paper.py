"""Meta-gradients of the discount, with and without a critic of the outer discount."""

from __future__ import annotations

import dataclasses

from thespis.data.feeds import Rollouts
from thespis.evidence.claims import NonInferiority, Superiority
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.methods.online.a2c import A2C
from thespis.papers.outer_value_function_meta_gradient.meta_gradient import DiscountBounds, SharedCritic
from thespis.papers.outer_value_function_meta_gradient.method import MetaA2C

_A2C = A2C(
    hidden_sizes=(32,),
    learning_rate=3e-3,
    discount=0.95,
    gae_lambda=0.9,
    ent_coef=0.1,
    max_grad_norm=1e9,
    feed=Rollouts(num_steps=10, num_envs=32),
)
_META = MetaA2C(
    _A2C,
    discount_bounds=DiscountBounds(0.9, 1.0),
    outer_gae_lambda=0.9,
    meta_learning_rate=0.03,
    max_meta_grad_norm=1e9,
)
_ARMS = (
    Arm("outer critic", _META),
    Arm("one critic", dataclasses.replace(_META, outer_critic=SharedCritic())),
    Arm("A2C, discount of 0.95", _A2C),
    Arm("A2C, no discount", dataclasses.replace(_A2C, discount=1.0)),
)
_LARGE_FEED = Rollouts(num_steps=20, num_envs=64)
_LARGE_META = dataclasses.replace(_META, method=dataclasses.replace(_A2C, feed=_LARGE_FEED))

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
    miniature=Trial(
        arms=_ARMS,
        envs=("thespis.papers.outer_value_function_meta_gradient.envs:DelayedChain",),
        steps=600_000,
        claims=(
            Superiority("outer critic", "one critic", final_return()),
            Superiority("outer critic", "A2C, discount of 0.95", final_return()),
            NonInferiority("outer critic", "A2C, no discount", final_return(), margin=0.02),
        ),
    ),
    remarks="The chain has three choices instead of five, and episodes of ten steps instead of a hundred. The best "
    "choice is rewarded last, with a tenth more, which under a discount of 0.95 is worth less than the choice that is "
    "rewarded at once. The discount starts at 0.95 and is kept above 0.9, as in the authors' notebook. Critics are "
    "learned; in the notebook they are the true values. The budget, the step sizes, the entropy coefficient and "
    "rollouts of one whole episode were chosen after looking at two seeds. In these runs, with rollouts that cut "
    "episodes in two, the rollouts that contain the choice were evaluated by those that do not, and the discount "
    "wandered. With entropy in the outer objective, the discount rose with either critic. With one-step advantages no "
    "arm learned, not even without a discount. Snake and bootstrapped meta-gradients are not tested. Not shown: that "
    "the learned discount is no worse than the best fixed one. With the outer critic eight of ten seeds end with the "
    "best choice and two with the one that is rewarded at once; with one critic no seed ends with the best choice.",
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
