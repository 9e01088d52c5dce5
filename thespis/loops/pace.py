"""How far acting may fall behind learning, and the thread in which learning goes on meanwhile."""

from __future__ import annotations

import collections
import dataclasses
import secrets
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from thespis.core.errors import UserError

Policies = collections.deque[PyTree | Future[PyTree]]
"""Policies in the order in which they were learnt; the newest may still be in the making."""


@dataclasses.dataclass(frozen=True)
class FixedLag:
    """The policy of exactly ``lag`` phases of learning ago, waited for if need be: results do not depend on timing.

    Source: Huang et al., 2023 (Cleanba), whose lag is 1.
    """

    lag: int

    def take(self, policies: Policies) -> PyTree:
        """The oldest of ``lag + 1``."""
        return known(policies.popleft())


@dataclasses.dataclass(frozen=True)
class NewestWithin:
    """The newest policy that is ready, of at most ``lag`` phases ago: nobody waits, but timing shows in the results.

    So do actor-learners whose queue is only bounded, as IMPALA's (Espeholt et al., 2018).
    """

    lag: int

    def take(self, policies: Policies) -> PyTree:
        """The newest that is ready; it stays, as it may act again."""
        while len(policies) > 1 and (len(policies) > self.lag + 1 or ready(policies[1])):
            known(policies.popleft())
        return known(policies[0])


Pace = FixedLag | NewestWithin
"""Which policy acts next; what is too old is dropped."""


def pace(lag: int, *, newest: bool) -> Pace:
    """The pace that a run's options ask for. Raises ``UserError`` where they contradict each other."""
    if newest and lag == 0:
        raise UserError("acting by the newest policy needs room to fall behind: --lag 1 or more")
    return NewestWithin(lag) if newest else FixedLag(lag)


def known(policy: PyTree | Future[PyTree]) -> PyTree:
    """The policy itself, waited for if it is in the making."""
    return policy.result() if isinstance(policy, Future) else policy


def ready(policy: PyTree | Future[PyTree]) -> bool:
    """Whether it can be had without waiting: learning has been called, and is done."""
    if isinstance(policy, Future):
        return policy.done() and ready(policy.result())
    # keys cannot be asked, but they are never in the making
    arrays = [x for x in jax.tree.leaves(policy) if isinstance(x, jax.Array) and isinstance(x.dtype, np.dtype)]
    return all(array.is_ready() for array in arrays)  # pyright: ignore[reportAttributeAccessIssue]


def settled(policies: Policies, lag: int) -> tuple[PyTree, ...]:
    """The last ``lag + 1`` policies, all of them ready; the oldest stands in for those that are missing."""
    found = [known(policy) for policy in policies][-(lag + 1) :]
    return (found[0],) * (lag + 1 - len(found)) + tuple(found)


class _Here(Executor):
    """Does at once what it is asked to."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


def learner_thread(lag: int) -> Executor:
    """Where learning goes on: with a lag in a thread of its own, as programs of one thread run one after another."""
    return ThreadPoolExecutor(1, "learner") if lag else _Here()


def delay(jitter: float) -> None:
    """Sleep for up to ``jitter`` seconds, by chance that no seed controls."""
    if jitter:
        time.sleep(jitter * secrets.randbelow(1_000_001) / 1_000_000)
