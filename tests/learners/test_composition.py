"""Parts fit together: whatever a method's slots admit trains, and alike in both loops."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from cases import CHOICE, SMALL, replay
from worlds import AsHost, Walk

from thespis.actors.experts import Experts
from thespis.core.feeds import Rollouts
from thespis.core.laws import as_numpy, same_bits
from thespis.critics.hyper import Hypernetwork
from thespis.curricula.fixed import Fixed
from thespis.feedback.environment import EnvironmentReward
from thespis.learners.bands import LowPass
from thespis.learners.entropies import CausalEntropy
from thespis.learners.held import Steps
from thespis.learners.resets import Dormancy
from thespis.loops.compiled import CompiledLoop
from thespis.loops.host import HostLoop
from thespis.loops.pace import FixedLag
from thespis.loops.parts import Parts
from thespis.methods.online.mdpo_off import OffPolicyMDPO
from thespis.methods.online.ppo import PPO
from thespis.methods.online.sac import SAC
from thespis.methods.online.td3 import TD3
from thespis.nets.body import GRU
from thespis.nets.elstm import ELSTM
from thespis.runs.settings import slots

ROLLOUT = {"epochs": 2, "minibatch": 12, "feed": Rollouts(8, envs=3)}
WHOLES = [
    (SAC(hidden=SMALL, feed=replay()), Walk()),
    (TD3(hidden=SMALL, feed=replay()), Walk()),
    (OffPolicyMDPO(hidden=SMALL, feed=replay()), Walk()),
    (PPO(hidden=SMALL, **ROLLOUT), CHOICE),
]
SMALLER = {
    Experts: Experts(2),
    Hypernetwork: Hypernetwork((8, 6), 5),
    CausalEntropy: CausalEntropy(every=2, samples=10),
    LowPass: LowPass(samples=2),
    Dormancy: Dormancy(every=3),
    Steps: Steps(every=2),
    GRU: GRU(4),
    ELSTM: ELSTM(4),
}
"""Parts at a size that shows what they do within a few updates; all others as they are."""


def drawn(number: int):
    """A method with a part drawn for each of its slots; SAC, which has most of them, half of the time."""
    rng = np.random.default_rng(number)
    method, world = WHOLES[0] if rng.random() < 0.5 else WHOLES[rng.integers(1, len(WHOLES))]
    chosen = {name: rng.choice(sorted(classes)) for name, classes in slots(type(method)).items()}
    parts = {name: slots(type(method))[name][choice] for name, choice in chosen.items()}
    made = {name: None if part is type(None) else SMALLER.get(part) or part() for name, part in parts.items()}
    return dataclasses.replace(method, **made), world, chosen


@pytest.mark.parametrize("number", [pytest.param(i, marks=[] if i == 1 else [pytest.mark.slow]) for i in range(20)])
def test_parts_drawn_at_random_train_alike_in_both_loops(number):
    method, world, chosen = drawn(number)
    parts, seeds = Parts(method, EnvironmentReward(), Fixed()), [0, 3]
    ends = []
    for loop in (
        CompiledLoop(parts, world, 3, seeds, 1000),
        HostLoop(parts, AsHost(world, 3, seeds), 3, seeds, 1000, FixedLag(0)),
    ):
        begun = as_numpy(loop.learner(loop.init()))
        carry = loop.advance(loop.init(), 8)
        ends.append(as_numpy((loop.learner(carry), carry.tally)))
    same_bits(*ends, f"compiled equals host with {chosen}")
    learnt = ends[0][0].method
    assert ends[0][1].updates.min() > 2
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(learnt) if x.dtype.kind == "f"), chosen
    moved = jax.tree.map(lambda a, b: np.abs(a.astype(float) - b).max(initial=0), begun.method, learnt)
    assert max(jax.tree.leaves(moved)) > 1e-4


def test_slots_are_those_of_the_annotations():
    assert set(slots(SAC)["entropy"]) == {"PlainEntropy", "CausalEntropy"}
    assert slots(PPO)["memory"]["none"] is type(None)
    assert "hidden" not in slots(SAC) and "feed" not in slots(SAC)
