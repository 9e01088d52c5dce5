"""Training with frame-stack replay, which stores each frame once, against replay of whole stacks, bit for bit."""

from __future__ import annotations

import dataclasses

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.wrappers import FrameStackObservation
from small_envs import HostEnvAdapter, Stacks, Walk

from thespis.core.errors import UserError
from thespis.core.laws.assertions import assert_same_bits, to_numpy
from thespis.core.spaces import Box, Discrete
from thespis.curricula.fixed import FixedCurriculum
from thespis.data import frame_buffer
from thespis.data.feeds import Replay
from thespis.envs import registry
from thespis.feedback.environment import EnvironmentReward
from thespis.methods.online.dqn import DQN
from thespis.runs import checkpoint
from thespis.runtime.vmap_exact import concat_seeds
from thespis.training.compiled_loop import CompiledLoop
from thespis.training.components import Components
from thespis.training.host_loop import HostLoop

SEEDS, ENVS = [0, 3], 3
ENV = Stacks(Walk(Discrete(3), legal=True, limit=9, risk=0.05))
FEED = Replay(
    buffer_size=60, batch_size=6, learning_starts=9, update_interval=2, num_updates=2, sequence_length=2, num_envs=ENVS
)


def make_loop(kind: str, frame_stack: int, env=ENV) -> CompiledLoop | HostLoop:
    parts = Components(
        DQN(hidden_sizes=(8,), feed=dataclasses.replace(FEED, frame_stack=frame_stack)),
        EnvironmentReward(),
        FixedCurriculum(),
    )
    if kind == "compiled":
        return CompiledLoop(parts, env, ENVS, SEEDS, 1000)
    return HostLoop(parts, HostEnvAdapter(env, ENVS, SEEDS), ENVS, SEEDS, 1000)


@pytest.fixture
def many_spare_frames(monkeypatch):
    """Enough spare frames for the first stacks of these short episodes."""
    monkeypatch.setattr(frame_buffer, "ROWS_PER_SPARE_FRAME", 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["compiled", pytest.param("host", marks=pytest.mark.slow)])
def test_learning_equals_whole_stacks_and_resumes(kind, many_spare_frames, tmp_path):
    deduplicated, whole = make_loop(kind, 2), make_loop(kind, 0)
    ends = []
    for loop in (deduplicated, whole):
        carry = loop.advance(loop.init(), 10)  # the ring of 20 rows is full
        checkpoint.save(tmp_path / "a.ckpt", loop.snapshot(carry), {})
        snapshot = checkpoint.load(tmp_path / "a.ckpt", loop.snapshot(carry))[0]
        carry = loop.advance(carry, 15)
        ends.append(carry)
        resumed = loop.advance(loop.restore(snapshot)[0], 15)
        assert_same_bits(to_numpy(resumed), to_numpy(carry), "resumed")
    trained = [to_numpy((end.learner.method, end.metric_sums, end.env_state.view)) for end in ends]
    assert_same_bits(*trained, "frame-stack replay equals whole stacks")
    store = concat_seeds(ends[0].learner.store)
    assert not np.any(store.stack_mismatch)
    available = jax.vmap(frame_buffer.FrameStackBuffer.num_available, (0, None))(
        store, jnp.asarray(int(ends[0].num_ticks))
    )
    assert available.tolist() == [20, 20]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["compiled", "host"])
def test_wrong_frame_stack_is_reported_at_once(kind):
    env = Walk(Discrete(3), Box((3,)))  # a vector of three numbers, not a stack of three frames
    wrong = make_loop(kind, 3, env)
    with pytest.raises(UserError, match=r"^feed.frame_stack=3, but an observation is not .* set feed.frame_stack=0"):
        wrong.advance(wrong.init(), 1)
    with pytest.raises(UserError, match=r"^feed.frame_stack=4 needs observations \[4, ...\]"):
        make_loop(kind, 4, env)


def stacked_cartpole(padding: str):
    """CartPole with frame stacking by Gymnasium."""
    return lambda: FrameStackObservation(gymnasium.make("CartPole-v1"), 4, padding_type=padding)


@pytest.mark.parametrize("padding", ["reset", "zero"])
@pytest.mark.slow
def test_frame_stacks_of_gymnasium(padding):
    """For both ways of padding the first stack of an episode."""
    ends = []
    for count in (4, 0):
        feed = dataclasses.replace(FEED, buffer_size=600, frame_stack=count)
        parts = Components(DQN(hidden_sizes=(8,), feed=feed), EnvironmentReward(), FixedCurriculum())
        loop = HostLoop(parts, registry.make_host(stacked_cartpole(padding), ENVS), ENVS, [0], 1000)
        carry = loop.advance(loop.init(), 60)
        ends.append(to_numpy((carry.learner.method, carry.metric_sums)))
        loop.close()
    assert ends[0][1].num_episodes[0] > 5
    assert_same_bits(*ends, "frame-stack replay equals whole stacks")
