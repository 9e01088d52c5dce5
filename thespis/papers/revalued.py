"""REValueD: regularised ensemble value-decomposition for factorisable Markov decision processes."""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.core.feeds import Replay
from thespis.evidence.claims import Better
from thespis.evidence.control import LONG, ROBOTS
from thespis.evidence.measures import learning_area
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.learners.decoupled import Held, Unheld
from thespis.methods.online.decqn import DecQN
from thespis.methods.online.revalued import REValueD

_SMALL: dict[str, Any] = {
    "learning_rate": 1e-3, "discount": 0.97, "hidden": (64, 64), "target_rate": 0.02, "epsilon_updates": 1_000.0,
    "feed": Replay(batch=64, warmup=500, every=4, length=3),
}  # fmt: skip


def _arms(settings: dict[str, Any], members: int) -> tuple[Arm, ...]:
    whole, base = REValueD(**settings, members=members), DecQN(**settings)
    return (
        Arm("REValueD", whole),
        Arm("ensemble", dataclasses.replace(whole, holding=Unheld())),
        Arm("regulariser", dataclasses.replace(base, holding=Held())),
        Arm("DecQN", base),
    )


PAPER = Paper(
    id="revalued",
    name="REValueD",
    citation=REValueD.citations[0],
    family="off-policy-ac",
    does="The value of a vector of choices is the mean of utilities of its parts; an ensemble of such critics has "
    "common targets, and utilities that explain a target badly are held to what they were.",
    claim="Better than decoupled Q-networks on discretised control, most clearly with many parts; ensemble and "
    "regulariser each add to it.",
    parts=(
        "thespis.methods.online.revalued:REValueD",
        "thespis.methods.online.decqn:DecQN",
        "thespis.critics.decoupled:DecoupledValue",
        "thespis.learners.decoupled:MeanUtilities",
        "thespis.learners.decoupled:Held",
        "thespis.envs.compiled.levers:Levers",
    ),
    use="thespis train revalued --env Pendulum-v1 --set bins=5 members=5 warmup=1000",
    miniature=Trial(
        arms=_arms(_SMALL, 5),
        envs=("thespis.envs.compiled.levers:CREW", "thespis.envs.compiled.swing_up:SwingUp"),
        steps=20_000,
        claims=(
            Better("REValueD", "DecQN", learning_area()),
            Better("ensemble", "DecQN", learning_area()),
            Better("REValueD", "ensemble", learning_area()),
        ),
    ),
    remarks="Twelve levers with noise on what they earn stand for bodies with many joints, for their values are "
    "known; the swing-up has one dimension, in which nothing can spoil another. Five members for the authors' ten. "
    "The regulariser is written after what is said about it: the authors' code has none. A look at one or two seeds "
    "on the levers showed that they are learnt at this size (DecQN was ahead), and decided nothing. In ten seeds of "
    "both worlds the ensemble is as good as DecQN, and the regulariser costs a fifth among the levers: with noise "
    "on every reward most targets are far from most utilities, so everything is held back, good choices too; and "
    "20,000 steps of one time scale leave little over-estimation for members to average away. The form of the "
    "regulariser, which could not be compared with its equation, may also be to blame.",
    full=Trial(
        arms=_arms({}, 10),
        envs=ROBOTS,
        steps=LONG,
        claims=(Better("REValueD", "DecQN", learning_area()), Better("REValueD", "ensemble", learning_area())),
        looks=1,
    ),
)
