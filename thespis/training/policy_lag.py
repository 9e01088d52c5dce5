"""Policy lag: how far the acting policy may fall behind the learner, and the thread in which the learner runs."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import secrets
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from thespis.core.errors import UserError
from thespis.runtime.interrupts import Watch, leavable_threads

PolicyQueue = collections.deque[PyTree | Future[PyTree]]
"""Policies in the order of their updates; the newest may still be computed."""


@dataclasses.dataclass(frozen=True)
class FixedLag:
    """Fixed policy lag: acts with the policy of exactly ``lag`` learning phases ago and waits for it.

    Results do not depend on timing.

    Source: Huang et al., 2023 (Cleanba), whose lag is 1.
    """

    lag: int

    def next_policy(self, policies: PolicyQueue) -> PyTree:
        """The oldest of ``lag + 1`` policies."""
        return wait_for(policies.popleft())


@dataclasses.dataclass(frozen=True)
class BoundedLag:
    """Bounded policy lag: acts with the newest ready policy, at most ``lag`` learning phases old.

    There is no waiting, but results depend on timing.

    As in actor-learners with a bounded queue, such as IMPALA (Espeholt et al., 2018).
    """

    lag: int

    def next_policy(self, policies: PolicyQueue) -> PyTree:
        """The newest policy that is ready; it stays in the queue, as it may act again."""
        while len(policies) > 1 and (len(policies) > self.lag + 1 or is_ready(policies[1])):
            wait_for(policies.popleft())
        return wait_for(policies[0])


PolicyLag = FixedLag | BoundedLag
"""The rule for the next acting policy; policies that are too old are dropped."""


def make_policy_lag(lag: int, *, latest_policy: bool) -> PolicyLag:
    """Make the policy lag for a run's options. Raises ``UserError`` where they contradict each other."""
    if latest_policy and lag == 0:
        raise UserError("acting by the newest policy needs room to fall behind: --policy-lag 1 or more")
    return BoundedLag(lag) if latest_policy else FixedLag(lag)


def wait_for(policy: PyTree | Future[PyTree]) -> PyTree:
    """Return the policy itself; waits if it is still computed."""
    return policy.result() if isinstance(policy, Future) else policy


def is_ready(policy: PyTree | Future[PyTree]) -> bool:
    """Whether the policy is available without waiting."""
    if isinstance(policy, Future):
        return policy.done() and is_ready(policy.result())
    # key arrays have no is_ready, but they are never the result of a pending computation
    arrays = [x for x in jax.tree.leaves(policy) if isinstance(x, jax.Array) and isinstance(x.dtype, np.dtype)]
    return all(array.is_ready() for array in arrays)  # pyright: ignore[reportAttributeAccessIssue]


def last_policies(policies: PolicyQueue, lag: int) -> tuple[PyTree, ...]:
    """Return the last ``lag + 1`` policies, all of them ready; the oldest replaces missing ones."""
    ready = [wait_for(policy) for policy in policies][-(lag + 1) :]
    return (ready[0],) * (lag + 1 - len(ready)) + tuple(ready)


class _InlineExecutor(Executor):
    """An executor that calls functions at once, in the way of a :class:`~thespis.runtime.interrupts.Watch`."""

    def __init__(self, watch: Watch):
        self._watch = watch

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(self._watch.call(lambda: fn(*args, **kwargs)))
        return future


def learner_executor(lag: int, watch: Watch) -> contextlib.AbstractContextManager[Executor]:
    """Executor of the learner: with a lag a thread of its own (one thread keeps programs in order), else inline."""
    return leavable_threads(1, "learner") if lag else _InlineExecutor(watch)


def sleep_randomly(jitter: float) -> None:
    """Sleep for up to ``jitter`` seconds; the duration does not depend on any seed."""
    if jitter:
        time.sleep(jitter * secrets.randbelow(1_000_001) / 1_000_000)
