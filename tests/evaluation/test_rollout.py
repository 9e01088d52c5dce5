"""Playing episodes: ``act`` is compiled once per method, mode and number of environments."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from small_envs import HostEnvAdapter, Walk

from thespis.core.contracts import Mode
from thespis.evaluation.rollout import play_episodes
from thespis.methods.online.a2c import A2C
from thespis.runtime.keys import seed_key


@pytest.mark.long
def test_acting_is_compiled_once_per_method_mode_and_number_of_environments(monkeypatch):
    traced_modes, original = [], A2C.act

    def act(self, policy, memory, view, key):
        traced_modes.append(policy.mode)
        return original(self, policy, memory, view, key)

    monkeypatch.setattr(A2C, "act", act)

    def num_traces_after(state, mode, rows=2):
        method = A2C(hidden_sizes=(3,))
        states = jax.tree.map(lambda x: x[None], method.init(Walk().spec, seed_key(state)))
        returns = play_episodes(method, states, HostEnvAdapter(Walk(), rows, [0]), [0], mode).episode_returns
        assert returns.shape == (1, rows) and np.isfinite(returns).all()
        return len(traced_modes)

    once = num_traces_after(0, Mode.SAMPLE)
    assert once >= 1 and num_traces_after(0, Mode.SAMPLE) == once and num_traces_after(1, Mode.SAMPLE) == once
    assert num_traces_after(0, Mode.EXPLOIT) > once
    before = len(traced_modes)
    assert num_traces_after(0, Mode.SAMPLE, rows=3) > before
