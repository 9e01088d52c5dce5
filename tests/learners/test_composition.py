"""Composition: methods with random components train, and equally in the compiled and the host loop."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from method_cases import CHOICE, SMALL, replay
from small_envs import HostEnvAdapter, Walk

from thespis.actors.mixture_of_experts import MixtureOfExperts
from thespis.core.laws.assertions import assert_same_bits, to_numpy
from thespis.critics.hypernetwork import HypernetworkCritic
from thespis.curricula.fixed import FixedCurriculum
from thespis.data.feeds import Rollouts
from thespis.feedback.environment import EnvironmentReward
from thespis.learners.off_policy.causal_entropy import CausalEntropy
from thespis.learners.off_policy.dormant_reset import DormantReset
from thespis.learners.off_policy.target_filters import LowPassFilter
from thespis.learners.off_policy.trust_region import MirrorDescentStep
from thespis.methods.online.ppo import PPO
from thespis.methods.online.sac import SAC
from thespis.methods.online.td3 import TD3
from thespis.nets.body import GRU
from thespis.nets.elstm import ELSTM
from thespis.papers.mdpo.method import OffPolicyMDPO
from thespis.runs.settings import part_choices
from thespis.training.compiled_loop import CompiledLoop
from thespis.training.components import Components
from thespis.training.host_loop import HostLoop
from thespis.training.policy_lag import FixedLag

ROLLOUT = {"num_epochs": 2, "minibatch_size": 12, "feed": Rollouts(8, num_envs=3)}
METHODS = [
    (SAC(hidden_sizes=SMALL, feed=replay()), Walk()),
    (TD3(hidden_sizes=SMALL, feed=replay()), Walk()),
    (OffPolicyMDPO(hidden_sizes=SMALL, feed=replay()), Walk()),
    (PPO(hidden_sizes=SMALL, **ROLLOUT), CHOICE),
]
SMALL_PARTS = {
    MixtureOfExperts: MixtureOfExperts(2),
    HypernetworkCritic: HypernetworkCritic((8, 6), 5),
    CausalEntropy: CausalEntropy(update_interval=2, num_samples=10),
    LowPassFilter: LowPassFilter(num_samples=2),
    DormantReset: DormantReset(reset_interval=3),
    MirrorDescentStep: MirrorDescentStep(update_interval=2),
    GRU: GRU(4),
    ELSTM: ELSTM(4),
}
"""Components with sizes that show their effect within a few updates; all others keep their defaults."""


def random_method(number: int):
    """A method with a random component for each of its settings; half of the time SAC, which has most settings."""
    rng = np.random.default_rng(number)
    method, env = METHODS[0] if rng.random() < 0.5 else METHODS[rng.integers(1, len(METHODS))]
    choices = {name: classes for name, classes in part_choices(type(method)).items() if name != "feed"}
    chosen = {name: rng.choice(sorted(classes)) for name, classes in choices.items()}
    if chosen.get("critic") == "HypernetworkCritic":
        del chosen["encoder"]  # its networks are its own: an encoder is refused
    parts = {name: choices[name][choice] for name, choice in chosen.items()}
    chosen_parts = {
        name: None if part is type(None) else SMALL_PARTS.get(part) or part() for name, part in parts.items()
    }
    return dataclasses.replace(method, **chosen_parts), env, chosen


@pytest.mark.slow
@pytest.mark.parametrize("number", range(20))
def test_random_components_train_equally_in_both_loops(number):
    method, env, chosen = random_method(number)
    components, seeds = Components(method, EnvironmentReward(), FixedCurriculum()), [0, 3]
    ends = []
    for loop in (
        CompiledLoop(components, env, 3, seeds, 1000),
        HostLoop(components, HostEnvAdapter(env, 3, seeds), 3, seeds, 1000, FixedLag(0)),
    ):
        init_state = to_numpy(loop.learner_state(loop.init()))
        carry = loop.advance(loop.init(), 8)
        ends.append(to_numpy((loop.learner_state(carry), carry.metric_sums)))
    assert_same_bits(*ends, f"compiled equals host with {chosen}")
    trained = ends[0][0].method
    assert ends[0][1].num_updates.min() > 2
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(trained) if x.dtype.kind == "f"), chosen
    moved = jax.tree.map(lambda a, b: np.abs(a.astype(float) - b).max(initial=0), init_state.method, trained)
    assert max(jax.tree.leaves(moved)) > 1e-4


def test_part_choices_follow_the_annotations():
    assert set(part_choices(SAC)["entropy"]) == {"none", "CausalEntropy"}
    assert part_choices(PPO)["memory"]["none"] is type(None)
    assert "hidden_sizes" not in part_choices(SAC) and "feed" not in part_choices(PPO)
    assert {"Replay", "LoggedTransitions"} <= set(part_choices(SAC)["feed"])
