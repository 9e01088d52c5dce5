"""Policy lag of the host loop: how old the acting policy is, and whether results depend on timing."""

from __future__ import annotations

import collections
from concurrent.futures import Future

import numpy as np
import pytest
from method_cases import CASES
from small_envs import HostEnvAdapter

from thespis.core.errors import UserError
from thespis.core.laws.assertions import assert_same_bits, to_numpy
from thespis.curricula.fixed import FixedCurriculum
from thespis.feedback.environment import EnvironmentReward
from thespis.training.components import Components
from thespis.training.host_loop import HostLoop
from thespis.training.policy_lag import BoundedLag, FixedLag, PolicyLag, last_policies, make_policy_lag

SEEDS, ENVS, BLOCKS = [0, 3], 3, 12


def train(policy_lag: PolicyLag, jitter: float = 0.0, name: str = "ppo"):
    parts = Components(CASES[name].method, EnvironmentReward(), FixedCurriculum())
    loop = HostLoop(parts, HostEnvAdapter(CASES[name].env, ENVS, SEEDS), ENVS, SEEDS, 1000, policy_lag, jitter)
    carry = loop.advance(loop.advance(loop.init(), BLOCKS // 2), BLOCKS // 2)
    return to_numpy((loop.learner_state(carry), carry.metric_sums, carry.policies))


@pytest.mark.long
@pytest.mark.parametrize("lag", [1, pytest.param(0, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_fixed_lag_does_not_depend_on_timing(lag):
    assert_same_bits(train(FixedLag(lag)), train(FixedLag(lag), jitter=0.02), "jitter changes nothing")


@pytest.mark.slow
def test_bounded_lag_depends_on_timing():
    """With random delays, learning sometimes ends before the next block and sometimes not: one of the runs differs."""
    first = train(BoundedLag(3))[0].method
    with pytest.raises(Exception, match="differs"):
        for jitter in (0.05, 0.05, 0.1, 0.2, 0.4):
            assert_same_bits(first, train(BoundedLag(3), jitter)[0].method, "timing shows")


def completed_future(value):
    future = Future()
    future.set_result(value)
    return future


def test_fixed_lag_takes_the_oldest_policy():
    policies = collections.deque(["a", completed_future("b"), Future()])
    assert [FixedLag(2).next_policy(policies) for _ in range(2)] == ["a", "b"] and len(policies) == 1


def test_bounded_lag_takes_the_newest_ready_policy():
    waiting = Future()
    policies = collections.deque(["a", completed_future("b"), waiting, Future()])
    newest = BoundedLag(2)
    assert newest.next_policy(policies) == "b" and newest.next_policy(policies) == "b" and len(policies) == 3
    policies.append(Future())
    waiting.set_result("c")  # b is too old and removed; c is the newest ready one
    assert newest.next_policy(policies) == "c" and len(policies) == 3


def test_last_policies_has_a_fixed_length():
    assert last_policies(collections.deque([completed_future(1), 2]), 3) == (1, 1, 1, 2)
    assert last_policies(collections.deque([1, completed_future(2), 3]), 1) == (2, 3)


def test_contradictory_options_are_refused():
    assert make_policy_lag(2, latest_policy=True) == BoundedLag(2) and make_policy_lag(
        0, latest_policy=False
    ) == FixedLag(0)
    with pytest.raises(UserError, match="room to fall behind"):
        make_policy_lag(0, latest_policy=True)


def test_an_error_in_learning_is_not_lost(monkeypatch):
    parts = Components(CASES["ppo"].method, EnvironmentReward(), FixedCurriculum())
    loop = HostLoop(parts, HostEnvAdapter(CASES["ppo"].env, ENVS, SEEDS), ENVS, SEEDS, 1000, FixedLag(1))
    carry = loop.init()
    monkeypatch.setattr("thespis.training.host_loop._stack_rows", lambda rows: np.zeros(0).item())
    with pytest.raises(ValueError, match="size 1"):
        loop.advance(carry, 4)
