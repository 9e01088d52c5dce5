"""What a host loop carries from block to block."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import PyTree

from thespis.core.records import View
from thespis.loops.parts import Learner, Tally


class HostWorld(eqx.Module):
    """Where the environments stand: memory ``[seed, env, ...]`` on the device, the rest ``[seed * env, ...]`` in numpy.

    The programs cut that one axis in two, so that the host reshapes nothing.
    """

    memory: Any
    view: View
    first: np.ndarray
    returns: np.ndarray
    lengths: np.ndarray


class HostCarry(eqx.Module):
    """The whole state of a run; leaves of ``learner``, ``tally`` and ``policies`` are ``[seed, ...]`` on the device."""

    roots: Any
    learner: Learner
    tally: Tally
    policies: tuple[PyTree, ...]
    world: HostWorld
    ticks: np.int32
    updates: np.int32
