"""Playing episodes: what acts is compiled once, however often a run is evaluated."""

from __future__ import annotations

import jax
import numpy as np
from worlds import AsHost, Walk

from thespis.core.contracts import Mode
from thespis.core.keys import key_of
from thespis.evaluation.play import play
from thespis.methods.online.a2c import A2C


def test_acting_is_compiled_once_for_a_method_a_mode_and_a_number_of_worlds(monkeypatch):
    traced, original = [], A2C.act

    def act(self, policy, memory, view, key):
        traced.append(policy.mode)
        return original(self, policy, memory, view, key)

    monkeypatch.setattr(A2C, "act", act)

    def played(state, mode, rows=2):
        method = A2C(hidden=(3,))
        states = jax.tree.map(lambda x: x[None], method.init(Walk().spec, key_of(state)))
        found = play(method, states, AsHost(Walk(), rows, [0]), [0], mode).returns
        assert found.shape == (1, rows) and np.isfinite(found).all()
        return len(traced)

    once = played(0, Mode.SAMPLE)
    assert once >= 1 and played(0, Mode.SAMPLE) == once and played(1, Mode.SAMPLE) == once
    assert played(0, Mode.EXPLOIT) > once
    both = len(traced)
    assert played(0, Mode.SAMPLE, rows=3) > both
