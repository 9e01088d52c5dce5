"""Real-time recurrent learning in an actor-critic."""

from __future__ import annotations

from typing import Any

from thespis.core.feeds import Rollouts
from thespis.evidence.claims import AtLeast, Better, NoWorse
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.methods.online.r2ac import R2AC
from thespis.nets.elstm import ELSTM

_WORLD = "thespis.envs.compiled.t_maze:NOISY"
_CHOSEN: dict[str, Any] = {
    "hidden": (), "learning_rate": 3e-3, "optimiser": "adam", "trace": 0.9, "discount": 0.98, "entropy_weight": 0.02,
}  # fmt: skip
_BATCH = 80
"""Steps of each update, however long its rollouts are."""


def _r2ac(length: int, sensitivities: bool) -> R2AC:
    memory = ELSTM(16, sensitivities, forget=2.0)
    return R2AC(**_CHOSEN, memory=memory, feed=Rollouts(length=length, envs=_BATCH // length, lag=1))


_LARGE = {"discount": 0.98, "feed": Rollouts(length=50, envs=32, lag=1)}

PAPER = Paper(
    id="rtrl-actor-critic",
    name="RTRL actor-critic",
    citation=R2AC.citations[0],
    family="architecture",
    does="A recurrent core whose units depend on their own past alone carries what its cells change by with each "
    "weight, so that an actor-critic learns from short rollouts by the gradient of whole episodes.",
    claim="Where memory matters, exact real-time recurrent learning is no worse than backpropagation through "
    "truncated time, and learns what lies beyond the truncation.",
    parts=(
        "thespis.nets.elstm:ELSTM",
        "thespis.methods.online.r2ac:R2AC",
        "thespis.envs.compiled.t_maze:TMaze",
    ),
    use="thespis train ppo --env thespis.envs.compiled.t_maze:NOISY --set memory=ELSTM memory.forget=2",
    miniature=Trial(
        arms=(
            Arm("RTRL, 5 steps", _r2ac(5, True)),
            *(Arm(f"truncated, {length} steps", _r2ac(length, False)) for length in (5, 10, 20, 40)),
        ),
        envs=(_WORLD,),
        steps=500_000,
        claims=(
            AtLeast("RTRL, 5 steps", final_return(), 3.5),
            Better("RTRL, 5 steps", "truncated, 5 steps", final_return()),
            Better("RTRL, 5 steps", "truncated, 10 steps", final_return()),
            NoWorse("RTRL, 5 steps", "truncated, 20 steps", final_return(), margin=0.2),
            NoWorse("RTRL, 5 steps", "truncated, 40 steps", final_return(), margin=0.2),
        ),
    ),
    remarks="A T-maze with a corridor of 20 noisy steps stands for the memory tasks of DMLab: who remembers is paid "
    "4, who does not 1.95 on average. All arms have the same nets, make as many updates and learn from 80 steps in "
    "each: rollouts of 5 steps from 16 worlds, of 10 from 8 and so on. Sizes are small, steps are Adam's, not "
    "RMSProp's, with traces of 0.9, cells keep 88% of themselves at first, and nothing comes before the core, so "
    "that all of what it learns is exact. Looks at two seeds decided the budget: with this corridor only the arm "
    "with sensitivities was looked at, and both seeds had learnt after 400,000 steps; with one of 10 steps and "
    "300,000 steps so it was, too, with truncation after 20 steps, and neither seed learnt with truncation after 5. "
    "In ten seeds six learn to remember with sensitivities, none with gradients cut after 5 or 10 steps, none after "
    "20 and two after 40, so that the bound of 3.5 on the mean of the middle seeds is missed by little and the "
    "comparison with 10 steps is nearly decided. Sensitivities say how a state came about and not which choices led "
    "to the turn: the four others walk there and guess, and neither a larger budget nor other rewards were tried "
    "for them.",
    full=Trial(
        arms=(
            Arm("RTRL", R2AC(**_LARGE)),
            Arm("truncated", R2AC(**_LARGE, memory=ELSTM(256, sensitivities=False))),
        ),
        envs=("thespis.envs.compiled.t_maze:LONGEST",),
        steps=20_000_000,
        claims=(Better("RTRL", "truncated", final_return()),),
        looks=1,
    ),
)
