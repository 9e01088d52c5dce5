"""Distributional reinforcement learning with ensembles."""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.core.feeds import Replay
from thespis.evidence.claims import Better, NoWorse
from thespis.evidence.measures import final_return, learning_area
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.learners.categorical import Own
from thespis.methods.online.c51 import C51
from thespis.methods.online.ensemble_c51 import EnsembleC51

_SMALL: dict[str, Any] = {
    "learning_rate": 1e-3, "discount": 0.97, "hidden": (32, 32), "lowest": -35.0, "highest": 35.0,
    "target_every": 50, "epsilon_updates": 1_000.0,
}  # fmt: skip
_FEED = Replay(batch=16, warmup=500, every=4)
_TOGETHER = EnsembleC51(**_SMALL, feed=dataclasses.replace(_FEED, batch=80))
_LARGE = EnsembleC51(hidden=(512,))


def _arms(ensemble: EnsembleC51, one: C51) -> tuple[Arm, ...]:
    return (
        Arm("ensemble", ensemble),
        Arm("independent", dataclasses.replace(ensemble, believed=Own())),
        Arm("one", one),
    )


_CLAIMS = (
    Better("ensemble", "independent", learning_area()),
    Better("ensemble", "independent", final_return("sampled")),
)

PAPER = Paper(
    id="ensemble-categorical-rl",
    name="Ensemble Categorical RL",
    citation=EnsembleC51.citations[0],
    family="distributional-risk",
    does="Several categorical Q-networks learn in parallel, each by experience of its own acting too; the targets "
    "of all are made of the average of their return distributions.",
    claim="More robust early learning, stronger individual agents and good efficiency per sample.",
    parts=(
        "thespis.methods.online.ensemble_c51:EnsembleC51",
        "thespis.methods.online.c51:C51",
        "thespis.learners.categorical:Mixture",
        "thespis.critics.categorical:CategoricalValue",
        "thespis.objectives.categorical:projected",
    ),
    use="thespis train ensemble-c51 --env CartPole-v1 --set highest=100.0 lowest=-100.0",
    miniature=Trial(
        arms=_arms(_TOGETHER, C51(**_SMALL, feed=_FEED)),
        envs=("gymnax:CartPole-v1", "gymnax:Acrobot-v1"),
        steps=40_000,
        claims=(*_CLAIMS, NoWorse("ensemble", "one", learning_area(), margin=0.0)),
    ),
    remarks="Early learning is the mean training return over a short run. An individual agent is a member that "
    "plays by itself, as sampled episodes are; alike in all arms are the samples and gradient steps of each net. "
    "Efficiency per sample is read as: as good a curve as one net's, although five share the steps of the world "
    "that one has to itself there. The paper's worlds are games of the Atari console, and the lunar lander in the "
    "authors' code; here they are two compiled ones of classic control, with atoms wide enough for both. First "
    "looks at two seeds decided sizes, by what they cost, and steps: in 20,000 few learnt Acrobot. In ten seeds "
    "ensemble and independent members end alike. Both learn from what all members did, which may be most of what an "
    "ensemble gives; and in two worlds without chance members come to believe nearly the same, so that their mean "
    "tells each little it did not know. In games, where the paper found its gain, returns vary far more.",
    full=Trial(
        arms=_arms(_LARGE, C51(hidden=(512,))),
        envs=("gymnax:Breakout-MinAtar", "gymnax:Asterix-MinAtar"),
        steps=5_000_000,
        claims=_CLAIMS,
        looks=1,
    ),
)
